package detour

import (
	"context"
	"net"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFirstAttemptOfATransportBelowIsOneOfTheTransportAbove(t *testing.T) {
	above := &Attempt{again: true, hedge: true, route: Route{stay: true}}
	below := context.WithValue(t.Context(), Key{}, above)
	taken := Route{taken: []*conn{{}}}
	for _, c := range []struct {
		ctx    context.Context
		number int
		want   *Attempt
	}{
		{below, 1, &Attempt{again: true, hedge: true, route: Route{stay: true}}},
		{below, 2, &Attempt{again: true, route: taken}},
		{t.Context(), 1, &Attempt{route: taken}},
		{t.Context(), 2, &Attempt{again: true, route: taken}},
	} {
		var a Attempt
		a.Begin(c.ctx, taken, c.number, false)
		assert.Equal(t, c.want.again, a.again)
		assert.Equal(t, c.want.isHedge(), a.isHedge())
		assert.Equal(t, c.want.Route(), a.Route())
	}
}

func TestAttemptLeavesThePoolAfterAFailure(t *testing.T) {
	for _, c := range []struct {
		a    *Attempt
		want bool
	}{
		{nil, false},
		{&Attempt{}, false},
		{&Attempt{again: true}, true},
		{&Attempt{again: true, route: Route{stay: true}}, false},
		{&Attempt{again: true, hedge: true, route: Route{stay: true}}, true},
	} {
		assert.Equal(t, c.want, c.a.leaves())
	}
}

// dialed returns a connection to nobody.
func dialed(t *testing.T) *conn {
	t.Helper()
	client, server := net.Pipe()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return client, nil }}
	cc, err := transport.NewClientConn(t.Context(), "http", "service.example:80")
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = cc.Close()
		_ = server.Close()
	})
	return &conn{ClientConn: cc}
}

func TestAttemptKnowsWhatItHasTaken(t *testing.T) {
	a, first, second := new(Attempt), dialed(t), dialed(t)
	a.route.take(first)
	assert.True(t, a.hasTaken(first))
	assert.False(t, a.hasTaken(second))
	a.route.take(second)
	assert.True(t, a.hasTaken(first))
	assert.True(t, a.hasTaken(second))
	assert.True(t, a.Route().Detoured)
}

func TestAttemptForgetsClosedDetours(t *testing.T) {
	conns := []*conn{dialed(t), dialed(t), dialed(t), dialed(t)}
	a := new(Attempt)
	for _, c := range conns[:3] {
		a.route.take(c)
	}
	before := a.Route()
	require.NoError(t, conns[1].Close())
	a.route.take(conns[3])
	assert.True(t, slices.Equal([]*conn{conns[0], conns[2], conns[3]}, a.Route().taken))
	assert.True(t, slices.Equal(conns[:3], before.taken))
}
