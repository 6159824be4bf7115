package bucket

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The list is made once for many evictions.
func TestTableListsItsBucketsSeldom(t *testing.T) {
	withdraw := func(table *Table, key string) { withdraw(table, key, usual) }
	for name, use := range map[string]func(table *Table, key string){
		"in use": withdraw,
		"not in use": func(table *Table, key string) {
			withdraw(table, key)
			time.Sleep(2 * usual().IdleAfter / maxBuckets)
		},
		"as good as new": func(table *Table, key string) {
			withdraw(table, key)
			table.Refund(key, usual, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var table Table
				lists := 0
				for i := range 5 * maxBuckets {
					before := len(table.evictions)
					use(&table, fmt.Sprint(i))
					if len(table.evictions) > before {
						lists++
					}
				}
				assert.Equal(t, 4*maxBuckets/mostListed, lists)
				assert.Equal(t, maxBuckets, kept(t, &table))
			})
		})
	}
}

// full returns a Table that has no room. Its buckets have the keys "0", "1", and so on. One token
// was taken from each, in this order, and none is in use.
func full(t *testing.T) *Table {
	table := new(Table)
	for i := range maxBuckets {
		require.True(t, withdraw(table, fmt.Sprint(i), usual))
		time.Sleep(time.Millisecond)
	}
	time.Sleep(time.Minute)
	return table
}

// nextEvicted returns the bucket that a new one would replace.
func nextEvicted(table *Table) *bucket {
	table.mu.Lock()
	defer table.mu.Unlock()
	b := table.lockNext(time.Now())
	b.mu.Unlock()
	return b
}

// A bucket that the list names may be drained before its turn comes.
func TestEvictionPassesOverWhatWasUsedSinceTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := full(t)
		require.Equal(t, "0", nextEvicted(table).key)
		for range 4 {
			require.True(t, withdraw(table, "0", usual))
		}
		require.True(t, withdraw(table, "new", usual))
		assert.Zero(t, tokens(table, "0", usual), "it is still there")
		assert.Equal(t, 5.0, tokens(table, "1", usual), "and the next one is not")
		assert.Equal(t, maxBuckets, kept(t, table))
	})
}

func TestEvictionPassesOverWhatAnsweredSinceTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := full(t)
		nextEvicted(table)
		next := table.evictions
		for i := range 100 {
			table.Deposit(fmt.Sprint(i), usual)
		}
		assert.Equal(t, "100", nextEvicted(table).key)
		assert.Len(t, table.evictions, mostListed-100, "without another list")
		assert.Equal(t, make([]*bucket, 100), next[mostListed-100:], "which keeps no bucket alive")
	})
}

func TestEvictionTakesWhatIsAsGoodAsNew(t *testing.T) {
	for name, when := range map[string]struct{ beforeTheList, since string }{
		"when it makes the list": {beforeTheList: "4000"},
		"although used since":    {since: "0"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := full(t)
				for range 10 {
					table.Deposit(when.beforeTheList, usual)
				}
				if when.since != "" {
					nextEvicted(table)
					table.Refund(when.since, usual, 1)
				}
				assert.Equal(t, when.beforeTheList+when.since, nextEvicted(table).key)
			})
		})
	}
}

func TestEvictionOfBucketsAsGoodAsNewBeginsWithTheLongestUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := full(t)
		var want, got []string
		for i := range 50 {
			key := fmt.Sprint((i*7 + 3) % 50)
			want = append(want, key)
			table.Refund(key, usual, 1)
			time.Sleep(time.Millisecond)
		}
		nextEvicted(table)
		for _, b := range table.evictions[:50] {
			got = append(got, b.key)
		}
		assert.Equal(t, want, got)
	})
}

func TestEvictionUnlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := full(t)
		old := nextEvicted(table)
		assert.Equal(t, 5.0, tokens(table, "new", usual))
		require.True(t, old.mu.TryLock(), "by a gauge")
		old.mu.Unlock()
		assert.True(t, withdraw(table, "new", usual))
		require.True(t, old.evicted.Load())
		assert.True(t, old.mu.TryLock(), "a goroutine that waits for it finds that it no longer counts")
	})
}

func evictAsNew(table *Table) {
	table.mu.Lock()
	defer table.mu.Unlock()
	if table.buckets.Find("a") == nil {
		return
	}
	b := table.lockNext(time.Now())
	defer b.mu.Unlock()
	if b.asNew(time.Now()) {
		table.evict(b)
	}
}

func TestEvictionGrantsNothingTwice(t *testing.T) {
	// A bucket that got all its tokens back is as good as new, and is evicted while
	// others are about to withdraw from it. A bucket with a token out is worth
	// keeping, so never more tokens are out than it holds at the start.
	const workers, rounds, burst = 6, 15_000, 2
	settings := func() Settings {
		s := usual()
		s.Burst, s.Ratio, s.HealthyRatio = burst, 0, 0
		return s
	}
	var table Table
	var stop atomic.Bool
	var evictor, drawers sync.WaitGroup
	evictor.Go(func() {
		for !stop.Load() {
			evictAsNew(&table)
			runtime.Gosched()
		}
	})
	var out, granted, tooMany atomic.Int64
	for range workers {
		drawers.Go(func() {
			for range rounds {
				if withdraw(&table, "a", settings) {
					granted.Add(1)
					if out.Add(1) > burst {
						tooMany.Add(1)
					}
					runtime.Gosched()
					out.Add(-1)
					table.Refund("a", settings, 1)
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
			for withdraw(&table, "a", settings) {
				drained.Add(1)
			}
		})
	}
	drawers.Wait()
	assert.EqualValues(t, burst, drained.Load(), "and all of them are there in the end")
}
