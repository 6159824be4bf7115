package detour

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPoolIsAskedByOneFirstAttemptInSomeAndOnceASecond(t *testing.T) {
	h, now := &host{patience: 16}, time.Now()
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
	assert.False(t, h.othersHaveServed(slow))
	other.proven = true
	assert.True(t, h.othersHaveServed(slow))
}
