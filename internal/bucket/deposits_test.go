package bucket

import (
	"fmt"
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
	b := table.buckets.Find("a")
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

func TestDepositFoldsOnceInAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		for n := range uint64(1000) {
			table.Deposit("a", usual)
			require.Equal(t, (n+1)/foldEvery*foldEvery, table.buckets.Find("a").folded)
		}
	})
}

// Every deposit counts once.
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
	b := table.buckets.Find("a")
	require.NotNil(t, b)
	assert.EqualValues(t, goroutines*each, b.deposits.Load())
}

// A deposit tries the bucket of a recent deposit before it looks for its own.
func TestDepositsOfKeysInTurnCountForEach(t *testing.T) {
	var table Table
	for range 10 * foldEvery {
		for _, key := range []string{"a", "b", "a", "c"} {
			table.Deposit(key, usual)
		}
	}
	for key, times := range map[string]int{"a": 2, "b": 1, "c": 1} {
		assert.EqualValues(t, times*10*foldEvery, table.buckets.Find(key).deposits.Load(), key)
	}
}

func TestDepositAfterAnEvictionIsNotLost(t *testing.T) {
	var table Table
	for range foldEvery {
		table.Deposit("a", usual)
	}
	old := table.buckets.Find("a")
	require.Same(t, old, table.recent.Load())
	for i := range maxBuckets {
		withdraw(&table, fmt.Sprint(i), usual)
	}
	require.True(t, old.evicted.Load())
	for range foldEvery { // one of them finds room
		table.Deposit("a", usual)
	}
	require.NotNil(t, table.buckets.Find("a"))
	assert.EqualValues(t, 1, table.buckets.Find("a").deposits.Load())
}

// Two processors that deposit in one bucket contend for its counter, and for nothing else.
func TestDepositReadsNothingBesideTheCounter(t *testing.T) {
	const cacheLine = 64
	var b bucket
	assert.GreaterOrEqual(t, unsafe.Offsetof(b.deposits), unsafe.Offsetof(b.sampled)+cacheLine)
	assert.Less(t, unsafe.Offsetof(b.key), unsafe.Offsetof(b.sampled))
	assert.Less(t, unsafe.Offsetof(b.evicted), unsafe.Offsetof(b.sampled))
}

// depositFor deposits at a steady rate, which is a multiple of 1,000.
func depositFor(table *Table, perSecond int, d time.Duration) {
	for range d / time.Millisecond {
		for range perSecond / 1000 {
			table.Deposit("a", usual)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestManyDepositsOfAFullBucketAreSampled(t *testing.T) {
	const window = 20 * time.Second
	synctest.Test(t, func(t *testing.T) {
		var table Table
		depositFor(&table, 8000, 2*window)
		b := table.buckets.Find("a")
		require.False(t, b.sampled.Load(), "they are too few")
		depositFor(&table, 40_000, window)
		require.True(t, b.sampled.Load())
		before := b.deposits.Load()
		depositFor(&table, 40_000, 2*window)
		assert.InEpsilon(t, 1_600_000, b.deposits.Load()-before, 0.04) // six standard deviations
		b.fold(time.Now())
		assert.InEpsilon(t, 40_000, b.perSecond, 0.06) // four for the sample, and 3 % that the slower rate has left
		assert.InDelta(t, b.capacity(), b.tokens, 1e-6)
	})
}

// A bucket that is not full is exact.
func TestDepositsAfterAWithdrawalAreNotSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		depositFor(&table, 40_000, 20*time.Second)
		b := table.buckets.Find("a")
		require.True(t, b.sampled.Load())
		const taken = 100
		for range taken {
			require.True(t, withdraw(&table, "a", usual))
		}
		left := b.capacity() - taken
		for n := range 20 {
			require.InDelta(t, left+float64(n)*usual().Ratio, tokens(&table, "a", usual), 1e-6)
			table.Deposit("a", usual)
		}
		for range 5 * foldEvery {
			table.Deposit("a", usual)
			require.False(t, b.sampled.Load())
		}
	})
}

// One deposit in 64 asks a full Table for a bucket. So the keys that deposit most get one.
func TestFullTableMakesRoomForOneDepositInMany(t *testing.T) {
	var table Table
	for i := range maxBuckets {
		withdraw(&table, fmt.Sprint(i), usual)
	}
	for range foldEvery - 1 {
		table.Deposit("new", usual)
		require.Nil(t, table.buckets.Find("new"))
	}
	table.Deposit("new", usual)
	require.NotNil(t, table.buckets.Find("new"))
	assert.EqualValues(t, 1, table.buckets.Find("new").deposits.Load())
	assert.Equal(t, maxBuckets, kept(t, &table))
}
