// Package timer has the timer that a RoundTrip waits with, and the deadline of its attempts.
package timer

import (
	"context"
	"time"
)

// Timer is made when it is first needed. The zero value is ready to use, by one goroutine at a
// time.
//
// Timers are not kept in a sync.Pool for later RoundTrips. A time.Timer that was made in one
// testing/synctest bubble must not be used in another bubble, and a Transport may serve several
// bubbles.
type Timer struct{ *time.Timer }

// Start has the timer fire after d.
func (t *Timer) Start(d time.Duration) {
	if t.Timer == nil {
		t.Timer = time.NewTimer(d)
	} else {
		t.Reset(d)
	}
}

// Sleep waits for d, or until ctx ends.
func (t *Timer) Sleep(ctx context.Context, d time.Duration) {
	if d <= 0 || ctx.Err() != nil {
		return
	}
	t.Start(d)
	select {
	case <-t.C:
	case <-ctx.Done():
		t.Stop()
	}
}
