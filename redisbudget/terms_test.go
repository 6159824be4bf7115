package redisbudget_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/redisbudget"
)

// failing is a Budget that hears of failures.
type failing interface {
	retryhttp.Budget
	Failed(*http.Request, retryhttp.Attempt)
}

// retries counts the retries that are granted of n, each of an attempt that has failed.
func retries(b failing, req *http.Request, n int, a retryhttp.Attempt) int {
	granted := 0
	for range n {
		b.Failed(req, a)
		if b.Withdraw(req) {
			granted++
		}
	}
	return granted
}

// A process may overdraw as much as a TokenBucket allows, and the answers to calls add nothing to
// it. But the engine forgives the debt that is larger than the capacity, which is 20 here.
func TestProcessMayOverdrawTheBalanceByTheTimeOfTheFailedAttempt(t *testing.T) {
	for name, away := range map[string]bool{"the shared balance": false, "the own bucket": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *engine) {
				shared, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
				alone := &retryhttp.TokenBucket{Burst: 20}
				slow := retryhttp.Attempt{Err: http.ErrServerClosed, Elapsed: 15 * time.Second}
				forgiven := 20
				if away {
					forgiven = 0
				}
				same := func(claim string, f func(b failing) int) (n int) {
					n = f(shared)
					want := f(alone)
					assert.GreaterOrEqual(t, n, want-1, claim)
					assert.LessOrEqual(t, n, want+forgiven+1, claim)
					time.Sleep(3 * interval)
					return n
				}
				deposit := func(n int) {
					for range n {
						shared.Deposit(req)
						alone.Deposit(req)
					}
				}
				for range 1200 { // ten a second, for six Windows
					deposit(1)
					time.Sleep(100 * time.Millisecond)
				}
				e.down.Store(away)
				deposit(1)
				time.Sleep(2 * interval)
				for shared.Withdraw(req) || alone.Withdraw(req) {
				}
				time.Sleep(2 * interval)
				overdraw := func(b failing) int { return retries(b, req, 1000, slow) }
				first := same("10/s · 15 s, while the rate fades", overdraw)
				assert.InDelta(t, 120, first, 20)
				assert.Zero(t, shared.Tokens(req))
				if !away {
					assert.Equal(t, -20.0, e.stored(t, "tokens"), "it is booked, up to the capacity")
				}
				assert.Zero(t, same("an answer gives no new overdraft", overdraw))
				deposit(100)
				assert.Positive(t, same("successes have paid a part of it", overdraw))
				deposit(100)
				require.Positive(t, overdraw(shared))
				shared.Refund(req)
				assert.Equal(t, 1, retries(shared, req, 1000, slow), "a retry that was not sent")
				assert.False(t, shared.Withdraw(req), "the overdraft belongs to the retry of a slow failure")
			})
		})
	}
}

func TestInvitedRetryCostsAThirdOfTheFleetsToken(t *testing.T) {
	for name, c := range map[string]struct {
		attempt retryhttp.Attempt
		granted int
	}{
		"a 429 with a Retry-After":      {failedWith(429, 0, "Retry-After", "1"), 60},
		"a 429 without":                 {failedWith(429, 0), 20},
		"a 429 with a Retry-After of 0": {failedWith(429, 0, "Retry-After", "0"), 20},
		"a 503 with a Retry-After":      {failedWith(503, 0, "Retry-After", "1"), 20},
		"an error":                      {retryhttp.Attempt{Err: http.ErrServerClosed}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *engine) {
				b, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
				b.Deposit(req)
				time.Sleep(rest)
				assert.Equal(t, c.granted, retries(b, req, 100, c.attempt))
				time.Sleep(rest)
				assert.InDelta(t, 0, e.stored(t, "tokens"), 1e-6)
				b.Refund(req)
				time.Sleep(rest)
				assert.InDelta(t, 20.0/float64(c.granted), e.stored(t, "tokens"), 1e-6, "what was paid")
				assert.Equal(t, 1, granted(b, req, 2), "the refused retry may ask again, at its price")
			})
		})
	}
}

func TestTermsOfAFailureAreForItsRetryAlone(t *testing.T) {
	t.Run("the price", func(t *testing.T) {
		inBubble(t, func(t *testing.T, e *engine) {
			b, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
			b.Deposit(req)
			time.Sleep(rest)
			require.Equal(t, 1, retries(b, req, 1, failedWith(429, 0, "Retry-After", "1")))
			require.True(t, b.Withdraw(req))
			assert.InDelta(t, 20-4.0/3, b.Tokens(req), 1e-6)
		})
	})
	t.Run("the overdraft", func(t *testing.T) {
		inBubble(t, func(t *testing.T, e *engine) {
			b, req := &redisbudget.Bucket{Client: e.client(t), Ratio: 0.1}, get(t, host)
			for range 200 { // ten a second
				b.Deposit(req)
				time.Sleep(100 * time.Millisecond)
			}
			granted(b, req, 100)
			slow := retryhttp.Attempt{Err: http.ErrServerClosed, Elapsed: 10 * time.Second}
			require.Equal(t, 2, retries(b, req, 2, slow))
			assert.False(t, b.Withdraw(req))
		})
	})
}

