package sockets_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/fault"
	"github.com/retryhttp/retryhttp/internal/test/loopback"
	"github.com/retryhttp/retryhttp/retrytest"
)

// streamed is a Policy for streams whose first event belongs to the attempt. It makes any number of
// attempts, because a busy machine may be silent, too.
func streamed() retryhttp.Policy {
	return retryhttp.Policy{
		PeekBytes: 4096, AttemptTimeout: fault.Patience, MaxAttempts: -1,
		Backoff: retryhttp.Constant(0), Budget: retryhttp.Unlimited{},
		Classify: func(a retryhttp.Attempt) retryhttp.Class {
			if strings.HasPrefix(string(a.Peek), "event: error") {
				return retryhttp.Retryable
			}
			return retryhttp.Classify(a)
		},
	}
}

// sendEvent sends some of a stream at once.
func sendEvent(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, text)
	_ = http.NewResponseController(w).Flush()
}

func TestStreamThatFailsBeforeItsFirstEventIsSentAgain(t *testing.T) {
	t.Parallel()
	overBothProtocols(t, func(t *testing.T, http2 bool) {
		events := func(text string) retrytest.Step {
			return retrytest.Status(http.StatusOK, "Content-Type", "text/event-stream").Body(text).Unsized()
		}
		for name, fail := range map[string]retrytest.Step{
			"silence":        events("data: 0\n\n").Stall(0),
			"a break":        events("data: 0\n\n").Cut(0),
			"an end":         events(""),
			"an error event": retrytest.ErrorEvent("{}"),
		} {
			t.Run(name, func(t *testing.T) {
				h := retrytest.NewHandler(t, nil, fail.Nth(1), events("data: 1\n\n").Always())
				url, base := loopback.ServeTLS(t, http2, h.ServeHTTP)
				resp, err := retryhttp.New(base, streamed()).RoundTrip(get(t, url))
				require.NoError(t, err)
				got, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, "data: 1\n\n", string(got))
				assert.GreaterOrEqual(t, retryhttp.OutcomeOf(resp).Attempts, 2)
				base.CloseIdleConnections()
			})
		}
	})
}

// The server sends an event after the previous one has been read. If anything waited for more than
// the event that is there, the test would hang.
func TestEventsAreReadAsTheyAreSent(t *testing.T) {
	overBothProtocols(t, func(t *testing.T, http2 bool) {
		events := []string{"data: 1\n\n", "data: 2\n\n", "data: 3\n\n"}
		read := make(chan struct{})
		url, base := loopback.ServeTLS(t, http2, func(w http.ResponseWriter, r *http.Request) {
			for _, text := range events {
				sendEvent(w, text)
				select {
				case <-read:
				case <-r.Context().Done():
				}
			}
		})
		p := streamed()
		p.AttemptTimeout = 0
		resp, err := retryhttp.New(base, p).RoundTrip(get(t, url))
		require.NoError(t, err)
		for _, text := range events {
			got := make([]byte, len(text))
			_, err := io.ReadFull(resp.Body, got)
			require.NoError(t, err)
			assert.Equal(t, text, string(got))
			read <- struct{}{}
		}
		n, err := resp.Body.Read(make([]byte, 1))
		assert.Zero(t, n)
		assert.Equal(t, io.EOF, err)
		require.NoError(t, resp.Body.Close())
		base.CloseIdleConnections()
	})
}
