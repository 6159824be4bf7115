package retryhttp_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

func TestAttemptHeldIsHowLongTheGateHeldTheRequest(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.down()
		var before, after time.Duration
		g.rt = retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
			if retryhttp.AttemptNumber(req.Context()) == 1 {
				before = retryhttp.AttemptHeld(req.Context())
			} else {
				after = retryhttp.AttemptHeld(req.Context())
			}
			return g.answer(req)
		}), g.policy)
		held := g.at(90*ms, "/503,200")
		g.ended.Wait()
		assert.Zero(t, before)
		assert.NotZero(t, after)
		assert.Equal(t, held.outcome.Held, after)
	})
}

func TestAttemptHeldOfAFirstAttemptThatWasHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held []time.Duration
		var numbers []int
		answers := script.New(script.Status(429, "Retry-After", "2"), script.Status(200))
		rt := retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
			held = append(held, retryhttp.AttemptHeld(req.Context()))
			numbers = append(numbers, retryhttp.AttemptNumber(req.Context()))
			return answers.RoundTrip(req)
		}), retryhttp.Policy{Gate: &retryhttp.Gate{First: true}, MaxAttempts: 1})
		for range 2 {
			resp, err := rt.RoundTrip(requestTo("host"))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
		require.Len(t, held, 2)
		assert.Zero(t, held[0])
		assert.GreaterOrEqual(t, held[1], 2*time.Second)
		assert.Equal(t, []int{1, 1}, numbers)
	})
}

// A request may be made with the context of another's attempt, and says nothing about that attempt.
func TestAttemptHeldIsNotWrittenIntoACallersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var retry, held *http.Request
		_, err := retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
			retry = req
			return nil, errBroken
		}), retryhttp.Policy{MaxAttempts: 2}).RoundTrip(requestTo("other"))
		require.Error(t, err)
		answers := script.New(script.Status(429, "Retry-After", "2"), script.Status(200))
		rt := retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
			held = req
			return answers.RoundTrip(req)
		}), retryhttp.Policy{Gate: &retryhttp.Gate{First: true}, MaxAttempts: 1})
		for range 2 {
			resp, err := rt.RoundTrip(requestTo("host").WithContext(retry.Context()))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
		assert.NotZero(t, retryhttp.AttemptHeld(held.Context()))
		assert.Equal(t, 2, retryhttp.AttemptNumber(held.Context()))
		assert.Zero(t, retryhttp.AttemptHeld(retry.Context()))
	})
}

func TestInLineCountsWhatWaitsForAToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLining(t, nil)
		for _, path := range []string{"/503,200,1", "/503,200,2", "/503,200,3"} {
			l.at(0, path)
		}
		time.Sleep(150 * ms) // their backoff is over
		assert.Equal(t, 3, l.gate.InLine(l.request("/")))
		assert.Equal(t, 3, l.gate.Held(l.request("/")))
		l.others.Wait()
		assert.Zero(t, l.gate.InLine(l.request("/")))
		assert.Zero(t, new(retryhttp.Gate).InLine(nil))
	})
}
