package retryhttp

import (
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

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
		require.False(t, v.(*bucket).evicted.Load())
		n++
		return true
	})
	require.EqualValues(t, b.count.Load(), n)
	return n
}

func TestBudgetTokensMakesNoBucket(t *testing.T) {
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

func TestBudgetKeepsABoundedNumberOfBuckets(t *testing.T) {
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

// The list is made once for many evictions, here of buckets that are in use.
func TestBudgetListsItsBucketsSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b TokenBucket
		lists := 0
		for i := range 5 * maxBuckets {
			before := len(b.next)
			b.Withdraw(requestForKey(fmt.Sprint(i)))
			if len(b.next) > before {
				lists++
			}
		}
		assert.Equal(t, 4*maxBuckets/relistAfter, lists)
		assert.Equal(t, maxBuckets, kept(t, &b))
	})
}

// returns requires that f returns while the test holds its locks. It runs outside
// bubbles, where a goroutine may wait for a mutex.
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

func TestBudgetDepositTakesNoLock(t *testing.T) {
	b := TokenBucket{Ratio: 0.1, Burst: 50, Window: -1}
	req := requestForKey("a")
	for range 50 {
		require.True(t, b.Withdraw(req))
	}
	k, ok := b.find(req.URL.Host)
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

// A processor folds at every 64th deposit of its own.
func TestBudgetDepositFoldsOnceInAWhile(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		var b TokenBucket
		req := requestForKey("a")
		for n := range uint64(1000) {
			b.Deposit(req)
			k, _ := b.find(req.URL.Host)
			require.Equal(t, (n+1)/foldEvery*foldEvery, k.folded)
		}
	})
}

