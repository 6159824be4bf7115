package redisbudget

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
)

// reply is an error that a server has answered.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// The error of a call that was sent to two nodes may be the first's, and the second may have booked it.
func TestWhichFailedCallsWereCertainlyNotBooked(t *testing.T) {
	for _, c := range []struct {
		err            error
		once, repeated bool // whether it was certainly not booked
	}{
		{reply("READONLY You can't write against a read only replica."), true, true},
		{reply("MOVED 1 192.0.2.1:6379"), true, false},
		{reply("ASK 1 192.0.2.1:6379"), true, false},
		{&net.OpError{Op: "dial", Err: io.EOF}, true, false},
		{redis.ErrClosed, true, false},
		{redis.ErrPoolTimeout, true, false},
		{redis.ErrPoolExhausted, true, false},
		{&net.OpError{Op: "read", Err: io.EOF}, false, false},
		{io.EOF, false, false},
	} {
		assert.Equal(t, c.once, (&call{err: c.err}).unbooked(), c.err)
		assert.Equal(t, c.repeated, (&call{err: c.err, resent: true}).unbooked(), "%v, sent again", c.err)
	}
}

// A single call to a Cluster has the error of the last node. A pipeline may have the error of the first.
func TestOnlyAPipelineToAClusterMayBeSentAgain(t *testing.T) {
	dial := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("away") }
	cluster := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{"192.0.2.1:6379"}, Dialer: dial, DialerRetries: 1, MaxRedirects: -1,
	})
	defer cluster.Close()
	single := redis.NewClient(&redis.Options{Addr: "192.0.2.1:6379", Dialer: dial, DialerRetries: 1, MaxRetries: -1})
	defer single.Close()
	for _, c := range []struct {
		name   string
		client redis.UniversalClient
		calls  int
		resent bool
	}{
		{"a call to a Cluster", cluster, 1, false},
		{"a pipeline to a Cluster", cluster, 2, true},
		{"a pipeline to a server", single, 2, false},
	} {
		a := someAccount()
		var batch []*call
		for range c.calls {
			batch = append(batch, &call{a: a, ctx: t.Context()})
		}
		a.settings.send(c.client, batch)
		for _, sent := range batch {
			assert.Error(t, sent.err, c.name)
			assert.Equal(t, c.resent, sent.resent, c.name)
		}
	}
}