// Invited retries are booked one by one, and each is less than a half of a token.
func TestInvitedRetryIsReportedAgainAfterAFailedCall(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t), Window: 1000 * time.Hour, Burst: 100}, get(t, host)
		invited := failedWith(429, 0, "Retry-After", "1")
		noCallAtOnce(b, req)
		e.refuse.Store(true)
		calls := e.record()
		require.Equal(t, 1, retries(b, req, 1, invited))
		time.Sleep(pause)
		require.Len(t, calls(), 1)
		require.InDelta(t, 1.0/3, calls()[0].withdrawals, 1e-9)
		deposit(b, req, 4) // of which the own bucket grants retries while calls fail
		require.Equal(t, 3, retries(b, req, 3, invited))
		e.refuse.Store(false)
		time.Sleep(interval + spread)
		require.Greater(t, len(calls()), 1)
		assert.InDelta(t, 4.0/3, calls()[1].withdrawals, 1e-5)
	})
}

// busyFleet returns a process with ten of a fleet's thousand successes a second, and a full balance.
func busyFleet(t *testing.T, e *engine, req *http.Request) *redisbudget.Bucket {
	t.Helper()
	one := &redisbudget.Bucket{Client: e.client(t), Ratio: 0.1}
	others := &redisbudget.Bucket{Client: e.client(t), Ratio: 0.1}
	for range 1200 { // six Windows
		one.Deposit(req)
		deposit(others, req, 100)
		time.Sleep(100 * time.Millisecond)
	}
	require.NoError(t, others.Close()) // which makes no further call of its own
	require.Greater(t, one.Tokens(req), 1900.0)
	return one
}

// The share of the balance that a process may spend does not bound its overdraft. Otherwise it would
// be refused more while the fleet has tokens than while it has none.
func TestProcessThatHasSpentItsShareMayStillOverdraw(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		req := get(t, host)
		one := busyFleet(t, e, req)
		calls := e.record()
		share := granted(one, req, 1000)
		require.InDelta(t, 20, share, 2)
		slow := retryhttp.Attempt{Err: http.ErrServerClosed, Elapsed: 10 * time.Second}
		assert.InDelta(t, 100, retries(one, req, 1000, slow), 2)
		assert.False(t, one.Withdraw(req))
		booked := 0.0
		for _, c := range calls() {
			booked += c.withdrawals
		}
		assert.InDelta(t, share+100, booked, 2)
	})
}

// The withdrawals before it have brought a call forward.
func TestProcessThatHasSpentItsShareBringsNoCallForward(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		req := get(t, host)
		one := busyFleet(t, e, req)
		noCallAtOnce(one, req)
		calls := e.callTimes()
		require.InDelta(t, 20, granted(one, req, 1000), 2)
		assert.Empty(t, calls())
		time.Sleep(pause)
		assert.Equal(t, []time.Duration{pause}, calls())
	})
}

// A retry that the balance refuses waits in line until a success of its process has earned it.
func TestRefusedRetryWaitsForASuccess(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b := &redisbudget.Bucket{Client: e.client(t), Burst: 1}
		require.True(t, b.Withdraw(get(t, host)))
		time.Sleep(rest)
		start := time.Now()
		rt := retryhttp.New(answers(func(req *http.Request) int {
			if req.URL.Path == "/fails" && time.Since(start) < 100*time.Millisecond {
				return http.StatusServiceUnavailable
			}
			return http.StatusOK
		}), retryhttp.Policy{Budget: b, Backoff: retryhttp.Constant(100 * time.Millisecond)})
		fetch := func(path string) *http.Response {
			req := get(t, host)
			req.URL.Path = path
			resp, err := rt.RoundTrip(req)
			require.NoError(t, err)
			return resp
		}
		done := make(chan *http.Response)
		go func() { done <- fetch("/fails") }()
		time.Sleep(time.Millisecond)
		go fetch("/fails") // so that the first is not alone
		time.Sleep(300 * time.Millisecond)
		for range 2 {
			require.Equal(t, http.StatusOK, fetch("/").StatusCode)
		}
		resp := <-done
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Equal(t, 301*time.Millisecond, time.Since(start))
		assert.Equal(t, 201*time.Millisecond, retryhttp.OutcomeOf(resp).Held)
		for range 2 {
			fetch("/")
		}
		time.Sleep(rest)
	})
}

// answers is a RoundTripper that answers with a status.
type answers func(*http.Request) int

func (f answers) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: f(req), Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}
