package latency

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A refresh looks at all latencies of a key, so it must not follow each answer.
func TestDelayIsRefreshedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tail := newTail(Settings{Share: 1, Window: refreshWithin * time.Second}, true)
		refreshes := func() bool {
			const notRefreshed = 7
			tail.delay.Store(notRefreshed)
			tail.Observe(10*time.Millisecond, false)
			return tail.Delay() != notRefreshed
		}
		for i := range answersBeyond {
			require.Zero(t, tail.Delay(), "after %d answers", i)
			tail.Observe(10*time.Millisecond, true)
		}
		require.NotZero(t, tail.Delay())
		for i := range 2 * refreshEvery {
			assert.Equal(t, i%refreshEvery == refreshEvery-1, refreshes(), "observation %d", i)
		}
		for range 2 {
			time.Sleep(time.Second - time.Nanosecond)
			assert.False(t, refreshes())
			time.Sleep(time.Nanosecond)
			assert.True(t, refreshes())
		}
	})
}

func TestAllowanceOfManyAnswersAtOnceIsExact(t *testing.T) {
	const goroutines, answers = 8, 10_000
	tail := newTail(Settings{Share: 1e-5, Window: time.Minute}, false)
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for range answers {
				tail.Observe(time.Millisecond, true)
			}
		})
	}
	all.Wait()
	assert.EqualValues(t, goroutines*answers*oneHedge/100_000, tail.allowance.Load())
}
