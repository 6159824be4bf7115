package retryhttp

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func requestForKey(key string) *http.Request {
	return &http.Request{URL: &url.URL{Host: key}}
}

// kept counts the buckets that b.buckets has, and requires that b.count agrees.
func kept(t *testing.T, b *TokenBucket) int {
	t.Helper()
	n := 0
	b.buckets.Range(func(key, v any) bool {
		require.Equal(t, key, v.(*bucket).key)
		require.False(t, v.(*bucket).evicted)
		n++
		return true
	})
	require.Equal(t, b.count, n)
	return n
}

func TestTokenBucketTokensMakesNoBucket(t *testing.T) {
	b := TokenBucket{MinPerSecond: 2}
	for i := range 100 {
		require.Equal(t, 7.0, b.Tokens(requestForKey(fmt.Sprint(i))))
	}
	assert.Zero(t, kept(t, &b))
	b.Deposit(requestForKey("a"))
	assert.Equal(t, 1, kept(t, &b))
	b.Withdraw(requestForKey("b"))
	b.Refund(requestForKey("c"))
	assert.Equal(t, 3, kept(t, &b))
}

func TestTokenBucketKeepsABoundedNumberOfBuckets(t *testing.T) {
	for name, use := range map[string]func(*TokenBucket, *http.Request){
		"as good as new": func(b *TokenBucket, req *http.Request) { b.Deposit(req) },
		"used":           func(b *TokenBucket, req *http.Request) { b.Withdraw(req) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b TokenBucket
				for i := range maxBuckets {
					use(&b, requestForKey(fmt.Sprint(i)))
				}
				require.Equal(t, maxBuckets, kept(t, &b))
				for i := range 10 {
					use(&b, requestForKey(fmt.Sprint("more-", i)))
					require.LessOrEqual(t, kept(t, &b), maxBuckets)
				}
			})
		})
	}
}

func TestTokenBucketEvictsAllThatIsAsGoodAsNewAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b TokenBucket
		for i := range maxBuckets {
			req := requestForKey(fmt.Sprint(i))
			b.Deposit(req)
			if i%8 == 0 {
				b.Withdraw(req)
			}
		}
		b.Deposit(requestForKey("new"))
		assert.Equal(t, maxBuckets/8+1, kept(t, &b))
	})
}

// returns requires that f returns although whatever it is that the test holds
// is held. It runs outside bubbles, where a goroutine may wait for a mutex.
func returns(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		require.FailNow(t, "it waits for a lock")
	}
}

func TestTokenBucketDepositTakesNoLock(t *testing.T) {
	b := TokenBucket{Ratio: 0.1, Burst: 50, Window: -1}
	req := requestForKey("a")
	for range 50 {
		require.True(t, b.Withdraw(req))
	}
	k, ok := b.find(req)
	require.True(t, ok)
	func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		k.mu.Lock()
		defer k.mu.Unlock()
		returns(t, func() {
			for range 5 * foldEvery {
				b.Deposit(req)
			}
		})
		assert.Zero(t, k.folded, "nobody could do the arithmetic")
	}()
	assert.InDelta(t, 0.1*5*foldEvery, b.Tokens(req), 1e-9, "and nothing was lost")
}

func TestTokenBucketDepositFoldsOnceInAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b TokenBucket
		req := requestForKey("a")
		for n := range uint64(1000) {
			b.Deposit(req)
			k, _ := b.find(req)
			require.Equal(t, (n+1)/foldEvery*foldEvery, k.folded)
		}
	})
}

func TestTokenBucketWithdrawLeavesAnEvictedBucketAlone(t *testing.T) {
	for name, c := range map[string]struct {
		op   func(*TokenBucket, *http.Request)
		want float64 // tokens of the successor
	}{
		"Withdraw": {func(b *TokenBucket, req *http.Request) { b.Withdraw(req) }, 4},
		"Refund":   {func(b *TokenBucket, req *http.Request) { b.Refund(req) }, 5},
	} {
		t.Run(name, func(t *testing.T) {
			for range 50 { // for it is chance whether the bucket is found before it goes
				asked := make(chan struct{}, 2)
				b := TokenBucket{Key: func(req *http.Request) string {
					select {
					case asked <- struct{}{}:
					default:
					}
					return req.URL.Host
				}}
				req := requestForKey("a")
				k := b.bucket(req)
				for len(asked) > 0 {
					<-asked
				}
				b.mu.Lock()
				k.mu.Lock()
				done := make(chan struct{})
				go func() {
					defer close(done)
					c.op(&b, req)
				}()
				<-asked
				for range 100 {
					runtime.Gosched()
				}
				b.remove(k)
				k.mu.Unlock()
				b.mu.Unlock()
				<-done
				require.Equal(t, 5.0, k.tokens, "of the evicted bucket")
				require.Equal(t, c.want, b.Tokens(req))
			}
		})
	}
}

