package http3_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/quic-go/quic-go/http3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/fault"
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
	leavesNothing(t)
	for name, fail := range map[string]func(http.ResponseWriter, *http.Request){
		"silence":        func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"a reset":        func(w http.ResponseWriter, _ *http.Request) { reset(w, http3.ErrCodeInternalError) },
		"an end":         func(http.ResponseWriter, *http.Request) {},
		"an error event": func(w http.ResponseWriter, _ *http.Request) { sendEvent(w, "event: error\n\n") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, fault.Ample)
			defer s.close()
			var requests atomic.Int32
			s.serve(func(w http.ResponseWriter, r *http.Request) {
				sendEvent(w, "")
				if requests.Add(1) == 1 {
					fail(w, r)
					return
				}
				sendEvent(w, "data: 1\n\n")
			})
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url, nil)
			require.NoError(t, err)
			resp, err := retryhttp.New(s.base, streamed()).RoundTrip(req)
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, "data: 1\n\n", string(got))
			assert.GreaterOrEqual(t, retryhttp.OutcomeOf(resp).Attempts, 2)
		})
	}
}
