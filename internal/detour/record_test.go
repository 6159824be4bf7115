package detour

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestRecordForgetsAnEighthWithEachResult(t *testing.T) {
	var r record
	r.add(true)
	assert.InDelta(t, 1./8, r.failing, 1e-9)
	r.add(true)
	assert.InDelta(t, 15./64, r.failing, 1e-9)
	r.add(false)
	assert.InDelta(t, 15./64*7/8, r.failing, 1e-9)
}

func TestLatencyIsAMeanThatBeginsWithTheFirstAnswer(t *testing.T) {
	var l latency
	l.add(20 * time.Millisecond)
	assert.Equal(t, 20*time.Millisecond, l.mean)
	l.add(100 * time.Millisecond)
	assert.Equal(t, 30*time.Millisecond, l.mean)
}

func TestSlowAnswerTakesFourTimesAsLongAndTenMilliseconds(t *testing.T) {
	var l latency
	assert.False(t, l.exceeded(time.Hour), "nothing to compare with")
	l.add(20 * time.Millisecond)
	assert.False(t, l.exceeded(90*time.Millisecond))
	assert.True(t, l.exceeded(90*time.Millisecond+1))
}
