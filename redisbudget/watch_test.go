package redisbudget_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/redisbudget"
)

// reports are the errors that an OnError gets, and when.
type reports struct {
	mu       sync.Mutex
	start    time.Time
	slow     []time.Duration
	failures []time.Duration
}

func (r *reports) add(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if errors.Is(err, redisbudget.ErrSlow) {
		r.slow = append(r.slow, time.Since(r.start))
	} else {
		r.failures = append(r.failures, time.Since(r.start))
	}
}

// unreachable returns a client whose packets are lost. Its timeouts are go-redis's.
func unreachable(addrs ...string) redis.UniversalClient {
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: addrs, // a Cluster's, if there are several
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
		},
		PoolSize:                 1000, // after as many failed dials, a client dials once a second
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

func (r *reports) all() (slow, failures []time.Duration) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.slow), slices.Clone(r.failures)
}

func requireOncePerInterval(t *testing.T, times []time.Duration, from time.Duration, n int) {
	t.Helper()
	require.Len(t, times, n)
	require.Equal(t, from, times[0])
	for i := range times[1:] {
		require.Equal(t, interval, times[i+1]-times[i])
	}
}

// The client dials five times for 5 s until a call fails. A Cluster's does so for each of its nodes.
func TestCallThatWaitsIsReportedOncePerInterval(t *testing.T) {
	clients := map[string][]string{
		"Client":        {"192.0.2.1:6379"},
		"ClusterClient": {"192.0.2.1:6379", "192.0.2.2:6379"},
	}
	for name, addrs := range clients {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := reports{start: time.Now()}
				client := unreachable(addrs...)
				b := &redisbudget.Bucket{Client: client, OnError: got.add}
				for _, req := range hosts(t, 100) {
					b.Deposit(req)
				}
				time.Sleep(25 * interval)
				slow, failures := got.all()
				requireOncePerInterval(t, slow, interval, 25)
				require.Empty(t, failures)
				_ = b.Close()
				time.Sleep(time.Hour)
				slow, _ = got.all()
				require.Len(t, slow, 25, "none after Close")
				require.NoError(t, client.Close())
				time.Sleep(time.Minute)
			})
		})
	}
}

// A failure says more than that an answer does not come.
func TestFailureIsReportedSoonAfterThatItWasSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := reports{start: time.Now()}
		client := unreachable("192.0.2.1:6379")
		b, req := &redisbudget.Bucket{Client: client, OnError: got.add}, get(t, host)
		for range 120 {
			withdraw(b, req)
			time.Sleep(interval)
		}
		slow, failures := got.all()
		require.Len(t, failures, 4, "one for each call")
		assert.InDelta(t, 25.4, failures[0].Seconds(), 1e-6)
		assert.Greater(t, len(slow), 100)
		for i := range slow[1:] {
			assert.GreaterOrEqual(t, slow[i+1]-slow[i], interval)
		}
		_ = b.Close()
		require.NoError(t, client.Close())
		time.Sleep(time.Minute)
	})
}

// Two calls wait, and the later one still does when the other one fails.
func TestSlowReportWaitsForAnIntervalAfterAFailure(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		got := reports{start: time.Now()}
		b, reqs := &redisbudget.Bucket{Client: e.client(t), OnError: got.add}, hosts(t, 2)
		e.refuse.Store(true)
		e.delay.Store(int64(2500 * time.Millisecond))
		withdraw(b, reqs[0])
		time.Sleep(interval - time.Millisecond)
		e.delay.Store(int64(2900 * time.Millisecond))
		withdraw(b, reqs[1])
		time.Sleep(2 * interval)
		slow, failures := got.all()
		assert.Equal(t, []time.Duration{interval, 2 * interval}, slow)
		assert.Equal(t, []time.Duration{2500 * time.Millisecond}, failures)
	})
}

func TestCallIsWatchedAlthoughOnErrorFails(t *testing.T) {
	for name, end := range map[string]func(){
		"blocks": func() { time.Sleep(interval / 2) },
		"panic":  func() { panic("oops") },
		"Goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *engine) {
				got := reports{start: time.Now()}
				b := &redisbudget.Bucket{Client: e.client(t), OnError: func(err error) { got.add(err); end() }}
				e.delay.Store(int64(2900 * time.Millisecond)) // less than the client's patience
				b.Deposit(get(t, host))
				time.Sleep(2800 * time.Millisecond)
				slow, _ := got.all()
				assert.Len(t, slow, 2)
				e.delay.Store(0) // for the next call
				time.Sleep(time.Hour)
				slow, _ = got.all()
				assert.Len(t, slow, 2, "all is well")
			})
		})
	}
}
