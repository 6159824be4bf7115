package retryhttp_test

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
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

// testdata/conformance/budget.json and FuzzBudget have the rules of one bucket. Here are their promises, and
// what the two cannot express.

func TestBudgetEarnsExactlyItsRatio(t *testing.T) {
	for _, c := range []struct {
		ratio              float64
		successes, retries int
	}{
		{0, 10, 5},
		{0.1, 10, 1},
		{1.0 / 3, 3, 1},
		{0.7, 10, 7},
		{0.01, 100, 1},
		{2, 1, 2},
		{-1, 100, 0},
		{math.NaN(), 100, 0},
		{math.SmallestNonzeroFloat64, 100, 0},
	} {
		t.Run(fmt.Sprint(c.ratio), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := retryhttp.TokenBucket{Ratio: c.ratio, Burst: 10, Window: -1}
				req := requestTo("a")
				require.Equal(t, 10, drawAll(t, &b, req))
				granted := 0
				for i := range 30 * c.successes {
					b.Deposit(req)
					granted += drawAll(t, &b, req)
					require.Equal(t, (i+1)*c.retries/c.successes, granted, "after %d", i+1)
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

// Even if nothing withdraws or reads Tokens, the rate is the mean over the last Window, not over the bucket's life.
func TestBudgetOfABusyClientFollowsTheLastWindow(t *testing.T) {
	for _, perSecond := range [][2]int{{500, 100}, {20, 500}} { // before and now
		synctest.Test(t, func(t *testing.T) {
			var b retryhttp.TokenBucket
			for i, seconds := range []int{600, 120} {
				for range seconds {
					deposit(&b, requestTo("a"), perSecond[i])
					time.Sleep(time.Second)
				}
			}
			// Successes come once a second in one burst, so up to 64 of them and a
			// second's decay are in doubt.
			assert.InEpsilon(t, 0.1*20*float64(perSecond[1]), b.Status(requestTo("a")).Tokens, 0.1)
		})
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

func TestBudgetEvictsTheBucketUnusedForLongest(t *testing.T) {
	inBubbles(t, map[string]func(*retryhttp.TokenBucket, *http.Request){
		"Withdraw": func(b *retryhttp.TokenBucket, req *http.Request) { withdraw(b, req) },
		"Refund":   func(b *retryhttp.TokenBucket, req *http.Request) { b.Refund(req, 1) },
		"Deposit":  func(b *retryhttp.TokenBucket, req *http.Request) { b.Deposit(req) },
	}, func(t *testing.T, use func(*retryhttp.TokenBucket, *http.Request)) {
		var b retryhttp.TokenBucket
		for i := range maxBuckets {
			drawAll(t, &b, host(i))
			time.Sleep(time.Millisecond)
		}
		for i := range 100 { // the oldest are in use again
			use(&b, host(i))
		}
		time.Sleep(time.Minute)
		for i := range maxBuckets - 100 {
			require.True(t, withdraw(&b, requestTo(fmt.Sprint("new-", i))))
		}
		time.Sleep(time.Minute) // else a new bucket would inherit the tokens of the next to go
		for i := range maxBuckets {
			require.Equal(t, i >= 100, b.Status(host(i)).Tokens == 5)
		}
	})
}

// A success does not pay for its retry, and rare requests would use up the burst.
func TestBucketThatHasEarnedAndRestsHasAToken(t *testing.T) {
	type testCase struct {
		bucket *retryhttp.TokenBucket
		rests  time.Duration
		earns  bool
		want   float64
	}
	inBubbles(t, map[string]testCase{
		"a rest":              {&retryhttp.TokenBucket{}, 20*time.Second + 1, true, 1},
		"too short a rest":    {&retryhttp.TokenBucket{}, 20 * time.Second, true, 0.5},
		"no success":          {&retryhttp.TokenBucket{}, time.Hour, false, 0},
		"a Window of its own": {&retryhttp.TokenBucket{Window: time.Second}, time.Second + 1, true, 1},
		"a Ratio of its own":  {&retryhttp.TokenBucket{Ratio: 0.5}, time.Hour, true, 0.5},
		"no burst":            {&retryhttp.TokenBucket{Burst: -1}, time.Hour, true, 0},
	}, func(t *testing.T, c testCase) {
		req := requestTo("host")
		c.bucket.Deposit(req) // before the retries, so it does not count
		drawAll(t, c.bucket, req)
		if c.earns {
			c.bucket.Deposit(req)
		}
		assert.Less(t, c.bucket.Status(req).Tokens, 1.0, "a gauge changes nothing")
		time.Sleep(c.rests)
		assert.Equal(t, c.want, c.bucket.Status(req).Tokens)
		assert.Equal(t, c.want >= 1, withdraw(c.bucket, req))
	})
}

func TestBudgetLeavesNothingWhenUnusedForLongerThanItsWindow(t *testing.T) {
	for idle, want := range map[time.Duration]float64{20 * time.Second: 0.5, 20*time.Second + 1: 5} {
		synctest.Test(t, func(t *testing.T) {
			var b retryhttp.TokenBucket
			for i := range maxBuckets {
				drawAll(t, &b, host(i))
			}
			time.Sleep(idle)
			for i := range maxBuckets {
				b.Deposit(host(i)) // which earns a half, and does not count as use
			}
			assert.Equal(t, want, b.Status(requestTo("new")).Tokens)
		})
	}
}

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

// tenths are tenths of a second in which so many of a hundred results of the host a are failures.
func tenths(b *retryhttp.TokenBucket, n, failures int, failed retryhttp.Attempt) {
	req := requestTo("a")
	for range n {
		for range failures {
			countFailure(b, req, failed)
		}
		deposit(b, req, 100-failures)
		time.Sleep(100 * time.Millisecond)
		b.Status(req) // weighs them
	}
}

func TestBudgetEarnsMostWhileMostResultsAreSuccesses(t *testing.T) {
	type testCase struct {
		failures int
		attempt  retryhttp.Attempt
		earned   float64 // by ten successes
	}
	inBubbles(t, map[string]testCase{
		"a third fails":         {33, failedWith(503), 5},
		"two thirds fail":       {67, failedWith(503), 1},
		"two thirds are errors": {67, retryhttp.Attempt{Err: errBroken}, 1},
		"two thirds are 429":    {67, failedWith(429), 5},
		"two thirds are 408":    {67, failedWith(408), 5},
		"429 that broke off":    {67, retryhttp.Attempt{Response: failedWith(429).Response, Err: errBroken}, 5},
	}, func(t *testing.T, c testCase) {
		b := roomy()
		tenths(b, 100, c.failures, c.attempt)
		requireEarns(t, b, c.earned, "")
	})
}

// If a server gets worse soon after it has become well, the retries may be the cause: a success earns
// less for twenty seconds.
func TestBudgetEarnsLessForAWhileWhenAServerGetsWorseAgain(t *testing.T) {
	type testCase struct {
		after   time.Duration // from the time at which the server is well
		failing int           // of a hundred results, in the rest
		rested  float64       // earned by ten successes, when nearly half fail
		later   float64       // likewise, some seconds after the rest
	}
	inBubbles(t, map[string]testCase{
		"soon":                               {0, 0, 1, 1},
		"soon, and it is partly broken":      {0, 35, 1, 5},
		"in the trial":                       {58 * time.Second, 0, 1, 1},
		"after the trial":                    {59 * time.Second, 0, 5, 5},
		"after the trial, and partly broken": {59 * time.Second, 35, 5, 5},
	}, func(t *testing.T, c testCase) {
		b := roomy()
		tenths(b, 20, 100, failedWith(503))
		requireEarns(t, b, 1, "poor")
		tenths(b, 5, 0, failedWith(503))
		requireEarns(t, b, 1, "not yet well")
		tenths(b, 5, 0, failedWith(503))
		requireEarns(t, b, 5, "well")
		time.Sleep(c.after)

		tenths(b, 20, 45, failedWith(503))
		requireEarns(t, b, c.rested, "worse")
		tenths(b, 184, c.failing, failedWith(503))
		requireEarns(t, b, c.rested, "before the end of the rest")
		tenths(b, 16, c.failing, failedWith(503))
		requireEarns(t, b, 5, "after the rest")
		tenths(b, 30, 45, failedWith(503))
		requireEarns(t, b, c.later, "worse again")
	})
}

// A server that was blameless once is on trial like any other when it has been poor again.
func TestBudgetTriesAServerThatWasPoorAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := roomy()
		poorAndWell := func() {
			tenths(b, 20, 100, failedWith(503))
			tenths(b, 30, 35, failedWith(503))
		}
		poorAndWell()
		tenths(b, 30, 45, failedWith(503))
		requireEarns(t, b, 1, "rests")
		tenths(b, 200, 35, failedWith(503))
		tenths(b, 100, 45, failedWith(503))
		requireEarns(t, b, 5, "no better after the rest")
		poorAndWell()
		requireEarns(t, b, 5, "well")
		tenths(b, 30, 45, failedWith(503))
		requireEarns(t, b, 1, "rests again")
	})
}

func TestBudgetCountsATenthOfASecondAsOneEvent(t *testing.T) {
	for events, want := range map[int]float64{5: 5, 6: 1} { // (7/8)^6 is less than a half
		synctest.Test(t, func(t *testing.T) {
			b := roomy()
			tenths(b, events, 100, failedWith(503))
			requireEarns(t, b, want, fmt.Sprint(events, " events"))
		})
	}
}

func TestHedgesDoNotMakeABudgetSparing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := roomy()
		for range 100 {
			withdraw(b, requestTo("a"))
			time.Sleep(100 * time.Millisecond)
		}
		deposit(b, requestTo("a"), 1)
		assert.False(t, b.Status(requestTo("a")).Sparing)
	})
}

