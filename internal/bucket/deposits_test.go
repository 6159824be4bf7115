package bucket

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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

func TestDepositTakesNoLock(t *testing.T) {
	var table Table
	settings := func() Settings { return Settings{Ratio: 0.1, HealthyRatio: 0.1, Burst: 50} }
	for range 50 {
		require.True(t, withdraw(&table, "a", settings))
	}
	b := table.find("a")
	require.NotNil(t, b)
	func() {
		table.mu.Lock()
		defer table.mu.Unlock()
		b.mu.Lock()
		defer b.mu.Unlock()
		returns(t, func() {
			for range 5 * foldEvery {
				table.Deposit("a", settings)
			}
		})
		assert.Zero(t, b.folded, "nobody could do the arithmetic")
	}()
	assert.InDelta(t, 0.1*5*foldEvery, tokens(&table, "a", settings), 1e-9, "and nothing was lost")
}

// A processor folds at every 64th deposit of its own.
func TestDepositFoldsOnceInAWhile(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		var table Table
		for n := range uint64(1000) {
			table.Deposit("a", usual)
			require.Equal(t, (n+1)/foldEvery*foldEvery, table.find("a").folded)
		}
	})
}

// Every processor counts for itself, and every deposit counts once.
func TestDepositsOfAllProcessorsCount(t *testing.T) {
	const goroutines, each = 8, 10_000
	var table Table
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for range each {
				table.Deposit("a", usual)
			}
		})
	}
	all.Wait()
	b := table.find("a")
	require.NotNil(t, b)
	assert.EqualValues(t, goroutines*each, b.total())
	assert.EqualValues(t, cacheLine, unsafe.Sizeof(stripe{}))
	require.NotNil(t, b.stripes.Load(), "after so many deposits")
	assert.Len(t, *b.stripes.Load(), runtime.GOMAXPROCS(0))
}

// Stripes are for buckets that are busy: there may be thousands of others.
func TestSlowDepositsHaveOneCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		for range 10 * foldEvery {
			withdraw(&table, "a", usual) // which folds, and makes the next fold come soon
			table.Deposit("a", usual)
			time.Sleep(2 * busyTime / foldEvery)
		}
		for range 10 * foldEvery {
			table.Deposit("a", usual)
			time.Sleep(2 * busyTime / foldEvery)
		}
		b := table.find("a")
		assert.True(t, b.stripes.Load() == nil)
		assert.False(t, table.busy.Load())
		for range 2 * foldEvery {
			table.Deposit("a", usual)
		}
		assert.True(t, b.stripes.Load() != nil)
		assert.True(t, table.busy.Load())
	})
}

// The rate follows the last Window on any number of processors: what was earned before
// a silence is not spread over the silence.
func TestLanesFoldInTurn(t *testing.T) {
	const processors = 64
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
	synctest.Test(t, func(t *testing.T) {
		var table Table
		for range foldEvery {
			table.Deposit("a", usual)
		}
		b := table.find("a")
		require.Len(t, *b.stripes.Load(), processors)
		var lanes [processors]lane
		for i := range lanes {
			lanes[i].number = i
			require.True(t, lanes[i].enter(b))
		}
		for n := range 4000 {
			table.depositIn(&lanes[n%processors])
			assert.LessOrEqual(t, b.total()-b.folded, uint64(foldEvery))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(100 * time.Second)
		assert.InDelta(t, 5, tokens(&table, "a", usual), 1.5)
	})
}

// A lane remembers the bucket of its last deposit, which may have gone meanwhile.
func TestDepositLeavesAnEvictedBucketAlone(t *testing.T) {
	var table Table
	table.busy.Store(true)
	table.Deposit("a", usual)
	old := table.find("a")
	table.mu.Lock()
	require.Same(t, old, table.evictions.lockNext(&table.buckets, time.Now()))
	table.evict(old)
	old.mu.Unlock()
	table.mu.Unlock()
	table.Deposit("a", usual)
	assert.EqualValues(t, 1, old.total())
	b := table.find("a")
	require.NotNil(t, b)
	assert.EqualValues(t, 1, b.total())
}

// One deposit in 64 asks a full Table for a bucket. So the keys that deposit most get one.
func TestFullTableMakesRoomForOneDepositInMany(t *testing.T) {
	for name, busy := range map[string]bool{"in lanes": true, "without lanes": false} {
		t.Run(name, func(t *testing.T) {
			var table Table
			for i := range maxBuckets {
				withdraw(&table, fmt.Sprint(i), usual)
			}
			table.busy.Store(busy)
			for range foldEvery - 1 {
				table.Deposit("new", usual)
				require.Nil(t, table.find("new"))
			}
			table.Deposit("new", usual)
			require.NotNil(t, table.find("new"))
			assert.EqualValues(t, 1, table.find("new").total())
			assert.Equal(t, maxBuckets, kept(t, &table))
		})
	}
}
