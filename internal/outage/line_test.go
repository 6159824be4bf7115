package outage

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// In lasting trouble, as many may wait as the line has served within the last window, and one.
func TestLineAdmitsWhatItHasServed(t *testing.T) {
	const window = 5 * time.Second
	h := newHealth(new(atomic.Int64))
	now := time.Now()
	admitted := func() (n int) {
		for h.admit(now, window) {
			n++
		}
		h.line.places -= n // they leave
		return n
	}
	for range 100 {
		assert.True(t, h.admit(now, window), "at first all may wait")
	}
	h.line.places = 0
	for range 6 { // the trouble lasts
		now = now.Add(time.Second)
		h.line.refusal = now
	}
	assert.Equal(t, 1, admitted(), "the line has served nothing")
	for range 10 {
		h.line.serve(now, window)
	}
	assert.Equal(t, 11, admitted())
	now = now.Add(window - 1)
	assert.Equal(t, 5, admitted(), "what it has served fades: 10/e, and one")
	now = now.Add(window)
	assert.True(t, h.admit(now, window))
	assert.True(t, h.admit(now, window), "another trouble")
}

// A test's clock may go back, from one bubble to the next.
func TestLineAfterTheClockWentBack(t *testing.T) {
	const window = 5 * time.Second
	h := newHealth(new(atomic.Int64))
	now := time.Now()
	assert.True(t, h.admit(now.Add(time.Hour), window))
	for range 6 {
		now = now.Add(time.Second)
		h.admit(now, window)
	}
	assert.False(t, h.admit(now, window), "the trouble lasts")
}
