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

// begin starts the timer of a Read.
func (w *stallWatch) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reading = true
	w.start()
}

// start starts the timer if a Read is under way that somebody waits for.
func (w *stallWatch) start() {
	switch {
	case !w.reading || w.paused:
	case w.timer == nil:
		w.timer = time.AfterFunc(w.after, w.fire)
	default:
		w.timer.Reset(w.after)
	}
}

func (w *stallWatch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reading = false
	if w.timer != nil {
		w.timer.Stop()
	}
}

// pause stops the timer of a Read that nobody waits for any more. A nil stallWatch has no timer.
func (w *stallWatch) pause() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

// resume starts the timer anew for a Read that somebody waits for again.
func (w *stallWatch) resume() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paused {
		w.paused = false
		w.start()
	}
}

func (w *stallWatch) read(p []byte) (int, error) {
	w.begin()
	defer w.stop()
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
