package integrations_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrytest"
)

func Example_anthropic() {
	server := streaming(stream("text/event-stream", overloadedAnthropic), stream("text/event-stream", answerOfAnthropic))
	defer server.Close()

	client := newAnthropic(server.URL, anthropicPolicy)
	events := client.Messages.NewStreaming(context.Background(), questionToAnthropic)
	defer events.Close()
	for events.Next() {
		fmt.Print(events.Current().Delta.Text)
	}
	fmt.Println(events.Err())
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

const startOfAnthropic = "event: message_start\n" +
	`data: {"type": "message_start", "message": {"id": "msg_17"}}` + "\n\n"

const answerOfAnthropic = startOfAnthropic +
	"event: ping\n" +
	`data: {"type": "ping"}` + "\n\n" +
	"event: content_block_delta\n" +
	`data: {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "to be, "}}` + "\n\n" +
	"event: content_block_delta\n" +
	`data: {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "or not to be"}}` + "\n\n" +
	"event: message_stop\n" +
	`data: {"type": "message_stop"}` + "\n\n"

var questionToAnthropic = anthropic.MessageNewParams{
	Model: "claude-17", MaxTokens: 100,
	Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("How does it go on?"))},
}

func TestAnthropicStreamThatFailsAtOnceIsSentAgain(t *testing.T) {
	requireOneRetry(t, "text/event-stream", answerOfAnthropic, overloadedAnthropic, func(t *testing.T, url string) {
		client := newAnthropic(url, soon(anthropicPolicy))
		events := client.Messages.NewStreaming(t.Context(), questionToAnthropic)
		var types []string
		for events.Next() {
			types = append(types, events.Current().Type)
		}
		require.NoError(t, events.Err())
		require.NoError(t, events.Close())
		require.Equal(t, []string{"message_start", "content_block_delta", "content_block_delta", "message_stop"}, types)
	})
}

// What has been delivered is the caller's, and nothing is repeated.
func TestAnthropicStreamThatBreaksLaterIsTheCallers(t *testing.T) {
	h := retrytest.NewHandler(t, nil, stream("text/event-stream", answerOfAnthropic).Cut(int64(len(startOfAnthropic))).Always())
	server := httptest.NewServer(h)
	defer server.Close()

	client := newAnthropic(server.URL, anthropicPolicy)
	events := client.Messages.NewStreaming(t.Context(), questionToAnthropic)
	require.True(t, events.Next())
	require.False(t, events.Next())
	require.ErrorIs(t, events.Err(), io.ErrUnexpectedEOF)
	require.Len(t, h.Records(), 1)
}

func TestAnthropicIsAskedAgainWhenItIsOverloaded(t *testing.T) {
	for name, first := range map[string]retrytest.Step{"529": retrytest.Status(529), "429 with a wait": retrytest.RetryAfter(429, 0)} {
		t.Run(name, func(t *testing.T) {
			answer := retrytest.Status(http.StatusOK, "Content-Type", "application/json").
				Body(`{"id": "msg_17", "content": [{"type": "text", "text": "to be"}]}`)
			h := retrytest.NewHandler(t, nil, first.Nth(1), answer.Always())
			server := httptest.NewServer(h)
			defer server.Close()

			client := newAnthropic(server.URL, soon(anthropicPolicy))
			message, err := client.Messages.New(t.Context(), questionToAnthropic)
			require.NoError(t, err)
			require.Equal(t, "to be", message.Content[0].Text)
			got := h.Records()
			require.Len(t, got, 2)
			require.Equal(t, got[0].Header, got[1].Header)
			require.Equal(t, got[0].Body, got[1].Body)
			require.Empty(t, got[1].Header.Values("Idempotency-Key"))
			require.Equal(t, "0", got[1].Header.Get("X-Stainless-Retry-Count")) // its own retries
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
