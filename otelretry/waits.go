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

	mu       sync.Mutex
	underWay int     // attempts
	returned bool    // RoundTrip has returned
	reading  bool    // a Read of the caller's is under way, and may resume the body
	waiting  *labels // of the wait, or nil: WithServer may give another name at its end
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

// begin begins a wait that endAttempt has not begun: a Classify has made a success retryable, or the body
// of a success broke off.
func (w *waits) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.set(true)
}

// beginRead has the break of a body begin a wait, until end.
func (w *waits) beginRead() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reading = true
}

// breakOff begins the wait for an attempt that resumes a body. Other bodies may break off in the
// background, where the caller reads nothing: the bodies of failed attempts.
func (w *waits) breakOff() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reading && w.underWay == 0 {
		w.set(true)
	}
}

// end ends the wait when RoundTrip or a Read returns.
func (w *waits) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.returned, w.reading = true, false
	w.set(false)
}

func (w *waits) set(waiting bool) {
	if (w.waiting != nil) == waiting {
		return
	}
	if !waiting {
		w.metrics.waiting.Add(w.req.Context(), -1, w.waiting.count...)
		w.waiting = nil
		return
	}
	w.waiting = w.metrics.labels.of(w.req, "", false)
	w.metrics.waiting.Add(w.req.Context(), 1, w.waiting.count...)
}
