package retryhttp_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	_ retryhttp.Budget = (*retryhttp.TokenBucket)(nil)
	_ retryhttp.Budget = retryhttp.Unlimited{}
)

func TestBudgetUnlimitedNeverRefuses(t *testing.T) {
	var b retryhttp.Unlimited
	for range 1000 {
		require.True(t, withdraw(b, nil))
	}
	b.Refund(nil, 1)
	b.Deposit(nil)
}

func TestBudgetZeroValueIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b retryhttp.TokenBucket
		req := requestTo("a")
		assert.Equal(t, 5.0, b.Status(req).Tokens)
		for left := 4; left >= 0; left-- {
			assert.True(t, withdraw(&b, req))
			assert.Equal(t, float64(left), b.Status(req).Tokens)
		}
		assert.False(t, withdraw(&b, req))
		assert.Zero(t, b.Status(req).Tokens)
		time.Sleep(24 * time.Hour)
		assert.False(t, withdraw(&b, req), "time alone earns nothing")
		deposit(&b, req, 10)
		assert.Equal(t, 5, drawAll(t, &b, req))
	})
}

func TestBudgetEarnsExactlyItsRatio(t *testing.T) {
	for name, c := range map[string]struct {
		ratio     float64
		successes int
		retries   int
	}{
		"default":         {0, 10, 5},
		"0.1":             {0.1, 10, 1},
		"0.2":             {0.2, 5, 1},
		"0.3":             {0.3, 10, 3},
		"a third":         {1.0 / 3, 3, 1},
		"0.7":             {0.7, 10, 7},
		"0.05":            {0.05, 20, 1},
		"0.01":            {0.01, 100, 1},
		"1":               {1, 1, 1},
		"2":               {2, 1, 2},
		"negative":        {-1, 1000, 0},
		"minus infinity":  {math.Inf(-1), 1000, 0},
		"not a number":    {math.NaN(), 1000, 0},
		"next to nothing": {math.SmallestNonzeroFloat64, 1000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := retryhttp.TokenBucket{Ratio: c.ratio, Burst: 10, Window: -1}
				req := requestTo("a")
				require.Equal(t, 10, drawAll(t, &b, req))
				for range 30 {
					deposit(&b, req, c.successes)
					require.Equal(t, c.retries, drawAll(t, &b, req), "all at once")
				}
				for range 30 {
					granted := 0
					for i := range c.successes {
						deposit(&b, req, 1)
						if c.retries == 1 && i < c.successes-1 {
							require.False(t, withdraw(&b, req), "after %d", i+1)
						}
						granted += drawAll(t, &b, req)
					}
					require.Equal(t, c.retries, granted, "one by one")
				}
			})
		})
	}
}

