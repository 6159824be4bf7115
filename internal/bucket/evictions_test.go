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

// The list is made once for many evictions, here of buckets that are in use.
func TestTableListsItsBucketsSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		lists := 0
		for i := range 5 * maxBuckets {
			before := len(table.evictions.next)
			table.Withdraw(fmt.Sprint(i), usual)
			if len(table.evictions.next) > before {
				lists++
			}
		}
		assert.Equal(t, 4*maxBuckets/relistAfter, lists)
		assert.Equal(t, maxBuckets, kept(t, &table))
	})
}

// A bucket that the list names may be drained before its turn comes.
func TestEvictionPassesOverWhatWasUsedSinceTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		for i := range maxBuckets {
			require.True(t, table.Withdraw(fmt.Sprint(i), usual))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		table.mu.Lock()
		b := table.evictions.lockNext(&table.buckets, time.Now())
		b.mu.Unlock()
		table.mu.Unlock()
		require.Equal(t, "0", b.key)
		for range 4 {
			require.True(t, table.Withdraw("0", usual))
		}
		require.True(t, table.Withdraw("new", usual))
		assert.Zero(t, table.Tokens("0", usual), "it is still there")
		assert.Equal(t, 5.0, table.Tokens("1", usual), "and the next one is not")
		assert.Equal(t, maxBuckets, kept(t, &table))
	})
}

func evictAsNew(table *Table) {
	table.mu.Lock()
	defer table.mu.Unlock()
	if table.count.Load() == 0 {
		return
	}
	b := table.evictions.lockNext(&table.buckets, time.Now())
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
		s.Burst, s.Ratio, s.Most = burst, 0, 0
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
				if table.Withdraw("a", settings) {
					granted.Add(1)
					if out.Add(1) > burst {
						tooMany.Add(1)
					}
					runtime.Gosched()
					out.Add(-1)
					table.Refund("a", settings)
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
			for table.Withdraw("a", settings) {
				drained.Add(1)
			}
		})
	}
	drawers.Wait()
	assert.EqualValues(t, burst, drained.Load(), "and all of them are there in the end")
}
