package retryhttp_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// maxBuckets is how many a TokenBucket keeps.
const maxBuckets = 4096

func host(i int) *http.Request { return requestTo(fmt.Sprint("host-", i)) }

func TestBudgetEvictsTheBucketUnusedForLongest(t *testing.T) {
	for name, use := range map[string]func(*retryhttp.TokenBucket, *http.Request){
		"Withdraw": func(b *retryhttp.TokenBucket, req *http.Request) { withdraw(b, req) },
		"Refund":   func(b *retryhttp.TokenBucket, req *http.Request) { b.Refund(req, 1) },
		"Deposit":  func(b *retryhttp.TokenBucket, req *http.Request) { b.Deposit(req) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b retryhttp.TokenBucket
				for i := range maxBuckets {
					drawAll(t, &b, host(i))
					time.Sleep(time.Millisecond)
				}
				for i := range 100 { // the oldest are in use again
					use(&b, host(i))
				}
				time.Sleep(time.Minute)
				for i := range 100 {
					require.True(t, withdraw(&b, requestTo(fmt.Sprint("new-", i))))
				}
				withdraw(&b, host(50)) // the list does not show that
				for i := range maxBuckets - 200 {
					require.True(t, withdraw(&b, requestTo(fmt.Sprint("more-", i))))
				}
				time.Sleep(time.Minute) // else a new bucket would inherit the tokens of the next to go
				gone := 0
				for i := range maxBuckets {
					if b.Status(host(i)).Tokens == 5 {
						gone++
						require.GreaterOrEqual(t, i, 100)
					}
				}
				require.Equal(t, maxBuckets-100, gone)
			})
		})
	}
}

// Buckets of healthy hosts stay as good as new while they are in use, and make
// room for a new bucket. A dead host's bucket that is in use would leave it
// nothing.
func TestBudgetEvictsWhatIsAsGoodAsNewThoughInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b retryhttp.TokenBucket
		alive := func(i int) *http.Request { return requestTo(fmt.Sprint("alive-", i)) }
		for i := range maxBuckets / 2 {
			drawAll(t, &b, host(i))
			b.Deposit(alive(i))
		}
		for range 3 {
			time.Sleep(time.Second)
			require.True(t, withdraw(&b, requestTo("first"))) // makes the list
			for i := range maxBuckets / 2 {
				b.Deposit(alive(i))
			}
		}
		for i := range 100 {
			require.True(t, withdraw(&b, requestTo(fmt.Sprint("new-", i))))
		}
	})
}

func TestBudgetLeavesNothingWhenUnusedForLongerThanItsWindow(t *testing.T) {
	for idle, want := range map[time.Duration]float64{20 * time.Second: 0, 20*time.Second + 1: 5} {
		synctest.Test(t, func(t *testing.T) {
			var b retryhttp.TokenBucket
			for i := range maxBuckets {
				drawAll(t, &b, host(i))
			}
			time.Sleep(idle)
			assert.Equal(t, want, b.Status(requestTo("new")).Tokens)
		})
	}
}

// A sender of webhooks meets ever more hosts that are dead.
func TestBudgetRetriesAfterAnyNumberOfDeadHosts(t *testing.T) {
	for name, b := range map[string]*retryhttp.TokenBucket{
		"default":        {},
		"MinPerSecond":   {MinPerSecond: 1},
		"without window": {Window: -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fresh := b.Status(requestTo("new")).Tokens
				for i := range 3 * maxBuckets {
					require.Equal(t, fresh, b.Status(host(i)).Tokens)
					drawAll(t, b, host(i))
					time.Sleep(10 * time.Millisecond) // 41 s for all that are kept
				}
			})
		})
	}
}

