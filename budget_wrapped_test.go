package retryhttp_test

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// counted is a Budget that counts the retries of another one, as a program would for its metrics.
type counted struct {
	retryhttp.Budget
	granted, refused, refunded, failures atomic.Int64
}

func (c *counted) Withdraw(r retryhttp.Retry) (cost float64, ok bool) {
	cost, ok = c.Budget.Withdraw(r)
	if r.Stop != "" {
		c.failures.Add(1)
	}
	if ok {
		c.granted.Add(1)
	} else {
		c.refused.Add(1)
	}
	return cost, ok
}

func (c *counted) Refund(req *http.Request, cost float64) {
	c.refunded.Add(1)
	c.Budget.Refund(req, cost)
}

// crowdOf sends requests to a server that answers by the time, and returns what became of each. Several
// may be released at one moment, in any order. The requests of an odd number are another tenant's.
func crowdOf(t *testing.T, method string, n int, every time.Duration, budget func(*retryhttp.TokenBucket) retryhttp.Budget,
	answer func(at time.Duration, tenant int) (status int, takes time.Duration),
) []string {
	start := time.Now()
	bucket := &retryhttp.TokenBucket{Burst: 2, Key: func(r *http.Request) string { return r.URL.Path }}
	rt := retryhttp.New(script.Step(func(r *http.Request) (*http.Response, error) {
		status, takes := answer(time.Since(start), int(r.URL.Path[1]-'0'))
		time.Sleep(takes)
		if status == 0 {
			return nil, io.ErrUnexpectedEOF
		}
		return script.Status(status)(r)
	}), retryhttp.Policy{Backoff: retryhttp.Constant(50 * ms), Budget: budget(bucket)})
	became := make([]string, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			time.Sleep(time.Duration(i) * every)
			req := requestTo("host")
			req.Method, req.URL.Path = method, fmt.Sprint("/", i%2)
			resp, err := rt.RoundTrip(req)
			o := retryhttp.OutcomeOf(resp)
			if failed, ok := err.(*retryhttp.Error); ok {
				o = failed.Outcome
			}
			became[i] = fmt.Sprintf("%d: %d attempts, %s after %v", i, o.Attempts, cmp.Or(o.Stop, "-"), time.Since(start).Round(20*ms))
		})
	}
	wg.Wait()
	for _, path := range []string{"/0", "/1"} {
		req := requestTo("host")
		req.URL.Path = path
		became = append(became, fmt.Sprint("sparing: ", bucket.Status(req).Sparing))
	}
	return became
}

func TestBucketBehindAnotherBudgetWorksAsItDoesAlone(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		n      int
		every  time.Duration
		answer func(at time.Duration, tenant int) (status int, takes time.Duration)
	}{
		"a line of two tenants, of whom one fails for longer": {"GET", 60, 7 * ms, func(at time.Duration, tenant int) (int, time.Duration) {
			if at < 700*ms || tenant == 1 && at < 1500*ms {
				return 0, ms
			}
			return 200, ms
		}},
		"requests that are not repeated, and count": {"POST", 400, 10 * ms, func(at time.Duration, tenant int) (int, time.Duration) {
			if at.Milliseconds()/10%4 > 0 {
				return 503, ms
			}
			return 200, ms
		}},
		"slow failures overdraw": {"GET", 80, 25 * ms, func(at time.Duration, tenant int) (int, time.Duration) {
			if at > time.Second && at < 1100*ms {
				return 0, 5 * time.Second
			}
			return 200, ms
		}},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(budget func(*retryhttp.TokenBucket) retryhttp.Budget) (became []string) {
				synctest.Test(t, func(t *testing.T) { became = crowdOf(t, c.method, c.n, c.every, budget, c.answer) })
				return became
			}
			alone := run(func(b *retryhttp.TokenBucket) retryhttp.Budget { return b })
			var around *counted
			wrapped := run(func(b *retryhttp.TokenBucket) retryhttp.Budget { around = &counted{Budget: b}; return around })
			assert.Equal(t, alone, wrapped)
			if c.method == "GET" {
				assert.NotZero(t, around.granted.Load())
			} else {
				assert.Contains(t, wrapped, "sparing: true")
				assert.EqualValues(t, c.n*3/4, around.failures.Load())
			}
		})
	}
}

