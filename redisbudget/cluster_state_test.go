package redisbudget_test

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/redisbudget"
)

// state is who a Cluster's only master is, and how often its client has asked for that.
type state struct {
	master atomic.Value // string
	asked  atomic.Int32
}

const oldMaster, newMaster = "192.0.2.1:6379", "192.0.2.2:6379"

// cluster returns a client of a Cluster. e is its new master, and its old master while e is not down.
func (e *engine) cluster(t testing.TB) (*redis.ClusterClient, *state) {
	s := new(state)
	s.master.Store(oldMaster)
	c := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			s.asked.Add(1)
			return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: s.master.Load().(string)}}}}, nil
		},
		Dialer: func(_ context.Context, _, addr string) (net.Conn, error) {
			if addr == oldMaster && e.down.Load() {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
			}
			c, err := e.Dial()
			if err != nil || addr == newMaster {
				return c, err
			}
			return &conn{Conn: c, e: e}, nil
		},
		DialerRetries:            1,
		DisableRoutingPolicies:   true, // or it would ask for the commands
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() {
		_ = c.Close()
		time.Sleep(2 * time.Second) // a client that dials in vain sees once a second that it is closed
	})
	return c, s
}

// go-redis asks by itself once a minute.
func TestClusterIsAskedWhoTookOverAfterALostConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		client, s := e.cluster(t)
		b, req := &redisbudget.Bucket{Client: client}, get(t, host)
		b.Deposit(req)
		time.Sleep(rest)
		require.True(t, shares(b, req))
		e.down.Store(true)
		for range 5 {
			withdraw(b, req)
			time.Sleep(interval)
		}
		require.False(t, shares(b, req))
		s.master.Store(newMaster)
		withdraw(b, req)
		time.Sleep(2*interval + spread)
		assert.True(t, shares(b, req), "after the call that fails, and the next")
		assert.NoError(t, b.Close())
	})
}

func TestAnswersOfAClusterAskForNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		client, s := e.cluster(t)
		b, req := &redisbudget.Bucket{Client: client}, get(t, host)
		b.Deposit(req)
		synctest.Wait()
		require.EqualValues(t, 1, s.asked.Load())
		e.onCall(func(c *server.Peer, _ []string) bool { c.WriteError("WRONGTYPE"); return true })
		for range 10 {
			withdraw(b, req)
			time.Sleep(interval)
		}
		assert.EqualValues(t, 1, s.asked.Load())
	})
}
