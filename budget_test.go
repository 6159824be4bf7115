package retryhttp_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
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

// testdata/conformance/budget.json and FuzzBudget have the rules of one bucket. Here are their promises, and
// what the two cannot express.

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
	withoutURL := &http.Request{Header: http.Header{"Tenant": {"x"}}}
	for name, c := range map[string]struct {
		key    func(*http.Request) string
		x, y   *http.Request
		shared bool
	}{
		"another host":            {nil, requestTo("a"), requestTo("b"), false},
		"another scheme and path": {nil, requestTo("a"), otherPath, true},
		"another Host header":     {nil, requestTo("a"), otherHostHeader, true},
		"no URL":                  {nil, withoutURL, requestTo("a"), false},
		"custom key, same host":   {byTenant, tenant("a", "x"), tenant("a", "y"), false},
		"custom key, other host":  {byTenant, tenant("a", "x"), tenant("b", "x"), true},
		"custom key, no URL":      {byTenant, withoutURL, tenant("a", "x"), false},
	} {
		t.Run(name, func(t *testing.T) {
			b := retryhttp.TokenBucket{Key: c.key}
			require.Equal(t, 5, drawAll(t, &b, c.x))
			assert.Equal(t, c.shared, b.Status(c.y).Tokens == 0)
			deposit(&b, c.y, 2)
			assert.Equal(t, c.shared, withdraw(&b, c.x), "y has a success")
			b.Refund(c.y, 1)
			assert.Equal(t, c.shared, withdraw(&b, c.x), "y has a refund")
		})
	}
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

// An infinite cost says that there is no use in waiting.
func TestBudgetRefusesForEverIfItCanEarnNothing(t *testing.T) {
	for b, forEver := range map[*retryhttp.TokenBucket]bool{
		{Ratio: -1}:                             true,
		{Burst: -1, Window: -1}:                 true,
		{Burst: 1, Window: -1}:                  false,
		{Burst: -1}:                             false,
		{Ratio: -1, Burst: -1, MinPerSecond: 1}: false,
	} {
		req := requestTo("a")
		drawAll(t, b, req)
		cost, ok := b.Withdraw(retryhttp.Retry{Request: req})
		assert.False(t, ok)
		assert.Equal(t, forEver, math.IsInf(cost, 1), "Burst %d", b.Burst)
	}
}

func TestBudgetGrantsWhatWasEarnedAndNoMoreFromManyGoroutines(t *testing.T) {
	// Room for all that is earned, so that every token must be accounted for.
	const burst, workers, successes, ratio = 5000, 8, 2000, 0.1
	b := retryhttp.TokenBucket{Burst: burst, Ratio: ratio, Window: -1}
	req := requestTo("a")
	require.Equal(t, burst, drawAll(t, &b, req))

	var net atomic.Int64 // granted and not refunded
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(worker), 1))
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
					assert.True(t, 0 <= tokens && tokens <= burst, "%v tokens", tokens)
				}
			}
		})
	}
	wg.Wait()
	total := net.Load() + int64(drawAll(t, &b, req))
	assert.EqualValues(t, workers*successes/10, total)
}

// maxBuckets is how many a TokenBucket keeps.
const maxBuckets = 4096

func host(i int) *http.Request { return requestTo(fmt.Sprint("host-", i)) }

// A sender of webhooks meets ever more hosts that are dead.
func TestBudgetRetriesAfterAnyNumberOfDeadHosts(t *testing.T) {
	inBubbles(t, map[string]*retryhttp.TokenBucket{
		"default":        {},
		"MinPerSecond":   {MinPerSecond: 1},
		"without window": {Window: -1},
	}, func(t *testing.T, b *retryhttp.TokenBucket) {
		fresh := b.Status(requestTo("new")).Tokens
		for i := range 3 * maxBuckets {
			require.Equal(t, fresh, b.Status(host(i)).Tokens)
			drawAll(t, b, host(i))
			time.Sleep(10 * time.Millisecond) // 41 s for all that are kept
		}
	})
}

// One attempt in a hundred fails at hosts that answer. The other hosts are dead. There are more hosts than a
// TokenBucket keeps. The buckets of hosts that answer are as good as new, and make room.
func TestBudgetRetriesForHostsThatAnswerBesideManyThatAreDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const dead, alive = 2500, 2500
		var b retryhttp.TokenBucket
		rng := rand.New(rand.NewPCG(1, 2))
		asked, refused := 0, 0
		for second := range 60 {
			for _, i := range rng.Perm(dead + alive) {
				time.Sleep(time.Second / (dead + alive))
				switch {
				case i < dead:
					withdraw(&b, host(i))
				case rng.IntN(100) > 0:
					b.Deposit(host(i))
				case second >= 20:
					if asked++; !withdraw(&b, host(i)) {
						refused++
					}
				}
			}
		}
		assert.Greater(t, asked, 500)
		assert.LessOrEqual(t, refused, asked/100)
	})
}

