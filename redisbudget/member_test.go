//go:build unix

package redisbudget_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/redisbudget"
)

// fleetMember returns a budget of 20 tokens that no success fills again.
func fleetMember(t *testing.T, client redis.UniversalClient) *redisbudget.Bucket {
	t.Helper()
	var failures errorLog
	b := &redisbudget.Bucket{Client: client, Ratio: -1, Interval: shortInterval, OnError: func(err error) {
		if !errors.Is(err, redisbudget.ErrSlow) { // the machine may be busy
			failures.add(err)
		}
	}}
	t.Cleanup(func() {
		assert.NoError(t, b.Close())
		assert.NoError(t, client.Close())
		assert.Empty(t, failures.all())
	})
	return b
}

// spend withdraws one token, and waits until the others see that it is gone.
func spend(t *testing.T, b *redisbudget.Bucket, req *http.Request, left float64, others ...*redisbudget.Bucket) {
	t.Helper()
	require.True(t, withdraw(b, req))
	for _, other := range others {
		eventually(t, func() bool { other.Deposit(req); return other.Status(req).Tokens == left }, "the others know what is left")
	}
}