func TestBudgetFields(t *testing.T) {
	for name, c := range map[string]struct {
		bucket *retryhttp.TokenBucket
		start  float64 // tokens
		filled float64 // tokens, after as many Withdraws as there were tokens, and 100 successes at one moment
	}{
		"burst":                    {&retryhttp.TokenBucket{Burst: 3, Window: -1}, 3, 3},
		"burst default":            {&retryhttp.TokenBucket{Window: -1}, 5, 5},
		"burst negative":           {&retryhttp.TokenBucket{Burst: -1}, 0, 10},
		"burst least":              {&retryhttp.TokenBucket{Burst: math.MinInt}, 0, 10},
		"burst large":              {&retryhttp.TokenBucket{Burst: 10000, Window: -1}, 10000, 50},
		"nothing at all":           {&retryhttp.TokenBucket{Burst: -1, Window: -1}, 0, 0},
		"window default":           {&retryhttp.TokenBucket{}, 5, 10},
		"window least":             {&retryhttp.TokenBucket{Window: minWait}, 5, 5},
		"window shortest":          {&retryhttp.TokenBucket{Window: 1}, 5, 10},
		"window longest":           {&retryhttp.TokenBucket{Window: maxWait}, 5, 10},
		"ratio negative":           {&retryhttp.TokenBucket{Ratio: -0.1}, 5, 0},
		"ratio minus infinity":     {&retryhttp.TokenBucket{Ratio: math.Inf(-1)}, 5, 0},
		"ratio not a number":       {&retryhttp.TokenBucket{Ratio: math.NaN()}, 5, 0},
		"ratio large":              {&retryhttp.TokenBucket{Ratio: 100}, 5, 10000},
		"ratio infinite":           {&retryhttp.TokenBucket{Ratio: math.Inf(1), Window: -1}, 5, 5},
		"ratio greatest":           {&retryhttp.TokenBucket{Ratio: math.MaxFloat64, Window: -1}, 5, 5},
		"ratio tiny":               {&retryhttp.TokenBucket{Ratio: math.SmallestNonzeroFloat64}, 5, 0},
		"per second negative":      {&retryhttp.TokenBucket{MinPerSecond: -1}, 5, 10},
		"per second -infinity":     {&retryhttp.TokenBucket{MinPerSecond: math.Inf(-1)}, 5, 10},
		"per second not a number":  {&retryhttp.TokenBucket{MinPerSecond: math.NaN()}, 5, 10},
		"per second":               {&retryhttp.TokenBucket{MinPerSecond: 10}, 15, 10},
		"per second, rounded up":   {&retryhttp.TokenBucket{MinPerSecond: 2.5}, 8, 10},
		"per second, less than 1":  {&retryhttp.TokenBucket{MinPerSecond: 0.01}, 6, 10},
		"per second tiny":          {&retryhttp.TokenBucket{MinPerSecond: math.SmallestNonzeroFloat64}, 6, 10},
		"per second, nothing else": {&retryhttp.TokenBucket{MinPerSecond: 3, Burst: -1, Ratio: -1, Window: -1}, 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, req := c.bucket, requestTo("a")
				assert.InDelta(t, c.start, b.Status(req).Tokens, 1e-9)
				assert.Equal(t, int(c.start), drawAll(t, b, req))
				assert.Zero(t, b.Status(req).Tokens)
				deposit(b, req, 100)
				assert.InDelta(t, c.filled, b.Status(req).Tokens, 1e-9)
				deposit(b, req, 100)
				granted := drawAll(t, b, req)
				assert.LessOrEqual(t, float64(granted), max(2*c.filled, c.start))
				assert.Less(t, b.Status(req).Tokens, 1.0)
			})
		})
	}
}

func TestBudgetSurvivesHugeFields(t *testing.T) {
	for name, b := range map[string]*retryhttp.TokenBucket{
		"burst":              {Burst: math.MaxInt},
		"ratio":              {Ratio: math.MaxFloat64},
		"ratio infinite":     {Ratio: math.Inf(1), Window: maxWait},
		"per second":         {MinPerSecond: math.MaxFloat64},
		"per second, no end": {MinPerSecond: math.Inf(1)},
		"everything":         {Ratio: math.Inf(1), Burst: math.MaxInt, Window: maxWait, MinPerSecond: math.Inf(1)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				req := requestTo("a")
				for range 50 {
					deposit(b, req, 100)
					for range 100 {
						require.True(t, withdraw(b, req))
					}
					b.Refund(req, 1)
					tokens := b.Status(req).Tokens
					require.False(t, math.IsNaN(tokens) || math.IsInf(tokens, 0))
					require.GreaterOrEqual(t, tokens, 0.0)
					time.Sleep(time.Second)
				}
			})
		})
	}
}

