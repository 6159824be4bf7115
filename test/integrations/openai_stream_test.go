package integrations_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// openaiStreamPolicy makes the first event of a stream a part of the attempt.
var openaiStreamPolicy = retryhttp.Policy{
	PeekBytes:        4096,
	AttemptTimeout:   time.Minute, // to the first event
	StallTimeout:     time.Minute, // between two events
	Idempotent:       onlyPaidFor,
	RetryUnprocessed: true,
	Classify: func(a retryhttp.Attempt) retryhttp.Class {
		if bytes.HasPrefix(a.Peek, []byte(`data: {"error":`)) {
			return retryhttp.Retryable
		}
		return retryhttp.Classify(a)
	},
}

func TestOpenAIStreamThatFailsAtOnceIsSentAgain(t *testing.T) {
	const failure = `data: {"error": {"type": "server_error", "message": "overloaded"}}` + "\n\n"
	const answer = `data: {"choices": [{"delta": {"content": "to be, "}}]}` + "\n\n" +
		`data: {"choices": [{"delta": {"content": "or not to be"}}]}` + "\n\n" +
		"data: [DONE]\n\n"
	requireOneRetry(t, "text/event-stream", answer, failure, func(t *testing.T, url string) {
		client := newOpenAI(url, soon(openaiStreamPolicy))
		stream := client.Chat.Completions.NewStreaming(t.Context(), openai.ChatCompletionNewParams{Model: "gpt-17"})
		var texts []string
		for stream.Next() {
			texts = append(texts, stream.Current().Choices[0].Delta.Content)
		}
		require.NoError(t, stream.Err())
		require.NoError(t, stream.Close())
		require.Equal(t, []string{"to be, ", "or not to be"}, texts)
	})
}
