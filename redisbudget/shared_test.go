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

func TestSharedReportsWhetherTheBalanceDecidesAndHowOldItsViewIs(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
		age, shared := b.Shared(req)
		assert.False(t, shared, "nobody has asked yet")
		assert.Zero(t, age)
		deposit(b, req, 1)
		time.Sleep(interval / 2)
		age, shared = b.Shared(req)
		assert.True(t, shared)
		assert.Equal(t, interval/2, age.Round(interval/10))

		other := get(t, "other.example")
		e.refuse.Store(true)
		b.Withdraw(other)
		age, shared = b.Shared(other)
		assert.False(t, shared, "no answer has come yet")
		assert.Zero(t, age)
		for range 20 {
			deposit(b, req, 1)
			time.Sleep(interval)
		}
		age, shared = b.Shared(req)
		assert.False(t, shared)
		assert.Greater(t, age, 15*interval)

		e.refuse.Store(false)
		deposit(b, req, 1)
		time.Sleep(20 * interval)
		_, shared = b.Shared(req)
		assert.True(t, shared)

		require.NoError(t, b.Close())
		_, shared = b.Shared(req)
		assert.False(t, shared, "closed")
	})
}

func TestSparingIsWhileAProcessEarnsRatio(t *testing.T) {
	for _, c := range []struct {
		most    float64
		sparing bool
	}{{0.5, true}, {0.1, false}} {
		inBubble(t, func(t *testing.T, e *engine) {
			b, req := &redisbudget.Bucket{Client: e.client(t), Most: c.most}, get(t, host)
			assert.False(t, b.Sparing(req))
			deposit(b, req, 1)
			assert.False(t, b.Sparing(req))
			for range 100 {
				b.Failed(req, retryhttp.Attempt{Err: errors.New("broken")})
				b.Withdraw(req)
				time.Sleep(interval / 10)
			}
			assert.Equal(t, c.sparing, b.Sparing(req))
		})
	}
}

// A gauge shows the results of a tenth of a second that is over.
func TestSparingWeighsTheLatestResults(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
		for range 10 {
			for range 10 {
				b.Failed(req, retryhttp.Attempt{Err: errors.New("broken")})
			}
			time.Sleep(interval / 10)
			sparing := b.Sparing(req)
			b.Tokens(req)
			require.Equal(t, b.Sparing(req), sparing)
		}
		assert.True(t, b.Sparing(req))
	})
}