func TestBudgetKeepsKeysApart(t *testing.T) {
	byTenant := func(req *http.Request) string { return req.Header.Get("Tenant") }
	tenant := func(host, name string) *http.Request {
		req := requestTo(host)
		req.Header = http.Header{"Tenant": {name}}
		return req
	}
	otherPath := requestTo("a")
	otherPath.URL = &url.URL{Scheme: "https", Host: "a", Path: "/other"}
	otherHostHeader := requestTo("a")
	otherHostHeader.Host = "b"
	for name, c := range map[string]struct {
		key    func(*http.Request) string
		x, y   *http.Request
		shared bool
	}{
		"another host":            {nil, requestTo("a"), requestTo("b"), false},
		"another port":            {nil, requestTo("a:1"), requestTo("a:2"), false},
		"another scheme and path": {nil, requestTo("a"), otherPath, true},
		"another Host header":     {nil, requestTo("a"), otherHostHeader, true},
		"no URL":                  {nil, &http.Request{}, requestTo("a"), false},
		"no URL twice":            {nil, &http.Request{}, &http.Request{}, true},
		"custom key, same host":   {byTenant, tenant("a", "x"), tenant("a", "y"), false},
		"custom key, other host":  {byTenant, tenant("a", "x"), tenant("b", "x"), true},
		"custom key, no URL": {
			byTenant, &http.Request{Header: http.Header{"Tenant": {"x"}}}, tenant("a", "x"), false,
		},
		"custom key, the same for all": {func(*http.Request) string { return "" }, requestTo("a"), requestTo("b"), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := retryhttp.TokenBucket{Key: c.key}
				require.Equal(t, 5, drawAll(t, &b, c.x))
				if c.shared {
					require.False(t, withdraw(&b, c.y))
					deposit(&b, c.x, 2)
					assert.True(t, withdraw(&b, c.y))
					b.Refund(c.x, 1)
					assert.Equal(t, 1.0, b.Status(c.y).Tokens)
				} else {
					assert.Equal(t, 5.0, b.Status(c.y).Tokens)
					deposit(&b, c.y, 10)
					b.Refund(c.y, 1)
					assert.False(t, withdraw(&b, c.x))
					assert.Equal(t, 5, drawAll(t, &b, c.y))
				}
			})
		})
	}
}

func TestBudgetAsksKeyOnceForEachOperation(t *testing.T) {
	asked := 0
	b := retryhttp.TokenBucket{Key: func(*http.Request) string { asked++; return fmt.Sprint(asked) }}
	for i, op := range []func(*http.Request){
		b.Deposit,
		func(req *http.Request) { b.Refund(req, 1) },
		func(req *http.Request) { withdraw(&b, req) },
		func(req *http.Request) { b.Status(req) },
	} {
		op(requestTo("a"))
		require.Equal(t, i+1, asked)
	}
}

func TestBudgetRefundIsExactAndNeverOverfills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := retryhttp.TokenBucket{Burst: 3}
		req := requestTo("a")
		b.Refund(req, 1)
		assert.Equal(t, 3.0, b.Status(req).Tokens, "full as it was")
		for range 1000 {
			require.True(t, withdraw(&b, req))
			require.Equal(t, 2.0, b.Status(req).Tokens)
			b.Refund(req, 1)
			require.Equal(t, 3.0, b.Status(req).Tokens)
		}
		drawAll(t, &b, req)
		deposit(&b, req, 1)
		require.False(t, withdraw(&b, req))
		b.Refund(req, 1)
		assert.InDelta(t, 1.5, b.Status(req).Tokens, 1e-9, "beside what was earned")
	})
}

func TestBudgetRefundGoesToTheEarnedTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := retryhttp.TokenBucket{Burst: 1, Window: -1, MinPerSecond: 1}
		req := requestTo("a")
		require.Equal(t, 2, drawAll(t, &b, req))
		b.Refund(req, 1)
		assert.Equal(t, 1.0, b.Status(req).Tokens)
		time.Sleep(time.Minute)
		assert.Equal(t, 2.0, b.Status(req).Tokens, "MinPerSecond refills beside it")
		require.True(t, withdraw(&b, req))
		require.True(t, withdraw(&b, req))
		b.Refund(req, 1)
		b.Refund(req, 1)
		assert.Equal(t, 1.0, b.Status(req).Tokens, "there is room for one")
	})
}

