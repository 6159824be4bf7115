package timer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestSleepEndsAfterItsTimeOrWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var timer Timer
		start := time.Now()
		timer.Sleep(t.Context(), time.Second)
		assert.Equal(t, time.Second, time.Since(start))

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		timer.Sleep(ctx, time.Hour)
		assert.Equal(t, time.Second+time.Minute, time.Since(start))
		timer.Sleep(ctx, time.Hour)
		assert.Equal(t, time.Second+time.Minute, time.Since(start), "the context has ended before")

		timer.Sleep(t.Context(), time.Second)
		assert.Equal(t, 2*time.Second+time.Minute, time.Since(start), "what fired before is forgotten")
	})
}

func TestSleepOfNothingMakesNoTimer(t *testing.T) {
	var timer Timer
	timer.Sleep(t.Context(), 0)
	timer.Sleep(t.Context(), -1)
	assert.Nil(t, timer.Timer)
}
