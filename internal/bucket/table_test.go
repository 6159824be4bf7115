package bucket

import (
	"fmt"
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

	"github.com/retryhttp/retryhttp/internal/keyed"
)

// usual returns the Settings of a TokenBucket whose fields are zero.
func usual() Settings {
	return Settings{Ratio: 0.1, HealthyRatio: 0.1, Burst: 5, Window: 20 * time.Second, IdleAfter: 20 * time.Second}
}

const maxBuckets = keyed.Most

// kept counts the buckets that table has, and requires that the table knows whether it is full.
func kept(t *testing.T, table *Table) int {
	t.Helper()
	n := 0
	for key, b := range table.buckets.All() {
		require.Equal(t, key, b.key)
		require.False(t, b.evicted.Load())
		n++
	}
	require.Equal(t, n >= maxBuckets, table.buckets.Full())
	return n
}

func TestTokensMakesNoBucket(t *testing.T) {
	var table Table
	settings := func() Settings {
		s := usual()
		s.MinPerSecond = 2
		return s
	}
	for i := range 100 {
		require.Equal(t, 7.0, tokens(&table, fmt.Sprint(i), settings))
	}
	assert.Zero(t, kept(t, &table))
	table.Deposit("a", settings)
	assert.Equal(t, 1, kept(t, &table))
	withdraw(&table, "b", settings)
	table.Refund("c", settings, 1)
	assert.Equal(t, 3, kept(t, &table))
}

func TestSettingsAreAskedForOncePerBucket(t *testing.T) {
	var table Table
	asked := 0
	settings := func() Settings { asked++; return usual() }
	for range 2 * foldEvery { // the second half without a look-up
		table.Deposit("a", settings)
	}
	withdraw(&table, "a", settings)
	table.Refund("a", settings, 1)
	tokens(&table, "a", settings)
	assert.Equal(t, 1, asked)
	withdraw(&table, "b", settings)
	assert.Equal(t, 2, asked)
}

func TestTableKeepsABoundedNumberOfBuckets(t *testing.T) {
	for name, use := range map[string]func(*Table, string){
		"as good as new": func(table *Table, key string) { table.Deposit(key, usual) },
		"used":           func(table *Table, key string) { withdraw(table, key, usual) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var table Table
				for i := range maxBuckets {
					use(&table, fmt.Sprint(i))
				}
				require.Equal(t, maxBuckets, kept(t, &table))
				for i := range 10 {
					use(&table, fmt.Sprint("more-", i))
					require.LessOrEqual(t, kept(t, &table), maxBuckets)
				}
			})
		})
	}
}

func TestWithdrawLeavesAnEvictedBucketAlone(t *testing.T) {
	for name, c := range map[string]struct {
		op   func(*Table)
		want float64 // tokens of the successor
	}{
		"Withdraw": {func(table *Table) { withdraw(table, "a", usual) }, 4},
		"Refund":   {func(table *Table) { table.Refund("a", usual, 1) }, 5},
	} {
		t.Run(name, func(t *testing.T) {
			for range 50 { // chance decides whether the bucket is found before it goes
				var table Table
				b := table.findOrAdd("a", usual)
				table.mu.Lock()
				b.mu.Lock()
				started, done := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(done)
					close(started)
					c.op(&table)
				}()
				<-started
				for range 100 {
					runtime.Gosched()
				}
				table.evictions = []*bucket{b}
				table.evict(b)
				b.mu.Unlock()
				table.mu.Unlock()
				<-done
				require.Equal(t, 5.0, b.tokens, "of the evicted bucket")
				require.Equal(t, c.want, tokens(&table, "a", usual))
			}
		})
	}
}

// The host of a request is a part of its URL, and the URL may be long.
func TestTableDoesNotKeepTheTextOfAKeyAlive(t *testing.T) {
	var table Table
	key := strings.Repeat("x", 100)[:10]
	table.Deposit(key, usual)
	require.Equal(t, 1, kept(t, &table))
	for kept, b := range table.buckets.All() {
		assert.Equal(t, key, kept)
		assert.NotSame(t, unsafe.StringData(key), unsafe.StringData(kept))
		assert.NotSame(t, unsafe.StringData(key), unsafe.StringData(b.key))
	}
}

// A retry that asks again for its token, as a retry in line does, has failed no second time.
func TestRetryCountsItsFailureOnce(t *testing.T) {
	for again, want := range map[bool]bool{false: true, true: false} {
		synctest.Test(t, func(t *testing.T) {
			var table Table
			for range 100 {
				table.Withdraw("a", usual, Failure{Down: true}, again)
				time.Sleep(100 * time.Millisecond)
			}
			table.Deposit("a", usual)
			assert.Equal(t, want, poor(&table, "a"), "again: %v", again)
		})
	}
}

// A rate limit, or a hedge, does not say that the host is down.
func TestRetryOfAHostThatIsNotDownMakesItNotPoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		for range 100 {
			table.Withdraw("a", usual, Failure{Invited: true}, false)
			table.Withdraw("a", usual, Failure{}, false)
			time.Sleep(100 * time.Millisecond)
		}
		table.Deposit("a", usual)
		assert.False(t, poor(&table, "a"))
	})
}

// The second goroutine that uses a new key finds the bucket of the first.
func TestTableAddsOneBucketForAKey(t *testing.T) {
	const keys, each = maxBuckets, 4
	var table Table
	for i := range keys {
		var come, granted atomic.Int64
		var withdrawn sync.WaitGroup
		settings := func() Settings {
			for come.Load() < each {
				runtime.Gosched()
			}
			runtime.Gosched() // and the others find no bucket
			return usual()
		}
		for range each {
			withdrawn.Go(func() {
				come.Add(1)
				for withdraw(&table, fmt.Sprint(i), settings) {
					granted.Add(1)
				}
			})
		}
		withdrawn.Wait()
		require.EqualValues(t, usual().Burst, granted.Load())
	}
}

func withdraw(t *Table, key string, settings func() Settings) (granted bool) {
	_, granted = t.Withdraw(key, settings, Failure{}, false)
	return granted
}

func tokens(t *Table, key string, settings func() Settings) float64 {
	tokens, _ := t.Status(key, settings)
	return tokens
}

func poor(t *Table, key string) bool {
	_, poor := t.Status(key, usual)
	return poor
}