func TestBudgetMinPerSecondKeepsItsRate(t *testing.T) {
	for _, perSecond := range []float64{0.01, 0.5, 1, 2.5, 10, 100} {
		t.Run(fmt.Sprint(perSecond), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := retryhttp.TokenBucket{Burst: -1, Ratio: -1, MinPerSecond: perSecond}
				req := requestTo("a")
				burst := max(1, int(math.Ceil(perSecond)))
				assert.Equal(t, burst, drawAll(t, &b, req))
				each := time.Duration(float64(time.Second) / perSecond)
				for range 50 {
					time.Sleep(each / 2)
					require.False(t, withdraw(&b, req))
					require.InDelta(t, 0.5, b.Status(req).Tokens, 1e-6)
					time.Sleep(each - each/2)
					require.Equal(t, 1, drawAll(t, &b, req))
				}
				time.Sleep(1000 * each)
				assert.Equal(t, burst, drawAll(t, &b, req), "it saves up no more than that")
			})
		})
	}
}

func TestBudgetAsksMinPerSecondLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := retryhttp.TokenBucket{Burst: 2, Window: -1, Ratio: -1, MinPerSecond: 3}
		req := requestTo("a")
		require.Equal(t, 5.0, b.Status(req).Tokens)
		require.True(t, withdraw(&b, req))
		require.True(t, withdraw(&b, req))
		time.Sleep(time.Minute)
		assert.Equal(t, 3.0, b.Status(req).Tokens, "the earned ones went first and do not come back")
	})
}

func TestBudgetRoomFollowsTheRecentRate(t *testing.T) {
	const n, ratio = 60, 0.5 // too few for a deposit to do the arithmetic
	for _, window := range []time.Duration{time.Second, 0, 10 * time.Second, time.Hour} {
		t.Run(window.String(), func(t *testing.T) {
			w := window
			if w == 0 {
				w = 20 * time.Second
			}
			tokensAre := func(t *testing.T, b *retryhttp.TokenBucket, want float64) {
				t.Helper()
				require.InDelta(t, want, b.Status(requestTo("a")).Tokens, 1e-8)
			}
			t.Run("an instant's successes decay", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := &retryhttp.TokenBucket{Ratio: ratio, Burst: -1, Window: window}
					deposit(b, requestTo("a"), n)
					tokensAre(t, b, ratio*n)
					for range 10 {
						time.Sleep(w / 2)
						tokensAre(t, b, b.Status(requestTo("a")).Tokens)
					}
					tokensAre(t, b, ratio*n*math.Exp(-5))
				})
			})
			t.Run("successes since the last look count as spread evenly", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := &retryhttp.TokenBucket{Ratio: ratio, Burst: -1, Window: window}
					deposit(b, requestTo("a"), n)
					time.Sleep(w / 2)
					tokensAre(t, b, ratio*n*(1-math.Exp(-0.5))/0.5)
					time.Sleep(w / 4)
					tokensAre(t, b, ratio*n*(1-math.Exp(-0.5))/0.5*math.Exp(-0.25))
				})
			})
			t.Run("a steady rate is approached with the window for its time constant", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := &retryhttp.TokenBucket{Ratio: ratio, Burst: -1, Window: window}
					tokensAre(t, b, 0)
					withdraw(b, requestTo("a")) // makes the bucket
					step, steps := w/100, 0
					for _, windows := range []int{1, 2, 5} {
						for ; steps < 100*windows; steps++ {
							time.Sleep(step)
							b.Deposit(requestTo("a"))
							b.Status(requestTo("a"))
						}
						tokensAre(t, b, ratio*100*(1-math.Exp(-float64(windows))))
					}
					time.Sleep(3 * w) // an outage
					tokensAre(t, b, ratio*100*(1-math.Exp(-5))*math.Exp(-3))
				})
			})
			t.Run("never less than Burst", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := &retryhttp.TokenBucket{Ratio: ratio, Burst: 7, Window: window}
					deposit(b, requestTo("a"), n)
					tokensAre(t, b, ratio*n)
					time.Sleep(20 * w)
					tokensAre(t, b, 7)
				})
			})
		})
	}
}

