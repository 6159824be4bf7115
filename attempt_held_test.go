package retryhttp_test

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

func TestAttemptIsHeldAsLongAsTheRequest(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		var before, after, inLine time.Duration
		var last retryhttp.Attempt
		g.policy.OnDone = func(a retryhttp.Attempt, _ retryhttp.Outcome) {
			if a.Request.URL.Path == "/503,200" {
				last = a
			}
		}
		g.rt = retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
			switch {
			case req.URL.Path != "/503,200":
			case retryhttp.AttemptOf(req.Context()).Number == 1:
				before = retryhttp.AttemptOf(req.Context()).Held
			default:
				a := retryhttp.AttemptOf(req.Context())
				after, inLine = a.Held, a.InLine
			}
			return g.answer(req)
		}), g.policy)
		g.down()
		held := g.at(90*ms, "/503,200")
		g.ended.Wait()
		assert.Zero(t, before)
		assert.NotZero(t, after)
		assert.Zero(t, inLine, "it had a token")
		assert.Equal(t, held.outcome.Held, after)
		assert.Equal(t, after, last.Held, "as observers see it")
	})
}

func TestHeldOfAFirstAttemptThatWasHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held []time.Duration
		var numbers []int
		answers := script.New(script.Status(429, "Retry-After", "2"), script.Status(200))
		rt := retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
			a := retryhttp.AttemptOf(req.Context())
			held = append(held, a.Held)
			numbers = append(numbers, a.Number)
			return answers.RoundTrip(req)
		}), retryhttp.Policy{Gate: &retryhttp.Gate{HoldFirst: true}, MaxAttempts: 1})
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

func TestHeldOfAResumption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := resumes
		p.Gate = &retryhttp.Gate{}
		base := script.New(cutAfter(10), rest(10))
		resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		failOnce(t, p, script.Status(429, "Retry-After", "3"))
		_, err = io.ReadAll(resp.Body)
		require.NoError(t, err)
		a := retryhttp.AttemptOf(base.Requests()[1].Context())
		assert.Equal(t, base.Waits()[0], a.Held)
		assert.Zero(t, a.InLine)
	})
}

// A request may be made with the context of another's attempt, and says nothing about that attempt.
func TestHeldIsNotWrittenIntoACallersContext(t *testing.T) {
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
		}), retryhttp.Policy{Gate: &retryhttp.Gate{HoldFirst: true}, MaxAttempts: 1})
		for range 2 {
			resp, err := rt.RoundTrip(requestTo("host").WithContext(retry.Context()))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
		assert.NotZero(t, retryhttp.AttemptOf(held.Context()).Held)
		assert.Equal(t, 2, retryhttp.AttemptOf(held.Context()).Number)
		assert.Zero(t, retryhttp.AttemptOf(retry.Context()).Held)
	})
}

func TestHeldTellsTheLineApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held, inLine time.Duration
		var policy retryhttp.Policy
		l := newLining(t, func(p *retryhttp.Policy) { policy = *p }).lasting(5 * time.Second)
		l.rt = retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
			if a := retryhttp.AttemptOf(req.Context()); a.Number > 1 {
				held, inLine = a.Held, a.InLine
			}
			return l.answer(req)
		}), policy)
		l.at(40*ms, "/200,40")
		l.at(340*ms, "/200,340")
		_, o, _ := l.ask("/503,200")
		assert.Equal(t, 240*ms, o.Held)
		assert.Equal(t, 240*ms, held)
		assert.Equal(t, 240*ms, inLine)
		l.others.Wait()
	})
}

func TestInLineCountsWhatWaitsForAToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLining(t, nil)
		for _, path := range []string{"/503,200,1", "/503,200,2", "/503,200,3"} {
			l.at(0, path)
		}
		time.Sleep(150 * ms) // their backoff is over
		assert.Equal(t, 3, l.gate.Status(l.request("/")).InLine)
		assert.Equal(t, 3, l.gate.Status(l.request("/")).Held)
		l.others.Wait()
		assert.Zero(t, l.gate.Status(l.request("/")).InLine)
		assert.Zero(t, new(retryhttp.Gate).Status(nil).InLine)
	})
}
