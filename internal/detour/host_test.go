package detour

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPoolIsAskedByOneFirstAttemptInSomeAndOnceASecond(t *testing.T) {
	h, now := &host{askOneIn: 16}, time.Now()
	asked := func(attempts int) (asked []int) {
		for n := range attempts {
			if h.asksPool(now) {
				asked = append(asked, n+1)
			}
		}
		return asked
	}
	assert.Equal(t, []int{16}, asked(100))
	now = now.Add(time.Second - 1)
	assert.Empty(t, asked(100))
	now = now.Add(1)
	assert.Equal(t, []int{1}, asked(100))
}

func TestFewDialsAreUnderWayAtOnce(t *testing.T) {
	h := &host{savings: mostDials}
	for range mostDialing {
		assert.True(t, h.pay())
	}
	assert.False(t, h.pay())
	h.dialing--
	h.savings = 1
	assert.True(t, h.pay())
	h.dialing--
	assert.False(t, h.pay(), "the last saved dial is spent")
}

func TestOnlyOthersThatHaveServedShowThatADetourIsSlow(t *testing.T) {
	slow, other := &conn{proven: true}, new(conn)
	h := &host{conns: []*conn{slow, other}}
	assert.False(t, h.hasServed(slow))
	other.proven = true
	assert.True(t, h.hasServed(slow))
}

func TestFailuresOfThePoolPayForDials(t *testing.T) {
	for _, c := range []struct {
		failing       float64
		served        bool
		passed        time.Duration
		savings, want float64
	}{
		{hopeless + 0.01, true, 100 * time.Millisecond, 0, 0.2},
		{hopeless + 0.01, true, time.Minute, 0, dialsPerFailure},
		{hopeless + 0.01, false, time.Minute, 2.9, dialsAtFirst},
		{hopeless + 0.01, false, time.Minute, 10, 10},
		{hopeless, false, time.Second, 0, 1. / 60},
		{worse + 0.01, false, 30 * time.Second, 0, 0.5},
		{worse + 0.01, true, 30 * time.Second, 0, 0},
		{worse, false, 30 * time.Second, 0, 0},
	} {
		now := time.Now()
		h := &host{pool: record{c.failing}, savings: c.savings, credited: now.Add(-c.passed), conns: []*conn{{proven: c.served}}}
		h.credit(now)
		assert.InDelta(t, c.want, h.savings, 1e-9, c)
		assert.Equal(t, now, h.credited)
	}
}

func TestSlowAnswerOfThePoolIsAFailure(t *testing.T) {
	for _, c := range []struct {
		v    verdict
		took time.Duration
		bad  bool
	}{{well, 0, false}, {well, time.Second, true}, {failed, 0, true}} {
		h := &host{latency: latency{20 * time.Millisecond}, askOneIn: 2 * leastOneIn}
		h.notePool(c.v, c.took)
		assert.Equal(t, c.bad, h.pool.failing > 0)
		assert.Equal(t, c.bad, !h.failedAt.IsZero(), "the trouble goes on")
		assert.Equal(t, c.bad, h.askOneIn > leastOneIn)
	}
}

func TestDetourThatFailsInPartIsGivenUpIfADialIsSaved(t *testing.T) {
	for _, c := range []struct {
		failing, savings float64
		want             bool
	}{
		{doubtful, mostDials, false},
		{doubtful + 0.01, dialsInReserve, true},
		{doubtful + 0.01, dialsInReserve - 0.01, false},
		{hopeless, 0, false},
		{hopeless + 0.01, 0, true},
	} {
		h := &host{savings: c.savings}
		assert.Equal(t, c.want, h.givesUp(&conn{proven: true, results: record{c.failing}}, failed), c)
	}
}

func TestLatencyIsForgottenWithTheLastDetourThatHasServed(t *testing.T) {
	first, last, young := &conn{proven: true}, &conn{proven: true}, new(conn)
	first.requests.Add(1) // not to be closed
	last.requests.Add(1)
	h := &host{conns: []*conn{first, last, young}, latency: latency{time.Second}, detours: record{0.5}}
	h.retire(first)
	assert.NotZero(t, h.latency)
	assert.NotZero(t, h.detours)
	h.retire(last)
	assert.Zero(t, h.latency)
	assert.Zero(t, h.detours)
}

func TestIdleDetoursAreLookedForFourTimesInTheirTime(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		0: troubled / 4, 8 * time.Second: 2 * time.Second, time.Hour: troubled / 4, time.Millisecond: 50 * time.Millisecond,
	} {
		h := newHost(&http.Transport{IdleConnTimeout: timeout}, origin{}, "")
		assert.Equal(t, want, h.tick())
	}
}
