package redisbudget_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/redisbudget"
)

func TestStatusReportsWhetherTheBalanceDecidesAndHowOldItsViewIs(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
		status := b.Status(req)
		assert.False(t, status.Shared, "nobody has asked yet")
		assert.Zero(t, status.Age)
		deposit(b, req, 1)
		time.Sleep(interval / 2)
		status = b.Status(req)
		assert.True(t, status.Shared)
		assert.Equal(t, interval/2, status.Age.Round(interval/10))

		other := get(t, "other.example")
		e.refuse.Store(true)
		withdraw(b, other)
		status = b.Status(other)
		assert.False(t, status.Shared, "no answer has come yet")
		assert.Zero(t, status.Age)
		for range 20 {
			deposit(b, req, 1)
			time.Sleep(interval)
		}
		status = b.Status(req)
		assert.False(t, status.Shared)
		assert.Greater(t, status.Age, 15*interval)

		e.refuse.Store(false)
		deposit(b, req, 1)
		time.Sleep(20 * interval)
		assert.True(t, b.Status(req).Shared)

		require.NoError(t, b.Close())
		assert.False(t, b.Status(req).Shared, "closed")
	})
}

func TestSparingIsWhileAProcessEarnsRatio(t *testing.T) {
	for _, c := range []struct {
		most    float64
		sparing bool
	}{{0.5, true}, {0.1, false}} {
		inBubble(t, func(t *testing.T, e *engine) {
			b, req := &redisbudget.Bucket{Client: e.client(t), HealthyRatio: c.most}, get(t, host)
			assert.False(t, b.Status(req).Sparing)
			deposit(b, req, 1)
			assert.False(t, b.Status(req).Sparing)
			for range 100 {
				countFailure(b, req, retryhttp.Attempt{Err: errors.New("broken")})
				withdraw(b, req)
				time.Sleep(interval / 10)
			}
			assert.Equal(t, c.sparing, b.Status(req).Sparing)
		})
	}
}

// A gauge shows the results of a tenth of a second that is over.
func TestSparingWeighsTheLatestResults(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
		for range 10 {
			for range 10 {
				countFailure(b, req, retryhttp.Attempt{Err: errors.New("broken")})
			}
			time.Sleep(interval / 10)
			sparing := b.Status(req).Sparing
			require.Equal(t, b.Status(req).Sparing, sparing)
		}
		assert.True(t, b.Status(req).Sparing)
	})
}