func TestBudgetDiesOutInAnOutageOfMoreHostsThanItKeeps(t *testing.T) {
	inBubbles(t, map[string]*retryhttp.TokenBucket{
		"default":        {},
		"MinPerSecond":   {MinPerSecond: 0.001},
		"without window": {Window: -1},
	}, func(t *testing.T, b *retryhttp.TokenBucket) {
		fresh := int(b.Status(requestTo("new")).Tokens)
		granted := 0
		for range 4 {
			for i := range 2 * maxBuckets {
				tokens := int(b.Status(host(i)).Tokens)
				require.Equal(t, tokens, drawAll(t, b, host(i)), "what Tokens reports is granted")
				granted += tokens
			}
			time.Sleep(3 * time.Second)
		}
		require.Equal(t, maxBuckets*fresh, granted, "no more than the buckets held at the start")
	})
}

// In an outage of more hosts than there are buckets, no host may earn more than it would alone.
func TestBudgetThatEarnedRatioIsPassedOnSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b retryhttp.TokenBucket
		for range 8 {
			for i := range maxBuckets {
				for range 8 {
					countFailure(&b, host(i), failedWith(503))
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		require.True(t, b.Status(host(1)).Sparing)
		assert.Equal(t, 5.0, b.Status(host(1)).Tokens, "a failure that no retry follows costs nothing")
		withdraw(&b, host(maxBuckets))
		assert.True(t, b.Status(host(maxBuckets)).Sparing)
	})
}

func failedWith(status int) retryhttp.Attempt {
	return retryhttp.Attempt{Response: &http.Response{StatusCode: status}}
}

// roomy is a bucket for ten tokens that successes earn.
func roomy() *retryhttp.TokenBucket { return &retryhttp.TokenBucket{Burst: 20, Window: -1} }

// requireEarns requires what the next ten successes of the host a earn.
func requireEarns(t *testing.T, b *retryhttp.TokenBucket, want float64, when string) {
	t.Helper()
	req := requestTo("a")
	drawAll(t, b, req)
	before := b.Status(req).Tokens
	deposit(b, req, 10)
	require.InDelta(t, want, b.Status(req).Tokens-before, 1e-9, when)
}

// A retry that waits as it is asked costs a third, whatever becomes of the body.
func TestRetryAfterA429CostsWhatItsWaitIsWorth(t *testing.T) {
	type testCase struct {
		policy retryhttp.Policy
		left   float64 // of five tokens, after three retries
	}
	inBubbles(t, map[string]testCase{
		"it waits, and its body has broken off": {retryhttp.Policy{BufferBytes: 1 << 10}, 4},
		"it does not wait":                      {retryhttp.Policy{MaxRetryAfter: -1}, 2},
	}, func(t *testing.T, c testCase) {
		b := new(retryhttp.TokenBucket)
		c.policy.Budget, c.policy.MaxAttempts = b, 4
		base := script.New(func(r *http.Request) (*http.Response, error) {
			resp := script.Response(r, 429, "Retry-After", "1")
			resp.Body = &bodies.Hooked{OnRead: func([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }}
			return resp, nil
		})
		if resp, err := retryhttp.New(base, c.policy).RoundTrip(requestTo("host")); err == nil {
			require.NoError(t, resp.Body.Close())
		}
		require.Len(t, base.Requests(), 4)
		assert.InDelta(t, c.left, b.Status(requestTo("host")).Tokens, 1e-9)
	})
}

// The tests that follow are about a Budget in a call.

func TestBudgetSharedByTransportsBoundsTheirSum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script.New(script.Status(503))
		shared := retryhttp.Policy{Budget: &retryhttp.TokenBucket{Burst: 7}}
		for range 5 {
			for _, rt := range []*retryhttp.Transport{retryhttp.New(base, shared), retryhttp.New(base, shared)} {
				answerTo(t, rt, get(t, t.Context()))
			}
		}
		assert.Len(t, base.Requests(), 10+7)
	})
}