// It is the budget of a dry run.
func TestBudgetThatEarnsNothingIsNotOverdrawn(t *testing.T) {
	for _, ratio := range []float64{-1, math.NaN()} {
		synctest.Test(t, func(t *testing.T) {
			b, req := &retryhttp.TokenBucket{Ratio: ratio, HealthyRatio: 1, Burst: -1}, requestTo("a")
			deposit(b, req, 1000)
			slow := retryhttp.Attempt{Err: io.ErrUnexpectedEOF, Elapsed: time.Minute}
			_, ok := b.Withdraw(retryhttp.Retry{Request: req, Failed: slow})
			assert.False(t, ok)
		})
	}
}

func TestBudgetMayBeOverdrawnByTheTimeOfTheFailedAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, req := &retryhttp.TokenBucket{Burst: -1}, requestTo("a")
		for range 1200 { // 10 a second, for six Windows
			deposit(b, req, 1)
			time.Sleep(100 * time.Millisecond)
		}
		drawAll(t, b, req)
		granted := 0
		for range 1000 {
			slow := retryhttp.Attempt{Err: io.ErrUnexpectedEOF, Elapsed: 15 * time.Second}
			if _, ok := b.Withdraw(retryhttp.Retry{Request: req, Failed: slow}); ok {
				granted++
			}
		}
		assert.InDelta(t, 150, granted, 3, "10/s · 15 s")
		assert.Zero(t, b.Status(req).Tokens)
		assert.False(t, withdraw(b, req), "the overdraft belongs to the retry of a slow failure")
		deposit(b, req, 200)
		assert.False(t, withdraw(b, req), "later successes pay: 200 · 0.5 are less than 150")
		deposit(b, req, 110)
		assert.True(t, withdraw(b, req))
	})
}

func TestBudgetChargesAThirdForAnInvitedRetry(t *testing.T) {
	type testCase struct {
		retry   retryhttp.Retry
		granted int
	}
	inBubbles(t, map[string]testCase{
		"a 429 with a Retry-After":       {retryhttp.Retry{Status: 429, Asked: time.Second}, 15},
		"a 429 of a program's own Retry": {retryhttp.Retry{Failed: failedWith(429), Asked: time.Second}, 15},
		"a 429 without":                  {retryhttp.Retry{Status: 429}, 5},
		"a 503 with a Retry-After":       {retryhttp.Retry{Status: 503, Asked: time.Second}, 5},
	}, func(t *testing.T, c testCase) {
		b, req := new(retryhttp.TokenBucket), requestTo("a")
		c.retry.Request = req
		for range c.granted {
			cost, ok := b.Withdraw(c.retry)
			require.True(t, ok)
			require.InDelta(t, 5.0/float64(c.granted), cost, 1e-9)
		}
		_, ok := b.Withdraw(c.retry)
		assert.False(t, ok)
	})
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
