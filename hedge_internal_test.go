package retryhttp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A refresh looks at all latencies of a key, so it must not follow each answer.
func TestDelayOfAHedgeIsRefreshedNowAndThen(t *testing.T) {
	p := newTail(&Hedge{Share: 1, Window: refreshWithin * time.Second})
	refreshes := func(now time.Duration) bool {
		const notRefreshed = 7
		p.delay.Store(notRefreshed)
		p.observe(now, 10*time.Millisecond, false)
		return p.delay.Load() != notRefreshed
	}
	for i := range answersBeyond {
		require.Zero(t, p.delay.Load(), "after %d answers", i)
		p.answer(0, 10*time.Millisecond)
	}
	require.NotZero(t, p.delay.Load())
	for i := range 2 * refreshEvery {
		assert.Equal(t, i%refreshEvery == refreshEvery-1, refreshes(0), "observation %d", i)
	}
	assert.False(t, refreshes(time.Second-1))
	assert.True(t, refreshes(time.Second))
	assert.False(t, refreshes(2*time.Second-1))
	assert.True(t, refreshes(2*time.Second))
}

// The caller may change its request by then.
func TestHedgeThatIsTooLateDoesNotLookAtTheRequest(t *testing.T) {
	r := &race{state: firstWon}
	assert.NotPanics(t, func() { assert.False(t, r.ownRequest()) })
}

func TestPanicOfAHedgeDoesNotChangeADecidedRace(t *testing.T) {
	for _, state := range []raceState{hedgeFailed, firstWon, hedgeWon, abandoned} {
		r := &race{state: state}
		r.end("boom", true)
		assert.Equal(t, state, r.state)
	}
}
