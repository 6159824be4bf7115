package redisbudget_test

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/redisbudget"
)

// retries counts the retries that are granted of n, and returns what one costs.
func retries(b retryhttp.Budget, r retryhttp.Retry, n int) (granted int, price float64) {
	for range n {
		if cost, ok := b.Withdraw(r); ok {
			granted, price = granted+1, cost
		}
	}
	return granted, price
}

// A process may overdraw as much as a TokenBucket allows, and the answers to calls add nothing to
// it. But the engine forgives the debt that is larger than the capacity, which is 20 here.
func TestProcessMayOverdrawTheBalanceByTheTimeOfTheFailedAttempt(t *testing.T) {
	for name, away := range map[string]bool{"the shared balance": false, "the own bucket": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *engine) {
				shared, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
				alone := &retryhttp.TokenBucket{Burst: 20}
				slow := retryhttp.Retry{Request: req, Failed: retryhttp.Attempt{Err: http.ErrServerClosed, Elapsed: 15 * time.Second}}
				forgiven := 20
				if away {
					forgiven = 0
				}
				same := func(claim string, f func(b retryhttp.Budget) int) (n int) {
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
				for withdraw(shared, req) || withdraw(alone, req) {
				}
				time.Sleep(2 * interval)
				overdraw := func(b retryhttp.Budget) int { granted, _ := retries(b, slow, 1000); return granted }
				first := same("10/s · 15 s, while the rate fades", overdraw)
				assert.InDelta(t, 120, first, 20)
				assert.Zero(t, shared.Status(req).Tokens)
				if !away {
					assert.Equal(t, -20.0, e.stored(t, "tokens"), "it is booked, up to the capacity")
				}
				assert.Zero(t, same("an answer gives no new overdraft", overdraw))
				deposit(100)
				assert.Positive(t, same("successes have paid a part of it", overdraw))
				deposit(100)
				require.Positive(t, overdraw(shared))
				shared.Refund(req, 1)
				assert.Equal(t, 1, overdraw(shared), "a retry that was not sent")
				assert.False(t, withdraw(shared, req), "the overdraft belongs to the retry of a slow failure")
			})
		})
	}
}

func TestInvitedRetryCostsAThirdOfTheFleetsToken(t *testing.T) {
	for name, c := range map[string]struct {
		retry   retryhttp.Retry
		granted int
	}{
		"a 429 with a Retry-After":       {retryhttp.Retry{Status: 429, Asked: time.Second}, 60},
		"a 429 of a program's own Retry": {retryhttp.Retry{Failed: failedWith(429, 0), Asked: time.Second}, 60},
		"a 429 without":                  {retryhttp.Retry{Status: 429}, 20},
		"a 503 with a Retry-After":       {retryhttp.Retry{Status: 503, Asked: time.Second}, 20},
		"an error":                       {retryhttp.Retry{Failed: retryhttp.Attempt{Err: http.ErrServerClosed}}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *engine) {
				b, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
				b.Deposit(req)
				time.Sleep(rest)
				c.retry.Request = req
				n, price := retries(b, c.retry, 100)
				assert.Equal(t, c.granted, n)
				time.Sleep(rest)
				assert.InDelta(t, 0, e.stored(t, "tokens"), 1e-6)
				b.Refund(req, price)
				time.Sleep(rest)
				assert.InDelta(t, 20.0/float64(c.granted), e.stored(t, "tokens"), 1e-6, "what was paid")
				c.retry.Again = true
				n, _ = retries(b, c.retry, 2)
				assert.Equal(t, 1, n, "the refused retry may ask again, at its price")
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
			n, _ := retries(b, retryhttp.Retry{Request: req, Status: 429, Asked: time.Second}, 1)
			require.Equal(t, 1, n)
			require.True(t, withdraw(b, req))
			assert.InDelta(t, 20-4.0/3, b.Status(req).Tokens, 1e-6)
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
			n, _ := retries(b, retryhttp.Retry{Request: req, Failed: slow}, 2)
			require.Equal(t, 2, n)
			assert.False(t, withdraw(b, req))
		})
	})
}

// Invited retries are booked one by one, and each is less than a half of a token.
func TestInvitedRetryIsReportedAgainAfterAFailedCall(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t), Window: 1000 * time.Hour, Burst: 100}, get(t, host)
		invited := retryhttp.Retry{Request: req, Status: 429, Asked: time.Second}
		noCallAtOnce(b, req)
		e.refuse.Store(true)
		calls := e.record()
		n, _ := retries(b, invited, 1)
		require.Equal(t, 1, n)
		time.Sleep(pause)
		require.Len(t, calls(), 1)
		require.InDelta(t, 1.0/3, calls()[0].withdrawals, 1e-9)
		deposit(b, req, 4) // of which the own bucket grants retries while calls fail
		n, _ = retries(b, invited, 3)
		require.Equal(t, 3, n)
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
	require.Greater(t, one.Status(req).Tokens, 1900.0)
	return one
}

func TestBudgetThatEarnsNothingIsNotOverdrawn(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		req := get(t, host)
		b := &redisbudget.Bucket{Client: e.client(t), Ratio: -1, Burst: -1}
		deposit(b, req, 1000)
		slow := retryhttp.Attempt{Err: http.ErrServerClosed, Elapsed: time.Minute}
		overdrawn, _ := retries(b, retryhttp.Retry{Request: req, Failed: slow}, 10)
		assert.Zero(t, overdrawn)
		require.NoError(t, b.Close())
	})
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
		overdrawn, _ := retries(one, retryhttp.Retry{Request: req, Failed: slow}, 1000)
		assert.InDelta(t, 100, overdrawn, 2)
		assert.False(t, withdraw(one, req))
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
		require.True(t, withdraw(b, get(t, host)))
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

func TestRetryThatIsNeverGrantedIsNotHeld(t *testing.T) {
	for name, b := range map[string]*redisbudget.Bucket{
		"no room": {Burst: -1, Window: -1},
		"nothing": {Burst: -1, Ratio: -1, HealthyRatio: -1},
	} {
		cost, ok := b.Withdraw(retryhttp.Retry{Request: get(t, host)})
		assert.False(t, ok, name)
		assert.True(t, math.IsInf(cost, 1), name)
	}
	cost, ok := (&redisbudget.Bucket{Burst: -1}).Withdraw(retryhttp.Retry{Request: get(t, host)})
	assert.False(t, ok)
	assert.Zero(t, cost, "a success may earn it")
}

// answers is a RoundTripper that answers with a status.
type answers func(*http.Request) int

func (f answers) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: f(req), Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}
