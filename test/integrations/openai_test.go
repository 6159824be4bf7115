package integrations_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

func Example_openai() {
	server := failing(complete, http.StatusServiceUnavailable)
	defer server.Close()

	client := newOpenAI(server.URL, openaiPolicy)
	completion, err := client.Chat.Completions.New(context.Background(), openai.ChatCompletionNewParams{
		Model:    "gpt-17",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Say hello.")},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(completion.Choices[0].Message.Content)
	// Output: Hello.
}

// newOpenAI gives openai-go an http.Client, and WithMaxRetries(0) leaves retries to it. The API
// key comes from the environment.
func newOpenAI(url string, policy retryhttp.Policy) openai.Client {
	return openai.NewClient(
		option.WithHTTPClient(&http.Client{Transport: retryhttp.New(nil, policy)}),
		option.WithMaxRetries(0),
		option.WithBaseURL(url), // leave it out for OpenAI itself
	)
}

// The POSTs of openai-go carry no idempotency key, and a key that nobody promises to heed would
// hide that. onlyPaidFor decides instead which requests may be repeated. The risk is that the same
// answer is made, and paid for, twice. RetryUnprocessed has no risk: it repeats the other POSTs
// only if they were never sent.
var openaiPolicy = retryhttp.Policy{Idempotent: onlyPaidFor, RetryUnprocessed: true}

// onlyPaidFor reports whether a request may be repeated. It also knows the POSTs that change
// nothing except the bill, as long as completions are not stored.
func onlyPaidFor(req *http.Request) bool {
	return strings.HasSuffix(req.URL.Path, "/chat/completions") ||
		strings.HasSuffix(req.URL.Path, "/embeddings") ||
		retryhttp.Idempotent(req)
}

func complete(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, `{"choices": [{"message": {"content": "Hello."}}]}`)
}

func complain(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusServiceUnavailable)
	io.WriteString(w, `{"error": {"message": "overloaded"}}`)
}

func askOpenAI(t *testing.T, url string, policy retryhttp.Policy) error {
	client := newOpenAI(url, policy)
	_, err := client.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{Model: "gpt-17"})
	return err
}

func respondOpenAI(t *testing.T, url string, policy retryhttp.Policy) error {
	client := newOpenAI(url, policy)
	_, err := client.Responses.New(t.Context(), responses.ResponseNewParams{Model: "gpt-17"})
	return err
}

func TestOpenAIRepeatsAPostOnlyIfThePolicySaysSo(t *testing.T) {
	for attempts, call := range map[int]func(*testing.T, string, retryhttp.Policy) error{1: respondOpenAI, 3: askOpenAI} {
		server := failing(complain)
		defer server.Close()

		err := call(t, server.URL, threeAttempts(openaiPolicy))
		var answer *openai.Error
		require.ErrorAs(t, err, &answer)
		require.Equal(t, "overloaded", answer.Message)
		require.Equal(t, attempts, retryhttp.OutcomeOf(answer.Response).Attempts)
		got := requireRepeats(t, server, attempts)
		require.Empty(t, got.Header.Values("Idempotency-Key"))
		require.Equal(t, "0", got.Header.Get("X-Stainless-Retry-Count")) // its own retries
	}
}

func TestOpenAIKnowsWhatIsOnlyPaidFor(t *testing.T) {
	for _, c := range []struct {
		method, path string
		only         bool
	}{
		{"POST", "/v1/chat/completions", true},
		{"POST", "/v1/embeddings", true},
		{"POST", "/v1/chat/completions/17", false}, // the completion is stored
		{"POST", "/v1/responses", false},
		{"POST", "/v1/images/generations", false},
		{"GET", "/v1/responses/17", true},
		{"DELETE", "/v1/responses/17", true},
	} {
		require.Equal(t, c.only, onlyPaidFor(httptest.NewRequest(c.method, c.path, nil)), "%v", c)
	}
}

func TestOpenAIRepeatsWhatWasNeverSent(t *testing.T) {
	server := failing(complete)
	server.Close()

	var failure *retryhttp.Error
	require.ErrorAs(t, respondOpenAI(t, server.URL, threeAttempts(openaiPolicy)), &failure)
	require.Equal(t, 3, failure.Attempts)
}

func TestOpenAIIsLeftAloneForAsLongAsItAsks(t *testing.T) {
	var server *server
	server = failing(func(w http.ResponseWriter, r *http.Request) {
		if len(server.got()) == 1 {
			w.Header().Set("Retry-After-Ms", "20")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		complete(w, r)
	})
	defer server.Close()
	policy := threeAttempts(openaiPolicy)
	var waits []time.Duration
	policy.OnRetry = func(a retryhttp.Attempt) { waits = append(waits, a.Wait) }

	require.NoError(t, askOpenAI(t, server.URL, policy))
	require.Len(t, waits, 1)
	require.GreaterOrEqual(t, waits[0], 20*time.Millisecond)
}

// The GetBody that openai-go makes for a *bytes.Reader reads all bodies from one
// position.
func TestOpenAIRequestBodyIsBestGivenAsBytes(t *testing.T) {
	seen := errors.New("seen")
	for want, body := range map[string]any{
		"hello, hello": []byte("hello"),
		"hello, ":      bytes.NewReader([]byte("hello")),
	} {
		client := newOpenAI("http://host.example", openaiPolicy)
		err := client.Post(t.Context(), "files", nil, nil, option.WithRequestBody("text/plain", body),
			option.WithMiddleware(func(req *http.Request, _ option.MiddlewareNext) (*http.Response, error) {
				one, err := req.GetBody()
				require.NoError(t, err)
				another, err := req.GetBody()
				require.NoError(t, err)
				got, err := io.ReadAll(io.MultiReader(one, strings.NewReader(", "), another))
				require.NoError(t, err)
				require.Equal(t, want, string(got))
				return nil, seen
			}))
		require.ErrorIs(t, err, seen)
	}
}