func TestTokenBucketEvictionGrantsNothingTwice(t *testing.T) {
	// A bucket whose tokens all came back is as good as new and evicted at once,
	// while others are about to withdraw from it. One with a token out is worth
	// keeping, so never more are out than it holds at the start.
	const workers, rounds, burst = 6, 15_000, 2
	b := TokenBucket{Burst: burst, Ratio: -1}
	var stop atomic.Bool
	var evictor, drawers sync.WaitGroup
	evictor.Go(func() {
		for !stop.Load() {
			b.mu.Lock()
			b.evict(time.Now())
			b.mu.Unlock()
			runtime.Gosched()
		}
	})
	var out, granted, tooMany atomic.Int64
	for range workers {
		drawers.Go(func() {
			req := requestForKey("a")
			for range rounds {
				if b.Withdraw(req) {
					granted.Add(1)
					if out.Add(1) > burst {
						tooMany.Add(1)
					}
					runtime.Gosched()
					out.Add(-1)
					b.Refund(req)
				}
				runtime.Gosched()
			}
		})
	}
	drawers.Wait()
	stop.Store(true)
	evictor.Wait()
	require.NotZero(t, granted.Load())
	require.Zero(t, tooMany.Load(), "of %d that were granted", granted.Load())

	var drained atomic.Int64
	for range workers {
		drawers.Go(func() {
			for b.Withdraw(requestForKey("a")) {
				drained.Add(1)
			}
		})
	}
	drawers.Wait()
	assert.EqualValues(t, burst, drained.Load(), "and all of them are there in the end")
}

// The search for the fullest looks at one bucket after the other. One that it
// has found full may be drained before the search ends, and is then not the
// fullest any more.
func TestTokenBucketDrainedWhileTheFullestIsSoughtSurvives(t *testing.T) {
	var b TokenBucket
	for i := range maxBuckets {
		req := requestForKey(fmt.Sprint(i))
		for range 2 {
			require.True(t, b.Withdraw(req))
		}
	}
	var order []*bucket
	b.buckets.Range(func(_, v any) bool {
		order = append(order, v.(*bucket))
		return true
	})
	first, last := order[0], order[len(order)-1]
	req := requestForKey(first.key)
	b.Refund(req) // which makes it the fullest
	require.Equal(t, 4.0, b.Tokens(req))

	last.mu.Lock() // holds up the search at its end
	first.deposits.Add(1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.Deposit(requestForKey("new"))
	}()
	for seen := false; !seen; {
		runtime.Gosched()
		first.mu.Lock()
		seen = first.folded == 1
		first.mu.Unlock()
	}
	granted := 1 // before
	for b.Withdraw(req) {
		granted++
	}
	last.mu.Unlock()
	<-done
	for b.Withdraw(req) {
		granted++
	}
	assert.Equal(t, 5, granted, "drained once, and no more in it")
	assert.Equal(t, maxBuckets, kept(t, &b))
}

// Requests are noted while they may be refunded, and nobody tells when one has
// ended: it is the garbage collector that does.
func TestTokenBucketForgetsRequestsThatAreGone(t *testing.T) {
	b := TokenBucket{Burst: -1, Ratio: -1, MinPerSecond: math.MaxInt32}
	live := requestForKey("a")
	require.True(t, b.Withdraw(live))
	for range 5 {
		for range 1000 {
			require.True(t, b.Withdraw(requestForKey("a")))
		}
		runtime.GC()
	}
	k, _ := b.find(live)
	k.mu.Lock()
	noted := len(k.floorPaid)
	k.mu.Unlock()
	assert.Less(t, noted, 2500)
	before := k.returned
	b.Refund(live)
	assert.Equal(t, before+1, k.returned, "one that lives is still known")
}