func TestBudgetGivesEachRetryItsOwnCostBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, req := &retryhttp.TokenBucket{Burst: 4}, requestTo("host")
		var costs []float64
		for i := range 6 {
			r := retryhttp.Retry{Request: req, Status: 503}
			if i%2 == 0 {
				r = retryhttp.Retry{Request: req, Status: 429, Asked: time.Second}
			}
			cost, ok := b.Withdraw(r)
			require.True(t, ok)
			costs = append(costs, cost)
		}
		for _, i := range []int{1, 0, 3, 5, 2, 4} {
			b.Refund(req, costs[i])
		}
		assert.Equal(t, 4.0, b.Status(req).Tokens)
	})
}

func TestBucketRefundOfNoCost(t *testing.T) {
	b, req := new(retryhttp.TokenBucket), requestTo("host")
	require.True(t, withdraw(b, req))
	for _, cost := range []float64{0, -1, math.NaN(), math.Inf(-1)} {
		b.Refund(req, cost)
		assert.Equal(t, 4.0, b.Status(req).Tokens, "%v", cost)
	}
	b.Refund(req, math.Inf(1))
	assert.Equal(t, 5.0, b.Status(req).Tokens)
}

// A Budget that does not know of Stop takes a token for a failure that no retry follows.
func TestBudgetGetsBackAtOnceWhatNoRetryFollows(t *testing.T) {
	for _, c := range []struct {
		stop retryhttp.Stop
		req  func(*http.Request)
	}{
		{retryhttp.StopNotIdempotent, func(r *http.Request) { r.Method = "POST" }},
		{retryhttp.StopFinal, func(r *http.Request) { r.URL.Path = "/404" }},
	} {
		synctest.Test(t, func(t *testing.T) {
			around := &counted{Budget: retryhttp.Unlimited{}}
			req := requestTo("host")
			c.req(req)
			resp, err := retryhttp.New(script.Step(func(r *http.Request) (*http.Response, error) {
				if r.URL.Path == "/404" {
					return script.Status(404)(r)
				}
				return script.Status(503)(r)
			}), retryhttp.Policy{Budget: around}).RoundTrip(req)
			require.NoError(t, err)
			assert.Equal(t, c.stop, retryhttp.OutcomeOf(resp).Stop)
			assert.Equal(t, around.granted.Load(), around.refunded.Load())
			assert.Equal(t, c.stop == retryhttp.StopNotIdempotent, around.granted.Load() == 1)
			assert.Equal(t, around.granted.Load(), around.failures.Load())
		})
	}
}

// echoed is a Budget that tries another one beside it, in goroutines of its own.
type echoed struct {
	retryhttp.Budget
	tried *retryhttp.TokenBucket
	asks  sync.WaitGroup
}

func (e *echoed) Withdraw(r retryhttp.Retry) (cost float64, ok bool) {
	e.asks.Go(func() { e.tried.Withdraw(r) })
	return e.Budget.Withdraw(r)
}

// A Budget may keep a Retry, and ask another Budget for it whenever it likes.
func TestRetryMayBeAskedForInAnotherGoroutine(t *testing.T) {
	budget := &echoed{Budget: &retryhttp.TokenBucket{Burst: -1}, tried: &retryhttp.TokenBucket{Burst: -1}}
	rt := retryhttp.New(script.Step(script.Status(503)), retryhttp.Policy{
		Budget: budget, Backoff: retryhttp.Constant(0), Gate: &retryhttp.Gate{Hold: -1},
	})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				resp, err := rt.RoundTrip(requestTo("host"))
				if assert.NoError(t, err) {
					assert.Equal(t, retryhttp.StopBudget, retryhttp.OutcomeOf(resp).Stop)
				}
			}
		})
	}
	all.Wait()
	budget.asks.Wait()
}
