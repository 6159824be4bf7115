package detour

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFirstAttemptMayDetourIfADispatcherBelowIsInTrouble(t *testing.T) {
	var b Below
	b.NoteReached(nil)
	assert.False(t, b.MayDetour())
	first, second := new(Dispatcher), new(Dispatcher)
	b.NoteReached(first)
	b.NoteReached(nil)
	assert.False(t, b.MayDetour())
	first.count.Store(1)
	b.NoteReached(second)
	assert.True(t, b.MayDetour())
	first.count.Store(0)
	assert.False(t, b.MayDetour())
	b.NoteReached(second)
	second.count.Store(1)
	assert.True(t, b.MayDetour())
}

func TestFirstAttemptMayDetourUntilOneHasAsked(t *testing.T) {
	var b Below
	for range 2 {
		b.NoteFailure()
		assert.True(t, b.MayDetour())
		assert.False(t, b.MayDetour())
	}
	b.NoteReached(nil)
	b.NoteFailure()
	assert.False(t, b.MayDetour())
}
