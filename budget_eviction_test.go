package retryhttp_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// maxBuckets is how many a TokenBucket keeps.
const maxBuckets = 4096

func host(i int) *http.Request { return requestTo(fmt.Sprint("host-", i)) }

func TestBudgetEvictsTheWorthlessFirst(t *testing.T) {
	once := func(b *retryhttp.TokenBucket, req *http.Request) { withdraw(b, req) }
	busy := func(b *retryhttp.TokenBucket, req *http.Request) { deposit(b, req, 1000) }
	for name, c := range map[string]struct {
		bucket *retryhttp.TokenBucket
		use    func(*retryhttp.TokenBucket, *http.Request)
	}{
		"withdrawn from":                         {&retryhttp.TokenBucket{}, once},
		"withdrawn from, its MinPerSecond whole": {&retryhttp.TokenBucket{MinPerSecond: 2}, once},
		"drained": {&retryhttp.TokenBucket{}, func(b *retryhttp.TokenBucket, req *http.Request) {
			for withdraw(b, req) {
			}
		}},
		"busy":                   {&retryhttp.TokenBucket{}, busy},
		"its MinPerSecond spent": {&retryhttp.TokenBucket{Burst: -1, Ratio: -1, MinPerSecond: 2}, once},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, req := c.bucket, requestTo("kept")
				c.use(b, req)
				want := b.Status(req).Tokens
				require.NotEqual(t, b.Status(requestTo("new")).Tokens, want)
				for i := range 5_000 {
					b.Deposit(requestTo(fmt.Sprint("crawled-", i)))
				}
				assert.Equal(t, want, b.Status(req).Tokens)
			})
		})
	}
}

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

func TestBudgetEvictsWhatIsAsGoodAsNewFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b retryhttp.TokenBucket
		for i := range maxBuckets - 1 {
			drawAll(t, &b, host(i))
		}
		time.Sleep(time.Second)
		b.Deposit(requestTo("as good as new"))
		drawAll(t, &b, requestTo("new"))
		time.Sleep(time.Minute) // a host whose bucket is gone would have all tokens now
		for i := range maxBuckets - 1 {
			require.Zero(t, b.Status(host(i)).Tokens)
		}
	})
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

// The bucket notices a deposit late. A deposit does not mean that a retry drew on
// the host.
func TestBudgetLeavesNothingOfAHostThatAnsweredLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b retryhttp.TokenBucket
		for i := range maxBuckets {
			drawAll(t, &b, host(i))
			b.Deposit(host(i))
		}
		time.Sleep(24 * time.Hour)
		for i := range 1000 {
			require.True(t, withdraw(&b, requestTo(fmt.Sprint("new-", i))))
		}
	})
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
				for range 10 {
					for i := range 2 * maxBuckets {
						req := host(i)
						for tokens := b.Status(req).Tokens; tokens >= 1; tokens-- { // what Tokens reports is granted
							require.True(t, withdraw(b, req))
							granted++
						}
						require.False(t, withdraw(b, req))
					}
					time.Sleep(time.Second)
				}
				require.Equal(t, maxBuckets*fresh, granted, "no more than the buckets held at the start")
			})
		})
	}
}

// More hosts are down than there are buckets.
func TestBudgetDiesOutInAnOutageOfManyHosts(t *testing.T) {
	var b retryhttp.TokenBucket
	granted := 0
	reqs := make([]*http.Request, 4196)
	for i := range reqs {
		reqs[i] = requestTo("h" + strconv.Itoa(i))
	}
	for range 2 {
		for _, r := range reqs {
			for range 3 { // retries wanted by each failing request
				if withdraw(&b, r) {
					granted++
				}
			}
		}
	}
	assert.LessOrEqual(t, granted, 5*len(reqs), "each host has Burst 5 and no success")
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

// A busy host gets a bucket even if all buckets are in use.
func TestBudgetMakesRoomForABusyHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b retryhttp.TokenBucket
		for i := range maxBuckets {
			drawAll(t, &b, host(i))
		}
		time.Sleep(time.Minute)
		busy := requestTo("busy")
		deposit(&b, busy, 64+1000)
		require.InDelta(t, 100, b.Status(busy).Tokens, 1)
	})
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
