package integrations_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

func Example_anthropic() {
	server := streaming("text/event-stream", sending(overloadedAnthropic), sending(answerOfAnthropic...))
	defer server.Close()

	client := newAnthropic(server.URL, anthropicPolicy)
	stream := client.Messages.NewStreaming(context.Background(), questionToAnthropic)
	defer stream.Close()
	for stream.Next() {
		fmt.Print(stream.Current().Delta.Text)
	}
	fmt.Println(stream.Err())
	// Output: to be, or not to be<nil>
}

// newAnthropic gives anthropic-sdk-go an http.Client, and WithMaxRetries(0) leaves retries to it.
func newAnthropic(url string, policy retryhttp.Policy) anthropic.Client {
	return anthropic.NewClient(
		option.WithHTTPClient(&http.Client{Transport: retryhttp.New(nil, policy)}),
		option.WithMaxRetries(0),
		option.WithAPIKey("sk-ant-17"),
		option.WithBaseURL(url), // leave it out for Anthropic itself
	)
}

// The POSTs of anthropic-sdk-go carry no idempotency key. A message may be made, and paid for, twice; a batch
// or a file must not be.
var anthropicPolicy = retryhttp.Policy{
	PeekBytes:        4096,
	AttemptTimeout:   time.Minute, // to the first event
	StallTimeout:     time.Minute, // between two events
	Idempotent:       onlyMessages,
	RetryUnprocessed: true,
	Classify: func(a retryhttp.Attempt) retryhttp.Class {
		if bytes.HasPrefix(a.Peek, []byte("event: error\n")) && bytes.Contains(a.Peek, []byte(`"overloaded_error"`)) {
			return retryhttp.Retryable
		}
		return retryhttp.Classify(a)
	},
}

func onlyMessages(req *http.Request) bool {
	return strings.HasSuffix(req.URL.Path, "/v1/messages") || retryhttp.Idempotent(req)
}

const overloadedAnthropic = "event: error\n" +
	`data: {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}` + "\n\n"

var answerOfAnthropic = []string{
	"event: message_start\n" + `data: {"type": "message_start", "message": {"id": "msg_17"}}` + "\n\n",
	"event: ping\n" + `data: {"type": "ping"}` + "\n\n",
	"event: content_block_delta\n" +
		`data: {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "to be, "}}` + "\n\n",
	"event: content_block_delta\n" +
		`data: {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "or not to be"}}` + "\n\n",
	"event: message_stop\n" + `data: {"type": "message_stop"}` + "\n\n",
}

var questionToAnthropic = anthropic.MessageNewParams{
	Model: "claude-17", MaxTokens: 100,
	Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("How does it go on?"))},
}

func TestAnthropicStreamThatFailsAtOnceIsSentAgain(t *testing.T) {
	requireOneRetry(t, "text/event-stream", sending(answerOfAnthropic...), overloadedAnthropic, func(t *testing.T, url string) {
		client := newAnthropic(url, soon(anthropicPolicy))
		stream := client.Messages.NewStreaming(t.Context(), questionToAnthropic)
		var types []string
		for stream.Next() {
			types = append(types, stream.Current().Type)
		}
		require.NoError(t, stream.Err())
		require.NoError(t, stream.Close())
		require.Equal(t, []string{"message_start", "content_block_delta", "content_block_delta", "message_stop"}, types)
	})
}

// What has been delivered is the caller's, and nothing is repeated.
func TestAnthropicStreamThatBreaksLaterIsTheCallers(t *testing.T) {
	server := streaming("text/event-stream", func(w http.ResponseWriter, r *http.Request) {
		send(w, answerOfAnthropic[0])
		panic(http.ErrAbortHandler)
	}, sending(answerOfAnthropic...))
	defer server.Close()

	client := newAnthropic(server.URL, anthropicPolicy)
	stream := client.Messages.NewStreaming(t.Context(), questionToAnthropic)
	require.True(t, stream.Next())
	require.False(t, stream.Next())
	require.ErrorIs(t, stream.Err(), io.ErrUnexpectedEOF)
	require.Len(t, server.got(), 1)
}

func TestAnthropicIsAskedAgainWhenItIsOverloaded(t *testing.T) {
	for name, answers := range map[string]func(http.ResponseWriter){
		"529": func(w http.ResponseWriter) { w.WriteHeader(529) },
		"429 with a wait": func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var server *server
			server = failing(func(w http.ResponseWriter, _ *http.Request) {
				if len(server.got()) == 1 {
					answers(w)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				send(w, `{"id": "msg_17", "content": [{"type": "text", "text": "to be"}]}`)
			})
			defer server.Close()
			client := newAnthropic(server.URL, soon(anthropicPolicy))
			message, err := client.Messages.New(t.Context(), questionToAnthropic)
			require.NoError(t, err)
			require.Equal(t, "to be", message.Content[0].Text)
			got := requireRepeats(t, server, 2)
			require.Empty(t, got.Header.Values("Idempotency-Key"))
			require.Equal(t, "0", got.Header.Get("X-Stainless-Retry-Count")) // its own retries
		})
	}
}

func TestAnthropicRepeatsOnlyMessages(t *testing.T) {
	for path, only := range map[string]bool{"/v1/messages": true, "/v1/messages/batches": false, "/v1/files": false} {
		req, err := http.NewRequest(http.MethodPost, "https://api.example"+path, nil)
		require.NoError(t, err)
		require.Equal(t, only, onlyMessages(req), path)
	}
}