func TestBudgetIsAskedLastAndOnceForEachRetry(t *testing.T) {
	fails := script.Status(503)
	type testCase struct {
		steps               []script.Step
		policy              retryhttp.Policy
		withdrawn, deposits int
	}
	inBubbles(t, map[string]testCase{
		"success at once":         {[]script.Step{script.Status(200)}, retryhttp.Policy{}, 0, 1},
		"a final 404 is one":      {[]script.Step{script.Status(404)}, retryhttp.Policy{}, 0, 1},
		"two retries":             {[]script.Step{fails, fails, script.Status(200)}, retryhttp.Policy{}, 2, 1},
		"attempts run out":        {[]script.Step{fails}, retryhttp.Policy{MaxAttempts: 3}, 2, 0},
		"no time for a retry":     {[]script.Step{fails}, retryhttp.Policy{MaxElapsed: 1}, 0, 0},
		"Retry-After is too long": {[]script.Step{script.Status(503, "Retry-After", "999")}, retryhttp.Policy{}, 0, 0},
		"final error":             {[]script.Step{script.Fail(retryhttp.Permanent(errBroken))}, retryhttp.Policy{}, 0, 0},
	}, func(t *testing.T, c testCase) {
		budget := &countingBudget{}
		c.policy.Budget, c.policy.Backoff = budget, retryhttp.Constant(time.Second)
		resp, err := retryhttp.New(script.New(c.steps...), c.policy).RoundTrip(get(t, t.Context()))
		if err == nil {
			require.NoError(t, resp.Body.Close())
		}
		assert.Equal(t, c.withdrawn, budget.withdrawn)
		assert.Equal(t, c.deposits, budget.deposit)
		assert.Zero(t, budget.refunded)
	})
}

type refundPanics struct{ retryhttp.Unlimited }

func (refundPanics) Refund(*http.Request, float64) { panic(http.ErrAbortHandler) }

// refuses is a Policy whose Budget grants nothing, and whose retries wait for 100 ms.
func refuses(t *testing.T) retryhttp.Policy {
	return retryhttp.Policy{
		Budget:  &retryhttp.TokenBucket{Ratio: -1, Burst: -1},
		Backoff: retryhttp.Constant(100 * ms),
		OnRetry: func(retryhttp.Attempt) { t.Error("no retry is sent") },
	}
}

// A response in hand is the caller's, though the caller has gone.
func TestRefusedRequestEndsAfterItsBackoffOrWithItsContext(t *testing.T) {
	type refusal struct {
		step   script.Step
		status int // 0: an error
	}
	for stop, after := range map[retryhttp.Stop]time.Duration{
		retryhttp.StopBudget: 100 * ms, retryhttp.StopCanceled: 30 * ms,
	} {
		inBubbles(t, map[string]refusal{
			"a response":                   {script.Status(503), 503},
			"a response that names a wait": {script.Status(503, "Retry-After", "30"), 503},
			"an invitation":                {script.Status(429, "Retry-After", "30"), 429},
			"an error":                     {script.Fail(errBroken), 0},
		}, func(t *testing.T, c refusal) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if stop == retryhttp.StopCanceled {
				time.AfterFunc(after, cancel)
			}
			start := time.Now()
			resp, err := retryhttp.New(script.New(c.step), refuses(t)).RoundTrip(get(t, ctx))
			assert.Equal(t, after, time.Since(start))
			want := retryhttp.Outcome{Attempts: 1, Elapsed: after, Waited: after, Stop: stop}
			if c.status == 0 {
				require.ErrorIs(t, err, errBroken)
				assert.Equal(t, want, errorOf(t, err).Outcome)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.status, resp.StatusCode)
			assert.Equal(t, want, retryhttp.OutcomeOf(resp))
		})
	}
}

// A short response is read before the wait, which gives its connection back to the pool.
func TestRefusedRequestHoldsNoConnectionWhileItWaits(t *testing.T) {
	for size, read := range map[int]time.Duration{100: 0, 16 << 10: 0, 16<<10 + 1: 100 * ms} {
		synctest.Test(t, func(t *testing.T) {
			var ended time.Duration
			start, content := time.Now(), strings.NewReader(strings.Repeat("x", size))
			body := &bodies.Hooked{OnRead: func(p []byte) (int, error) {
				n, err := content.Read(p)
				if err == io.EOF {
					ended = time.Since(start)
				}
				return n, err
			}}
			resp := opened(t, script.New(script.Respond(503, body)), refuses(t))
			assert.Equal(t, 100*ms, time.Since(start))
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Len(t, got, size)
			assert.Equal(t, read, ended, "%d bytes", size)
			assert.NoError(t, resp.Body.Close())
		})
	}
}

