package detour

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFirstAttemptMayDetourIfAnyDispatcherBelowIsInTrouble(t *testing.T) {
	var b Below
	b.Meet(nil)
	assert.False(t, b.MayDetour())
	first, second := new(Dispatcher), new(Dispatcher)
	for range 2 {
		b.Meet(first)
		b.Meet(second)
	}
	assert.Equal(t, []*Dispatcher{first, second}, *b.known.Load())
	assert.False(t, b.MayDetour())
	for _, d := range []*Dispatcher{first, second} {
		d.count.Store(1)
		assert.True(t, b.MayDetour())
		d.count.Store(0)
	}
}

func TestFirstAttemptMayDetourOnceAfterAFailureThatSaysNothing(t *testing.T) {
	var b Below
	b.Wonder()
	assert.True(t, b.MayDetour())
	assert.False(t, b.MayDetour())
}