// One attempt in a hundred fails at hosts that answer. The other hosts are dead.
// There are more hosts than a TokenBucket keeps.
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
	for name, b := range map[string]*retryhttp.TokenBucket{
		"default":        {},
		"MinPerSecond":   {MinPerSecond: 0.001},
		"without window": {Window: -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fresh := int(b.Status(requestTo("new")).Tokens)
				granted := 0
				for range 4 {
					for i := range 2 * maxBuckets {
						req := host(i)
						for tokens := b.Status(req).Tokens; tokens >= 1; tokens-- { // what Tokens reports is granted
							require.True(t, withdraw(b, req))
							granted++
						}
						require.False(t, withdraw(b, req))
					}
					time.Sleep(3 * time.Second)
				}
				require.Equal(t, maxBuckets*fresh, granted, "no more than the buckets held at the start")
			})
		})
	}
}

func TestBudgetFloorIsNotGrantedAnewByEviction(t *testing.T) {
	b := &retryhttp.TokenBucket{Burst: -1, Ratio: -1, MinPerSecond: 1e-6}
	granted := 0
	for range 3 {
		for i := range 4200 {
			req := &http.Request{URL: &url.URL{Host: fmt.Sprint("h", i)}}
			if withdraw(b, req) {
				granted++
			}
		}
	}
	assert.LessOrEqual(t, granted, 4200)
}

// In an outage of more hosts than there are buckets, no host may earn more than it would alone.
func TestBudgetThatEarnedRatioIsPassedOnSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b retryhttp.TokenBucket
		for range 50 {
			for i := range maxBuckets {
				countFailure(&b, host(i), retryhttp.Attempt{Err: errBroken})
				countFailure(&b, host(i), retryhttp.Attempt{Err: errBroken})
				withdraw(&b, host(i))
			}
			time.Sleep(100 * time.Millisecond)
		}
		require.True(t, b.Status(host(1)).Sparing)
		withdraw(&b, host(maxBuckets))
		assert.True(t, b.Status(host(maxBuckets)).Sparing)
	})
}

func failedWith(status int, took time.Duration, header ...string) retryhttp.Attempt {
	resp := &http.Response{StatusCode: status, Header: http.Header{}}
	for i := 0; i < len(header); i += 2 {
		resp.Header.Set(header[i], header[i+1])
	}
	return retryhttp.Attempt{Number: 1, Response: resp, Elapsed: took}
}

// earned returns how many tokens the next ten successes earn.
func earned(t *testing.T, b *retryhttp.TokenBucket, req *http.Request) float64 {
	t.Helper()
	drawAll(t, b, req)
	before := b.Status(req).Tokens
	deposit(b, req, 10)
	return b.Status(req).Tokens - before
}

// tenths are tenths of a second with results each.
func tenths(b *retryhttp.TokenBucket, req *http.Request, n, failures, successes int, a retryhttp.Attempt) {
	for range n {
		for range failures {
			countFailure(b, req, a)
		}
		deposit(b, req, successes)
		time.Sleep(100 * time.Millisecond)
		b.Status(req) // weighs them
	}
}

func TestBudgetEarnsMostWhileMostResultsAreSuccesses(t *testing.T) {
	for name, c := range map[string]struct {
		failures, successes int
		attempt             retryhttp.Attempt
		earned              float64 // by ten successes
	}{
		"a third fails":             {1, 2, failedWith(503, time.Millisecond), 5},
		"two thirds fail":           {2, 1, failedWith(503, time.Millisecond), 1},
		"two thirds are errors":     {2, 1, retryhttp.Attempt{Err: io.ErrUnexpectedEOF}, 1},
		"two thirds are 429":        {2, 1, failedWith(429, time.Millisecond), 5},
		"two thirds are 408":        {2, 1, failedWith(408, time.Millisecond), 5},
		"two thirds ask for a wait": {2, 1, failedWith(503, time.Millisecond, "Retry-After", "1"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, req := &retryhttp.TokenBucket{Burst: 20, Window: -1}, requestTo("a")
				tenths(b, req, 100, c.failures, c.successes, c.attempt)
				assert.InDelta(t, c.earned, earned(t, b, req), 1e-9)
			})
		})
	}
}

