package detour

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFirstAttemptMayDetourIfAnyDispatcherBelowIsInTrouble(t *testing.T) {
	var b Below
	b.Meet(nil)
	assert.False(t, b.MayDetour())
	first, second := new(Dispatcher), new(Dispatcher)
	b.Meet(first)
	assert.False(t, b.MayDetour())
	first.count.Store(1)
	for range 2 {
		b.Meet(second)
		b.Meet(first)
	}
	assert.Len(t, *b.known.Load(), 2)
	assert.True(t, b.MayDetour())
	first.count.Store(0)
	assert.False(t, b.MayDetour())
	second.count.Store(1)
	assert.True(t, b.MayDetour())
}

// A RoundTripper may replace its Base again and again.
func TestDispatchersThatAreNotInTroubleAreForgotten(t *testing.T) {
	var b Below
	first, second, third := new(Dispatcher), new(Dispatcher), new(Dispatcher)
	b.Meet(first)
	b.Meet(second)
	second.count.Store(1)
	b.Meet(third)
	assert.Len(t, *b.known.Load(), 2)
	assert.False(t, slices.Contains(*b.known.Load(), first))
}

func TestFirstAttemptMayDetourUntilOneHasAsked(t *testing.T) {
	var b Below
	for range 2 {
		b.Wonder()
		assert.True(t, b.MayDetour())
		assert.False(t, b.MayDetour())
	}
	b.Meet(nil)
	b.Wonder()
	assert.False(t, b.MayDetour())
}
