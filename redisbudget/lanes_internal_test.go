package redisbudget

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The servers of a Cluster come and go.
func TestLaneWithoutCallsIsForgotten(t *testing.T) {
	var l lanes
	one, two := new(redis.Client), new(redis.Client)
	require.True(t, l.enter(one, new(call)))
	require.True(t, l.enter(one, new(call)))
	require.True(t, l.enter(two, new(call)))
	assert.Empty(t, l.next(one))
	assert.Len(t, l.servers, 2)
	assert.Empty(t, l.next(one))
	assert.Empty(t, l.next(two))
	assert.Empty(t, l.servers)
}

// Otherwise a shard that stalls would hold up the calls to the others.
func TestShardsOfARingHaveLanesOfTheirOwn(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"a": "192.0.2.1:6379", "b": "192.0.2.2:6379"},
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("nothing is sent")
		},
	})
	defer ring.Close()
	shards := map[*redis.Client]bool{}
	for i := range 100 {
		key := fmt.Sprintf("retryhttp:{%d.example}", i)
		want, err := ring.GetShardClientForKey(key)
		require.NoError(t, err)
		require.Same(t, want, new(lanes).serverOf(t.Context(), ring, key))
		shards[want] = true
	}
	assert.Len(t, shards, 2)
}

func TestCallAfterCloseSaysWhyItWasNotSent(t *testing.T) {
	var reported []error
	b := &Bucket{OnError: func(err error) { reported = append(reported, err) }}
	c := &call{a: b.account("shop.example"), ctx: t.Context()}
	c.sent = c.a.begin(b.start)
	require.True(t, b.lanes.enter(nil, c))
	b.over.Store(true)
	b.sendBatch(nil, []*call{c})
	require.Len(t, reported, 1)
	assert.EqualError(t, reported[0], "redisbudget: the balance was not updated: Close did not wait for it")
}
