// Package pause has the wait of a test's server, body or dial.
package pause

import (
	"context"
	"time"

	"github.com/retryhttp/retryhttp/internal/timer"
)

// For waits for d, or until ctx ends. It returns the cause of the context's end, if it has ended.
//
// A pause that is over already needs no timer. In a bubble of testing/synctest, Go 1.26 runs such a
// timer in the goroutine that waits for it, and two of them at once make the race detector crash.
func For(ctx context.Context, d time.Duration) error {
	var t timer.Timer
	t.Sleep(ctx, d)
	return context.Cause(ctx)
}