// Even if nothing withdraws or reads Tokens, the rate is the mean over the last
// Window, not over the bucket's life.
func TestBudgetOfABusyClientFollowsTheLastWindow(t *testing.T) {
	for name, c := range map[string]struct{ before, now int }{ // successes per second
		"slowed down": {500, 100},
		"sped up":     {20, 500},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b retryhttp.TokenBucket
				req := requestTo("a")
				for range 600 {
					deposit(&b, req, c.before)
					time.Sleep(time.Second)
				}
				for range 120 {
					deposit(&b, req, c.now)
					time.Sleep(time.Second)
				}
				// Successes come once a second in one burst, so up to 64 of them and a
				// second's decay are in doubt.
				assert.InEpsilon(t, 0.1*20*float64(c.now), b.Status(req).Tokens, 0.1)
			})
		})
	}
}

func TestBudgetGrantsWhatWasEarnedAndNoMoreFromManyGoroutines(t *testing.T) {
	// Room for all that is earned, so that every token must be accounted for.
	const burst, workers, successes, ratio = 5000, 8, 2000, 0.1
	b := retryhttp.TokenBucket{Burst: burst, Ratio: ratio, Window: -1}
	warm := requestTo("a")
	granted := int64(drawAll(t, &b, warm))
	require.EqualValues(t, burst, granted)

	var net atomic.Int64 // granted and not refunded
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(worker), 1))
			req := requestTo("a")
			for range successes {
				b.Deposit(req)
				for range 3 {
					if !withdraw(&b, req) {
						continue
					}
					if rng.IntN(3) == 0 {
						b.Refund(req, 1)
					} else {
						net.Add(1)
					}
				}
				if rng.IntN(16) == 0 {
					tokens := b.Status(req).Tokens
					if tokens < 0 || tokens > burst {
						assert.Failf(t, "out of bounds", "%v tokens", tokens)
					}
				}
			}
		})
	}
	wg.Wait()
	total := net.Load() + int64(drawAll(t, &b, warm))
	assert.EqualValues(t, workers*successes/10, total)
}

func TestBudgetDepositAllocatesNothing(t *testing.T) {
	for name, b := range map[string]*retryhttp.TokenBucket{
		"default":        {},
		"MinPerSecond":   {MinPerSecond: 10},
		"without window": {Window: -1},
		"custom key":     {Key: func(req *http.Request) string { return req.URL.Path }},
	} {
		t.Run(name, func(t *testing.T) {
			req := requestTo("a")
			b.Deposit(req)
			assert.Zero(t, testing.AllocsPerRun(1000, func() { b.Deposit(req) }))
		})
	}
}

func TestBudgetSharedByTransportsBoundsTheirSum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script.New(script.Status(http.StatusServiceUnavailable))
		shared := &retryhttp.TokenBucket{Burst: 7}
		transports := []*retryhttp.Transport{
			retryhttp.New(base, retryhttp.Policy{Budget: shared}),
			retryhttp.New(base, retryhttp.Policy{Budget: shared}),
		}
		const calls = 10
		for i := range calls {
			req, err := http.NewRequest("GET", "http://example.test/", nil)
			require.NoError(t, err)
			resp, err := transports[i%2].RoundTrip(req)
			require.NoError(t, err)
			if i == calls-1 {
				assert.Equal(t, retryhttp.StopBudget, retryhttp.OutcomeOf(resp).Stop)
			}
		}
		assert.Len(t, base.Requests(), calls+7)
	})
}

func TestBudgetIsAskedLastAndOnceForEachRetry(t *testing.T) {
	cases := []struct {
		name      string
		steps     []script.Step
		policy    retryhttp.Policy
		withdrawn int
		deposits  int
	}{
		{"first-attempt success", []script.Step{script.Status(200)}, retryhttp.Policy{}, 0, 1},
		{"a final 404 is a success", []script.Step{script.Status(404)}, retryhttp.Policy{}, 0, 1},
		{"two retries", []script.Step{script.Status(503), script.Status(503), script.Status(200)}, retryhttp.Policy{}, 2, 1},
		{"attempts run out", []script.Step{script.Status(503)}, retryhttp.Policy{MaxAttempts: 3}, 2, 0},
		{"a deadline withdraws nothing", []script.Step{script.Status(503)}, retryhttp.Policy{MaxElapsed: 1}, 0, 0},
		{
			"a long Retry-After withdraws nothing", []script.Step{script.Status(503, "Retry-After", "999")},
			retryhttp.Policy{}, 0, 0,
		},
		{
			"a final error deposits nothing", []script.Step{script.Fail(retryhttp.Permanent(errBroken))},
			retryhttp.Policy{}, 0, 0,
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				budget := &countingBudget{}
				tc.policy.Budget = budget
				tc.policy.Backoff = retryhttp.Constant(time.Second)
				resp, err := retryhttp.New(script.New(tc.steps...), tc.policy).RoundTrip(get(t, t.Context()))
				if err == nil {
					require.NoError(t, resp.Body.Close())
				}
				assert.Equal(t, tc.withdrawn, budget.withdrawn)
				assert.Equal(t, tc.deposits, budget.deposit)
				assert.Zero(t, budget.refunded)
			})
		})
	}
}

