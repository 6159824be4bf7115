package retryhttp

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
)

// stallWatch ends an attempt if a Read of its response body gets nothing for too long. The timer
// runs only during a Read, so a slow caller does not count as a stall.
type stallWatch struct {
	after  time.Duration
	cancel context.CancelCauseFunc // cancels the attempt
	body   io.ReadCloser

	timer *time.Timer // nil before the first Read
	fired atomic.Bool
}

func (w *stallWatch) read(p []byte) (int, error) {
	if w.timer == nil {
		w.timer = time.AfterFunc(w.after, w.fire)
	} else {
		w.timer.Reset(w.after)
	}
	defer w.timer.Stop()
	n, err := w.body.Read(p)
	if err != nil && w.fired.Load() {
		err = &stallError{w.after} // even a clean end may be the result of the cancellation
	}
	return n, err
}

func (w *stallWatch) fire() {
	w.fired.Store(true)
	w.cancel(&stallError{w.after})
	freeRead(w.body)
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

// stallError is the error of a body that delivered nothing for longer than Policy.StallTimeout.
// It implements net.Error.
type stallError struct{ after time.Duration }

func (e *stallError) Error() string {
	return fmt.Sprintf("the response body stalled for %v", e.after)
}
func (e *stallError) Timeout() bool        { return true }
func (e *stallError) Temporary() bool      { return true }
func (e *stallError) Is(target error) bool { return target == context.DeadlineExceeded }
