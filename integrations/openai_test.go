package integrations_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// openai-go takes an http.Client, and WithMaxRetries(0) leaves retries to it. Its
// POSTs carry no idempotency key, and to make one that nobody promises to heed would
// only hide that; onlyPaidFor says instead which may be repeated. What is at risk
// is that the same answer is made, and paid for, twice. RetryUnprocessed risks
// nothing: it has the other POSTs repeated where they were never sent.
func Example_openai() {
	server := failing(complete, http.StatusServiceUnavailable)
	defer server.Close()

	transport := retryhttp.New(nil, retryhttp.Policy{Idempotent: onlyPaidFor, RetryUnprocessed: true})
	client := openai.NewClient(
		option.WithHTTPClient(&http.Client{Transport: transport}),
		option.WithMaxRetries(0),
		option.WithAPIKey("sk-17"),
		option.WithBaseURL(server.URL), // leave it out for OpenAI itself
	)
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

// onlyPaidFor reports whether a request may be repeated, knowing also the POSTs
// that change nothing but the bill, as long as completions are not stored.
func onlyPaidFor(req *http.Request) bool {
	return strings.HasSuffix(req.URL.Path, "/chat/completions") ||
		strings.HasSuffix(req.URL.Path, "/embeddings") ||
		retryhttp.Idempotent(req)
}

func complete(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, `{"choices": [{"message": {"content": "Hello."}}]}`)
}

func askOpenAI(t *testing.T, url string, policy retryhttp.Policy) error {
	client := openai.NewClient(
		option.WithHTTPClient(&http.Client{Transport: retryhttp.New(nil, policy)}),
		option.WithMaxRetries(0),
		option.WithAPIKey("sk-17"),
		option.WithBaseURL(url),
	)
	_, err := client.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{Model: "gpt-17"})
	return err
}

func TestOpenAIRepeatsAPostOnlyIfThePolicySaysSo(t *testing.T) {
	for attempts, edit := range map[int]func(*retryhttp.Policy){
		1: func(p *retryhttp.Policy) { p.RetryUnprocessed = true },
		3: func(p *retryhttp.Policy) { p.Idempotent = onlyPaidFor },
	} {
		server := failing(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			io.WriteString(w, `{"error": {"message": "overloaded"}}`)
		})
		defer server.Close()
		policy := threeAttempts()
		edit(&policy)

		err := askOpenAI(t, server.URL, policy)
		var answer *openai.Error
		require.ErrorAs(t, err, &answer)
		require.Equal(t, "overloaded", answer.Message)
		require.Equal(t, attempts, retryhttp.OutcomeOf(answer.Response).Attempts)
		got := requireRepeats(t, server, attempts)
		require.Empty(t, got.Header.Values("Idempotency-Key"))
		require.Equal(t, "0", got.Header.Get("X-Stainless-Retry-Count")) // of its own retries
	}
}

func TestOpenAIRepeatsWhatWasNeverSent(t *testing.T) {
	server := failing(complete)
	server.Close()
	policy := threeAttempts()
	policy.RetryUnprocessed = true

	var failure *retryhttp.Error
	require.ErrorAs(t, askOpenAI(t, server.URL, policy), &failure)
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
	policy := threeAttempts()
	policy.Idempotent = onlyPaidFor
	var waits []time.Duration
	policy.OnRetry = func(a retryhttp.Attempt) { waits = append(waits, a.Wait) }

	require.NoError(t, askOpenAI(t, server.URL, policy))
	require.Len(t, waits, 1)
	require.GreaterOrEqual(t, waits[0], 20*time.Millisecond)
}