type refundPanics struct{ retryhttp.Unlimited }

func (refundPanics) Refund(*http.Request, float64) { panic(http.ErrAbortHandler) }

func TestBudgetRefundThatPanicsClosesTheNextBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := &bodies.Tracked{Reader: strings.NewReader("x")}
		ctx, cancel := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, "PUT", "http://server/", strings.NewReader("x"))
		req.GetBody = func() (io.ReadCloser, error) { return next, nil }
		p := retryhttp.Policy{Budget: refundPanics{}, OnRetry: func(retryhttp.Attempt) { cancel() }}
		assert.Panics(t, func() { retryhttp.New(script.New(script.Status(503)), p).RoundTrip(req) })
		assert.Equal(t, int32(1), next.Closes.Load())
	})
}

// drawAll withdraws for req until b refuses, and returns how often b did not.
func drawAll(t *testing.T, b *retryhttp.TokenBucket, req *http.Request) int {
	t.Helper()
	for n := 0; ; n++ {
		if !withdraw(b, req) {
			return n
		}
		require.Less(t, n, 1_000_000, "it never refuses")
	}
}

func deposit(b *retryhttp.TokenBucket, req *http.Request, times int) {
	for range times {
		b.Deposit(req)
	}
}

// refuses is a Policy whose Budget grants nothing, and whose retries wait for 100 ms.
func refuses(t *testing.T) retryhttp.Policy {
	return retryhttp.Policy{
		Budget:  &retryhttp.TokenBucket{Ratio: -1, Burst: -1},
		Backoff: retryhttp.Constant(100 * ms),
		OnRetry: func(retryhttp.Attempt) { t.Error("no retry is sent") },
	}
}

func TestRefusedRequestEndsAfterItsBackoff(t *testing.T) {
	for name, c := range map[string]struct {
		step   script.Step
		status int // 0: an error
	}{
		"a response":                   {script.Status(503), 503},
		"a response that names a wait": {script.Status(503, "Retry-After", "30"), 503},
		"an invitation":                {script.Status(429, "Retry-After", "30"), 429},
		"an error":                     {script.Fail(errBroken), 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				resp, err := retryhttp.New(script.New(c.step), refuses(t)).RoundTrip(get(t, t.Context()))
				assert.Equal(t, 100*ms, time.Since(start))
				want := retryhttp.Outcome{Attempts: 1, Elapsed: 100 * ms, Waited: 100 * ms, Stop: retryhttp.StopBudget}
				if c.status == 0 {
					require.ErrorIs(t, err, errBroken)
					assert.Equal(t, want, errorOf(t, err).Outcome)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, c.status, resp.StatusCode)
				assert.Equal(t, want, retryhttp.OutcomeOf(resp))
			})
		})
	}
}

// A short response is read before the wait, which gives its connection back to the pool.
func TestRefusedRequestHoldsNoConnectionWhileItWaits(t *testing.T) {
	for size, read := range map[int]time.Duration{100: 0, 16 << 10: 0, 16<<10 + 1: 100 * ms} {
		synctest.Test(t, func(t *testing.T) {
			var ended time.Duration
			start := time.Now()
			body := &atEnd{strings.NewReader(strings.Repeat("x", size)), func() { ended = time.Since(start) }}
			resp, err := retryhttp.New(script.New(script.Respond(503, body)), refuses(t)).RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
			assert.Equal(t, 100*ms, time.Since(start))
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Len(t, got, size)
			assert.Equal(t, read, ended, "%d bytes", size)
			assert.NoError(t, resp.Body.Close())
		})
	}
}

