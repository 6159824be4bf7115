package http3_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/fault"
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

func TestStreamThatFailsBeforeItsFirstEventIsSentAgain(t *testing.T) {
	leavesNothing(t)
	events := func(text string) retrytest.Step {
		return retrytest.Status(http.StatusOK, "Content-Type", "text/event-stream").Body(text).Unsized()
	}
	for name, fail := range map[string]retrytest.Step{
		"silence":        events("data: 0\n\n").Stall(0),
		"a reset":        events("data: 0\n\n").Cut(0),
		"an end":         events(""),
		"an error event": retrytest.ErrorEvent("{}"),
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, fault.Ample)
			defer s.close()
			s.serve(retrytest.NewHandler(t, nil, fail.Nth(1), events("data: 1\n\n").Always()).ServeHTTP)
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
