package otelretry

import (
	"net/http"
	"sync"
)

// waits counts an operation as waiting while no attempt is under way, and another may follow. An
// attempt that looks like the last does not begin a wait, so that a success costs nothing.
type waits struct {
	metrics *metrics
	req     *http.Request

	mu        sync.Mutex
	underWay  int  // attempts
	returned  bool // RoundTrip has returned
	resumable bool // a Read of the caller's may resume the body
	waiting   bool
}

// beginAttempt ends the wait for an attempt.
func (w *waits) beginAttempt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.underWay++
	w.set(false)
}

// endAttempt begins a wait if nothing else is under way and the result is a failure. A failure that
// is returned to the caller ends the wait at once.
func (w *waits) endAttempt(resp *http.Response, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.underWay--
	failed := err != nil || resp == nil || resp.StatusCode >= http.StatusBadRequest
	if failed && w.underWay == 0 && !w.returned {
		w.set(true)
	}
}

// begin begins a wait that endAttempt has not begun: a Classify has made a success retryable, the
// body of a success broke off, or, with resumption, the caller reads that body.
func (w *waits) begin(resumption bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if resumption || w.underWay == 0 && !w.returned {
		w.set(true)
	}
}

// mayResume has the break of a body begin a wait. The Read in which a body breaks off ends the wait.
func (w *waits) mayResume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resumable = true
}

// breakOff begins the wait for an attempt that resumes a body.
func (w *waits) breakOff() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.resumable {
		w.set(true)
	}
}

// end ends the wait when RoundTrip or a Read returns.
func (w *waits) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.returned = true
	w.set(false)
}

func (w *waits) set(waiting bool) {
	if w.waiting == waiting {
		return
	}
	w.waiting = waiting
	by := int64(-1)
	if waiting {
		by = 1
	}
	l := w.metrics.labels.of(w.req, "", false)
	w.metrics.waiting.Add(w.req.Context(), by, l.count...)
}