// atEnd is a body that calls a function at its end.
type atEnd struct {
	io.Reader
	call func()
}

func (b *atEnd) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		b.call()
	}
	return n, err
}

func (b *atEnd) Close() error { return nil }

// A response in hand is the caller's, though the caller has gone.
func TestRefusedRequestEndsWithItsContext(t *testing.T) {
	for name, step := range map[string]script.Step{"a response": script.Status(503), "an error": script.Fail(errBroken)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(30*ms, cancel)
				start := time.Now()
				resp, err := retryhttp.New(script.New(step), refuses(t)).RoundTrip(get(t, ctx))
				assert.Equal(t, 30*ms, time.Since(start))
				if name == "an error" {
					assert.Equal(t, retryhttp.StopCanceled, errorOf(t, err).Stop)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, retryhttp.StopCanceled, retryhttp.OutcomeOf(resp).Stop)
			})
		})
	}
}

// sender returns a function that sends a request to the host "a", to be answered with a status.
func sender(t *testing.T, p retryhttp.Policy) func(method string, status int) {
	rt := retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
		code, err := strconv.Atoi(req.URL.Path[1:])
		assert.NoError(t, err)
		return script.Response(req, code), nil
	}), p)
	return func(method string, status int) {
		req, err := http.NewRequestWithContext(t.Context(), method, fmt.Sprint("http://a/", status), nil)
		require.NoError(t, err)
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
}

// A client of requests that cannot be repeated would otherwise never see an overload.
func TestFailuresThatNoRetryFollowsMakeAServerPoor(t *testing.T) {
	for name, c := range map[string]struct {
		policy retryhttp.Policy
		method string
		earned float64 // by ten successes
	}{
		"not idempotent":        {retryhttp.Policy{}, "POST", 1},
		"no time for a retry":   {retryhttp.Policy{MaxElapsed: ms, Backoff: retryhttp.Constant(time.Second)}, "GET", 1},
		"MaxAttempts were made": {retryhttp.Policy{MaxAttempts: 1}, "GET", 5},
		"Final":                 {retryhttp.Policy{Classify: always(retryhttp.Final)}, "POST", 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, req := &retryhttp.TokenBucket{Burst: 20, Window: -1}, requestTo("a")
				c.policy.Budget = b
				send := sender(t, c.policy)
				for range 100 {
					send(c.method, 503)
					send(c.method, 503)
					send(c.method, 200)
					time.Sleep(100 * ms)
				}
				assert.InDelta(t, c.earned, earned(t, b, req), 1e-9)
			})
		})
	}
}

// While the Gate has a host down, its failures say nothing about the time after the outage. But an
// overload may look like an outage, so the host is on trial after it.
func TestFailuresOfAnOutageMakeNoServerPoor(t *testing.T) {
	for name, c := range map[string]struct {
		gate    *retryhttp.Gate
		outage  float64 // earned by ten successes after the outage
		failing float64 // likewise, when nearly half has failed for a while
	}{
		"with a Gate":    {new(retryhttp.Gate), 5, 1},
		"without a Gate": {&retryhttp.Gate{Hold: -1}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, req := &retryhttp.TokenBucket{Burst: 20, Window: -1}, requestTo("a")
				send := sender(t, retryhttp.Policy{Budget: b, Gate: c.gate})
				results := func(tenths, failures, successes int) float64 {
					for range tenths {
						for range failures {
							send("POST", 503)
						}
						for range successes {
							send("POST", 200)
						}
						time.Sleep(100 * ms)
					}
					return earned(t, b, req)
				}
				require.InDelta(t, 5, results(20, 0, 20), 1e-9)
				assert.InDelta(t, c.outage, results(40, 20, 0), 1e-9, "an outage")
				assert.InDelta(t, c.failing, results(30, 9, 11), 1e-9, "nearly half fails")
			})
		})
	}
}
