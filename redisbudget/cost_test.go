package redisbudget_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/redisbudget"
)

func TestBudgetAllocatesNothingOnTheRequestPath(t *testing.T) {
	called, release := make(chan struct{}), make(chan struct{})
	client := startEngine(t).client(t)
	begun := sync.OnceFunc(func() { close(called) })
	client.AddHook(processHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		begun()
		<-release
		return next(ctx, cmd)
	}))
	b, req := &redisbudget.Bucket{Client: client}, get(t, host)
	b.Deposit(req)
	<-called // nothing else runs from here on
	failed := failedWith(429, time.Second, "Retry-After", "1")
	for name, use := range map[string]func(){
		"Deposit":  func() { b.Deposit(req) },
		"Withdraw": func() { withdraw(b, req) },
		"Refund":   func() { b.Refund(req, 1) },
		"Status":   func() { b.Status(req) },
		"Failed":   func() { countFailure(b, req, failed) },
	} {
		assert.Zero(t, testing.AllocsPerRun(1000, use), name)
	}
	close(release)
	require.NoError(t, b.Close())
}