func TestBudgetWithdrawLeavesAnEvictedBucketAlone(t *testing.T) {
	for name, c := range map[string]struct {
		op   func(*TokenBucket, *http.Request)
		want float64 // tokens of the successor
	}{
		"Withdraw": {func(b *TokenBucket, req *http.Request) { b.Withdraw(req) }, 4},
		"Refund":   {func(b *TokenBucket, req *http.Request) { b.Refund(req) }, 5},
	} {
		t.Run(name, func(t *testing.T) {
			for range 50 { // chance decides whether the bucket is found before it goes
				asked := make(chan struct{}, 2)
				b := TokenBucket{Key: func(req *http.Request) string {
					select {
					case asked <- struct{}{}:
					default:
					}
					return req.URL.Host
				}}
				req := requestForKey("a")
				k := b.bucket(req.URL.Host)
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
				b.next = []*bucket{k}
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

func evictAsNew(b *TokenBucket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.count.Load() == 0 {
		return
	}
	k := b.lockNext(time.Now())
	defer k.mu.Unlock()
	if k.asNew(time.Now()) {
		b.remove(k)
	}
}

func TestBudgetEvictionGrantsNothingTwice(t *testing.T) {
	// A bucket that got all its tokens back is as good as new, and is evicted while
	// others are about to withdraw from it. A bucket with a token out is worth
	// keeping, so never more tokens are out than it holds at the start.
	const workers, rounds, burst = 6, 15_000, 2
	b := TokenBucket{Burst: burst, Ratio: -1}
	var stop atomic.Bool
	var evictor, drawers sync.WaitGroup
	evictor.Go(func() {
		for !stop.Load() {
			evictAsNew(&b)
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

// A bucket that the list names may be drained before its turn comes.
func TestBudgetPassesOverWhatWasUsedSinceTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b TokenBucket
		for i := range maxBuckets {
			require.True(t, b.Withdraw(requestForKey(fmt.Sprint(i))))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		b.mu.Lock()
		k := b.lockNext(time.Now())
		k.mu.Unlock()
		b.mu.Unlock()
		require.Equal(t, "0", k.key)
		for range 4 {
			require.True(t, b.Withdraw(requestForKey("0")))
		}
		require.True(t, b.Withdraw(requestForKey("new")))
		assert.Zero(t, b.Tokens(requestForKey("0")), "it is still there")
		assert.Equal(t, 5.0, b.Tokens(requestForKey("1")), "and the next one is not")
		assert.Equal(t, maxBuckets, kept(t, &b))
	})
}

// Every processor counts for itself, and every deposit counts once.
func TestBudgetCountsTheDepositsOfAllProcessors(t *testing.T) {
	const goroutines, each = 8, 10_000
	b := new(TokenBucket)
	req := requestForKey("host.example")
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for range each {
				b.Deposit(req)
			}
		})
	}
	all.Wait()
	k, ok := b.find("host.example")
	require.True(t, ok)
	assert.EqualValues(t, goroutines*each, k.total())
	assert.EqualValues(t, cacheLine, unsafe.Sizeof(stripe{}))
	require.NotNil(t, k.stripes.Load(), "after so many deposits")
	assert.Len(t, *k.stripes.Load(), runtime.GOMAXPROCS(0))
}

// Stripes are for buckets that are busy: there may be thousands of others.
func TestBudgetGivesSlowDepositsOneCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := new(TokenBucket)
		req := requestForKey("host.example")
		for range 10 * foldEvery {
			b.Withdraw(req) // which folds, and makes the next fold come soon
			b.Deposit(req)
			time.Sleep(2 * busyTime / foldEvery)
		}
		for range 10 * foldEvery {
			b.Deposit(req)
			time.Sleep(2 * busyTime / foldEvery)
		}
		k, _ := b.find("host.example")
		assert.True(t, k.stripes.Load() == nil)
		assert.False(t, b.busy.Load())
		for range 2 * foldEvery {
			b.Deposit(req)
		}
		assert.True(t, k.stripes.Load() != nil)
		assert.True(t, b.busy.Load())
	})
}

// The rate follows the last Window on any number of processors: what was earned before
// a silence is not spread over the silence.
func TestBudgetFoldsTheLanesInTurn(t *testing.T) {
	const processors = 64
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
	synctest.Test(t, func(t *testing.T) {
		b := new(TokenBucket)
		req := requestForKey("host.example")
		for range foldEvery {
			b.Deposit(req)
		}
		k, _ := b.find("host.example")
		require.Len(t, *k.stripes.Load(), processors)
		var lanes [processors]lane
		for n := range 4000 {
			l := &lanes[n%processors]
			l.number = n % processors
			b.depositIn(l, "host.example")
			assert.LessOrEqual(t, k.total()-k.folded, uint64(foldEvery))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(100 * time.Second)
		assert.InDelta(t, 5, b.Tokens(req), 1.5)
	})
}

// A lane remembers the bucket of its last deposit, which may have gone meanwhile.
func TestBudgetDepositsNothingInAnEvictedBucket(t *testing.T) {
	b := new(TokenBucket)
	req := requestForKey("host.example")
	b.busy.Store(true)
	b.Deposit(req)
	old, _ := b.find("host.example")
	b.mu.Lock()
	require.Same(t, old, b.lockNext(time.Now()))
	b.remove(old)
	old.mu.Unlock()
	b.mu.Unlock()
	b.Deposit(req)
	assert.EqualValues(t, 1, old.total())
	k, ok := b.find("host.example")
	require.True(t, ok)
	assert.EqualValues(t, 1, k.total())
}

// The host of a request is a part of its URL, and the URL may be long.
func TestTokenBucketDoesNotKeepTheTextOfAKeyAlive(t *testing.T) {
	b := new(TokenBucket)
	key := strings.Repeat("x", 100)[:10]
	b.Deposit(requestForKey(key))
	require.Equal(t, 1, kept(t, b))
	b.buckets.Range(func(kept, _ any) bool {
		assert.Equal(t, key, kept)
		assert.NotSame(t, unsafe.StringData(key), unsafe.StringData(kept.(string)))
		return true
	})
}