// If a server gets worse soon after it has become well, the retries may be the cause: a success earns
// less for twenty seconds.
func TestBudgetEarnsLessForAWhileWhenAServerGetsWorseAgain(t *testing.T) {
	for name, c := range map[string]struct {
		after   time.Duration // from the time at which the server is well
		failing int           // of a hundred results, in the rest
		rested  float64       // earned by ten successes, when nearly half fail
		later   float64       // likewise, some seconds after the rest
	}{
		"soon":                               {0, 0, 1, 1},
		"soon, and it is partly broken":      {0, 35, 1, 5},
		"in the trial":                       {58 * time.Second, 0, 1, 1},
		"after the trial":                    {59 * time.Second, 0, 5, 5},
		"after the trial, and partly broken": {59 * time.Second, 35, 5, 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, req := &retryhttp.TokenBucket{Burst: 20, Window: -1}, requestTo("a")
				failed := failedWith(503, time.Millisecond)
				tenths(b, req, 20, 100, 0, failed)
				require.InDelta(t, 1, earned(t, b, req), 1e-9, "poor")
				tenths(b, req, 5, 0, 100, failed)
				require.InDelta(t, 1, earned(t, b, req), 1e-9, "not yet well")
				tenths(b, req, 5, 0, 100, failed)
				require.InDelta(t, 5, earned(t, b, req), 1e-9, "well")
				time.Sleep(c.after)

				tenths(b, req, 20, 45, 55, failed)
				assert.InDelta(t, c.rested, earned(t, b, req), 1e-9, "worse")
				tenths(b, req, 184, c.failing, 100-c.failing, failed)
				assert.InDelta(t, c.rested, earned(t, b, req), 1e-9, "before the end of the rest")
				tenths(b, req, 16, c.failing, 100-c.failing, failed)
				assert.InDelta(t, 5, earned(t, b, req), 1e-9, "after the rest")
				tenths(b, req, 30, 45, 55, failed)
				assert.InDelta(t, c.later, earned(t, b, req), 1e-9, "worse again")
			})
		})
	}
}

// A server that was blameless once is on trial like any other when it has been poor again.
func TestBudgetTriesAServerThatWasPoorAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, req := &retryhttp.TokenBucket{Burst: 20, Window: -1}, requestTo("a")
		failed := failedWith(503, time.Millisecond)
		poorAndWell := func() {
			tenths(b, req, 20, 100, 0, failed)
			tenths(b, req, 30, 35, 65, failed)
		}
		poorAndWell()
		tenths(b, req, 30, 45, 55, failed)
		require.InDelta(t, 1, earned(t, b, req), 1e-9, "rests")
		tenths(b, req, 200, 35, 65, failed)
		tenths(b, req, 100, 45, 55, failed)
		require.InDelta(t, 5, earned(t, b, req), 1e-9, "no better after the rest")
		poorAndWell()
		require.InDelta(t, 5, earned(t, b, req), 1e-9, "well")
		tenths(b, req, 30, 45, 55, failed)
		assert.InDelta(t, 1, earned(t, b, req), 1e-9, "rests again")
	})
}

