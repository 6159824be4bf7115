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