// sender returns a function that sends a request to the host "a", whose attempts are answered with a status, or
// fail with an error if that is 0.
func sender(t *testing.T, p retryhttp.Policy) func(method string, status int) {
	var answer int
	rt := retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
		if answer == 0 {
			return nil, errBroken
		}
		return script.Response(req, answer), nil
	}), p)
	return func(method string, status int) {
		req := requestTo("a")
		req.Method, answer = method, status
		resp, err := rt.RoundTrip(req)
		require.Equal(t, status == 0, err != nil)
		if err == nil {
			require.NoError(t, resp.Body.Close())
		}
	}
}

// A client of requests that cannot be repeated would otherwise never see an overload.
func TestFailuresThatNoRetryFollowsMakeAServerPoor(t *testing.T) {
	type testCase struct {
		policy retryhttp.Policy
		method string
		earned float64 // by ten successes
	}
	inBubbles(t, map[string]testCase{
		"not idempotent":        {retryhttp.Policy{}, "POST", 1},
		"no time for a retry":   {retryhttp.Policy{MaxElapsed: ms, Backoff: retryhttp.Constant(time.Second)}, "GET", 1},
		"MaxAttempts were made": {retryhttp.Policy{MaxAttempts: 1}, "GET", 5},
		"Final":                 {retryhttp.Policy{Classify: always(retryhttp.Final)}, "POST", 5},
	}, func(t *testing.T, c testCase) {
		b := roomy()
		c.policy.Budget = b
		send := sender(t, c.policy)
		for range 100 {
			send(c.method, 503)
			send(c.method, 503)
			send(c.method, 200)
			time.Sleep(100 * ms)
		}
		requireEarns(t, b, c.earned, "")
	})
}

// While the Gate has a host down, its failures say nothing about the time after the outage. But an
// overload may look like an outage, so the host is on trial after it.
func TestFailuresOfAnOutageMakeNoServerPoor(t *testing.T) {
	type testCase struct {
		gate    *retryhttp.Gate
		failure int
		outage  float64 // earned by ten successes after the outage
		failing float64 // likewise, when nearly half has failed for a while
	}
	inBubbles(t, map[string]testCase{
		"with a Gate":            {new(retryhttp.Gate), 503, 5, 1},
		"with a Gate and errors": {new(retryhttp.Gate), 0, 5, 1},
		"without a Gate":         {&retryhttp.Gate{Hold: -1}, 503, 1, 1},
	}, func(t *testing.T, c testCase) {
		b := roomy()
		send := sender(t, retryhttp.Policy{Budget: b, Gate: c.gate})
		results := func(tenths, failures int) { // of twenty
			for range tenths {
				for i := range 20 {
					status := 200
					if i < failures {
						status = c.failure
					}
					send("POST", status)
				}
				time.Sleep(100 * ms)
			}
		}
		results(20, 0)
		requireEarns(t, b, 5, "well")
		results(40, 20)
		requireEarns(t, b, c.outage, "an outage")
		results(30, 9)
		requireEarns(t, b, c.failing, "nearly half fails")
	})
}

// counted is a Budget that counts the retries of another one, as a program would for its metrics.
type counted struct {
	retryhttp.Budget
	granted, refunded, failures atomic.Int64
}

func (c *counted) Withdraw(r retryhttp.Retry) (cost float64, ok bool) {
	cost, ok = c.Budget.Withdraw(r)
	if r.Stop != "" {
		c.failures.Add(1)
	}
	if ok {
		c.granted.Add(1)
	}
	return cost, ok
}

func (c *counted) Refund(req *http.Request, cost float64) {
	c.refunded.Add(1)
	c.Budget.Refund(req, cost)
}

// A Budget that does not know of Stop takes a token for a failure that no retry follows.
func TestBudgetGetsBackAtOnceWhatNoRetryFollows(t *testing.T) {
	for method, stop := range map[string]retryhttp.Stop{"POST": retryhttp.StopNotIdempotent, "PUT": retryhttp.StopBody} {
		synctest.Test(t, func(t *testing.T) {
			around := &counted{Budget: retryhttp.Unlimited{}}
			req := requestOf(t, method, strings.NewReader("x"))
			req.GetBody = func() (io.ReadCloser, error) { return nil, errBroken }
			resp, err := retryhttp.New(script.New(script.Status(503)), retryhttp.Policy{Budget: around}).RoundTrip(req)
			require.NoError(t, err)
			assert.Equal(t, stop, retryhttp.OutcomeOf(resp).Stop)
			assert.EqualValues(t, 1, around.granted.Load())
			assert.EqualValues(t, 1, around.refunded.Load())
			assert.Equal(t, stop == retryhttp.StopNotIdempotent, around.failures.Load() == 1, "else its retry counts it")
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
