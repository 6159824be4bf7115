// Package closing closes what other people made. Their Close may take long, and
// it may panic.
package closing

import (
	"io"
	"time"
)

// patience is how long Soon waits. As a rule a Close takes microseconds, so what
// has been closed is seen to be closed; a caller is never held up for longer.
const patience = 10 * time.Millisecond

// Soon closes c, and waits for that no longer than 10 ms. A Close that takes
// longer goes on by itself. A panic of Close surfaces in the caller while the
// caller waits; after that nobody could recover it, and it is dropped.
func Soon(c io.Closer) {
	ended := Begin(c)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case panicked := <-ended:
		if panicked != nil {
			panic(panicked)
		}
	case <-timer.C:
	}
}

// Begin closes c in a goroutine of its own. When Close has ended, the channel
// has the value that Close panicked with, or nil.
func Begin(c io.Closer) <-chan any {
	ended := make(chan any, 1)
	go func() {
		defer func() { ended <- recover() }()
		_ = c.Close()
	}()
	return ended
}