func TestBudgetCountsATenthOfASecondAsOneEvent(t *testing.T) {
	for events, want := range map[int]float64{5: 5, 6: 1} { // (7/8)^6 is less than a half
		synctest.Test(t, func(t *testing.T) {
			b, req := &retryhttp.TokenBucket{Burst: 20, Window: -1}, requestTo("a")
			tenths(b, req, events, 1000, 0, failedWith(503, time.Millisecond))
			assert.InDelta(t, want, earned(t, b, req), 1e-9, "%d events", events)
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
	for name, c := range map[string]struct {
		retry   retryhttp.Retry
		granted int
	}{
		"a 429 with a Retry-After":       {retryhttp.Retry{Status: 429, Asked: time.Second}, 15},
		"a 429 of a program's own Retry": {retryhttp.Retry{Failed: failedWith(429, 0), Asked: time.Second}, 15},
		"a 429 without":                  {retryhttp.Retry{Status: 429}, 5},
		"a 503 with a Retry-After":       {retryhttp.Retry{Status: 503, Asked: time.Second}, 5},
		"a connection that was not made": {retryhttp.Retry{Failed: retryhttp.Attempt{Err: io.ErrUnexpectedEOF}}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, req := new(retryhttp.TokenBucket), requestTo("a")
				c.retry.Request = req
				granted, price := 0, 0.0
				for range 100 {
					if cost, ok := b.Withdraw(c.retry); ok {
						granted, price = granted+1, cost
					}
				}
				assert.Equal(t, c.granted, granted)
				assert.InDelta(t, 5.0/float64(c.granted), price, 1e-9)
				b.Refund(req, price)
				assert.InDelta(t, price, b.Status(req).Tokens, 1e-9)
			})
		})
	}
}

func TestRetryThatDoesNotWaitCostsAToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent int
		rt := retryhttp.New(script.Step(func(r *http.Request) (*http.Response, error) {
			sent++
			return &http.Response{StatusCode: 429, Body: http.NoBody, Header: http.Header{"Retry-After": {"60"}}}, nil
		}), retryhttp.Policy{MaxRetryAfter: -1, MaxAttempts: -1, Gate: &retryhttp.Gate{Hold: -1}, Backoff: retryhttp.Constant(ms)})
		_, err := rt.RoundTrip(requestTo("host"))
		require.NoError(t, err)
		assert.Equal(t, 1+5, sent, "the server asked for a minute, and nobody listened")
	})
}

func TestInvitedRetryCostsAThirdAlthoughItsBodyBrokeOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		b := new(retryhttp.TokenBucket)
		rt := retryhttp.New(script.Step(func(r *http.Request) (*http.Response, error) {
			sent++
			body := &bodies.Hooked{OnRead: func(p []byte) (int, error) { return 0, io.ErrUnexpectedEOF }}
			return &http.Response{StatusCode: 429, Body: body, ContentLength: 5, Header: http.Header{"Retry-After": {"1"}}}, nil
		}), retryhttp.Policy{MaxAttempts: 4, BufferBytes: 1 << 10, Budget: b})
		resp, err := rt.RoundTrip(requestTo("host"))
		require.True(t, err == nil || errors.Is(err, io.ErrUnexpectedEOF))
		if resp != nil {
			_ = resp.Body.Close()
		}
		require.Equal(t, 4, sent)
		assert.InDelta(t, 4, b.Status(requestTo("host")).Tokens, 1e-9, "three invited retries cost a token")
	})
}

func TestSparingIsWhileABucketEarnsRatio(t *testing.T) {
	for _, c := range []struct {
		bucket  *retryhttp.TokenBucket
		sparing bool
	}{
		{new(retryhttp.TokenBucket), true},
		{&retryhttp.TokenBucket{Ratio: 0.2}, false}, // Most is the same
	} {
		synctest.Test(t, func(t *testing.T) {
			req := requestTo("host")
			assert.False(t, c.bucket.Status(req).Sparing, "nothing is known")
			for range 100 {
				countFailure(c.bucket, req, retryhttp.Attempt{Err: errBroken})
				time.Sleep(100 * time.Millisecond)
			}
			assert.Equal(t, c.sparing, c.bucket.Status(req).Sparing)
			assert.False(t, c.bucket.Status(requestTo("other")).Sparing)
			for range 200 {
				c.bucket.Deposit(req)
				time.Sleep(100 * time.Millisecond)
				c.bucket.Status(req) // as a gauge does
			}
			assert.False(t, c.bucket.Status(req).Sparing, "most succeed again")
		})
	}
}
