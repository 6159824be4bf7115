package respbody

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
)

// stallWatch ends an attempt if a Read of its response body gets nothing for too long. The timer
// runs only during a Read, so a slow caller does not count as a stall.
type stallWatch struct {
	attempt *Body
	after   time.Duration
	stalled func(after time.Duration) error // makes the error

	fired atomic.Bool

	mu      sync.Mutex  // never held during a Read
	timer   *time.Timer // nil before the first Read
	reading bool        // a Read is under way
	paused  bool        // nobody waits for the Read
}

// note makes a change. It starts the timer anew if somebody then waits for a Read that is under way,
// and stops it if nobody does any more. A nil stallWatch has no timer.
func (w *stallWatch) note(change func()) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	awaited := w.reading && !w.paused
	change()
	switch now := w.reading && !w.paused; {
	case now == awaited:
	case !now:
		w.timer.Stop()
	case w.timer == nil:
		w.timer = time.AfterFunc(w.after, w.fire)
	default:
		w.timer.Reset(w.after)
	}
}

// pause says that nobody waits any more for the Read that is under way, and resume that somebody does.
func (w *stallWatch) pause()  { w.note(func() { w.paused = true }) }
func (w *stallWatch) resume() { w.note(func() { w.paused = false }) }

func (w *stallWatch) read(p []byte) (int, error) {
	w.note(func() { w.reading = true })
	defer w.note(func() { w.reading = false })
	n, err := w.attempt.base.Read(p)
	if err != nil && w.fired.Load() {
		err = w.stalled(w.after) // even a clean end may be the result of the cancellation
	}
	return n, err
}

func (w *stallWatch) fire() {
	w.fired.Store(true)
	w.attempt.Cancel(w.stalled(w.after))
	freeRead(w.attempt.base)
}

// freeRead ends a Read of a body whose attempt was canceled. A base may have lost the attempt's
// context, so net/http's own bodies are also closed. A panic of Close is dropped, because nobody
// could recover it here.
func freeRead(body io.ReadCloser) {
	if closing.WhileRead(body) {
		defer func() { _ = recover() }()
		_ = body.Close()
	}
}
