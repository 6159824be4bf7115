package detour

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
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

func TestAttemptKnowsWhatItHasTaken(t *testing.T) {
	a, first, second := new(Attempt), new(conn), new(conn)
	a.route.take(first)
	assert.True(t, a.hasTaken(first))
	assert.False(t, a.hasTaken(second))
	a.route.take(second)
	assert.True(t, a.hasTaken(first))
	assert.True(t, a.hasTaken(second))
	assert.True(t, a.Route().Detoured)
}

func TestAttemptForgetsRetiredDetours(t *testing.T) {
	conns := []*conn{{}, {}, {}, {}}
	a := new(Attempt)
	for _, c := range conns[:3] {
		a.route.take(c)
	}
	before := a.Route()
	conns[1].retired.Store(true)
	a.route.take(conns[3])
	assert.True(t, slices.Equal([]*conn{conns[0], conns[2], conns[3]}, a.Route().taken))
	assert.True(t, slices.Equal(conns[:3], before.taken))
}
