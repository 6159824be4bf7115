package redisbudget

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A server that is poor for the first time in a long while is on trial afterwards, although it had relief before.
func TestReliefOfLongAgoForbidsNoTrial(t *testing.T) {
	now := time.Now()
	h := health{failing: poorAbove, poorUntil: now, downs: mostOfATenth}
	h.weigh(now.Add(trial))
	assert.True(t, h.poor)
	for h.poor {
		now = now.Add(trial)
		h.ups = mostOfATenth
		h.weigh(now)
	}
	assert.Greater(t, h.failing, betterBelow, "hardly better")
	assert.Equal(t, now.Add(trial), h.trialEnds)
}
