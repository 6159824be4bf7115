package outage

import (
	"net/http"
	"time"

	"github.com/retryhttp/retryhttp/internal/timer"
)

// Turn is what a retry that is due waits with.
type Turn struct {
	Mark  uint32        // from the End of the previous attempt
	Heed  bool          // closures hold the retry as well
	Limit time.Duration // the longest wait

	// Ask asks the budget for the token of a retry in the line. later reports whether the budget may
	// grant later what it refuses. Ask is nil for a retry that has its token.
	Ask func() (granted, later bool)
}

// waiter is a retry in the queue, or in the line of retries without a token. The mutex of the key's health guards
// all fields.
type waiter struct {
	wake  chan struct{} // buffers one signal
	place node[waiter]  // in the queue or in the line
	armed time.Time     // the time at which the waiter looks without being woken
	left  bool          // the waiter has left the queue or the line
	pass  Pass

	unpaid   bool // it is in the line
	granted  bool // it has got its token there
	asks     exit // why it may ask for a token now, or unheld
	tenant   *tenant
	ofTenant node[waiter] // among those of the tenant
}

// admission is how a wait has ended.
type admission uint8

const (
	refused admission = iota
	paid              // the retry has its token
	free              // it needs none, as a probe or in a long line
)

// wait holds a retry that no closure holds until its turn comes. It returns at the deadline or the end
// of the request's context at the latest.
func (h *health) wait(req *http.Request, bucket any, t *timer.Timer, turn *Turn, deadline time.Time) (p Pass, how admission, held bool) {
	w, p, how := h.join(bucket, turn)
	if w == nil {
		return p, how, false
	}
	for ended := false; ; held = true {
		at, asks, left := h.look(w, deadline, ended)
		switch {
		case left:
			return w.pass, w.admission(), held
		case asks != unheld:
			h.ask(w, asks, turn)
			continue
		}
		t.Start(time.Until(at))
		select {
		case <-w.wake:
		case <-t.C:
		case <-req.Context().Done():
			ended = true
		}
		t.Stop()
	}
}

// admission returns how w has left the queue or the line.
func (w *waiter) admission() admission {
	switch {
	case !w.unpaid || w.granted:
		return paid
	case w.pass.exit != unheld:
		return free
	}
	return refused
}

// join queues a retry. It returns a nil waiter if the retry need not wait, or would wait in vain.
func (h *health) join(bucket any, turn *Turn) (*waiter, Pass, admission) {
	if turn.Ask != nil {
		w := h.addToLine(bucket, turn)
		if w == nil { // it is alone, and asks for the first and the last time
			if granted, _ := turn.Ask(); !granted {
				return nil, Pass{}, refused
			}
		}
		return w, Pass{}, paid
	}
	h.mu.Lock()
	defer h.unlock()
	now := time.Now()
	queues := h.down(now) || now.Before(h.crowded) || h.held.first() != nil && now.Before(h.behind)
	if !queues {
		return nil, Pass{}, paid
	}
	if h.oldest() == nil && h.mark == turn.Mark {
		return nil, h.enter(now), paid
	}
	w := &waiter{wake: make(chan struct{}, 1)}
	h.held.add(&w.place, w)
	h.queued++
	return w, Pass{}, paid
}

// oldest returns the waiter whose turn is next, or nil. The line is behind the queue. The caller
// holds mu.
func (h *health) oldest() *waiter {
	if w := h.held.first(); w != nil {
		return w
	}
	return h.line.first()
}

// look reports whether w has left the queue or the line, or may ask for a token. Otherwise it returns
// when w looks again if nothing wakes w earlier.
func (h *health) look(w *waiter, deadline time.Time, ended bool) (at time.Time, asks exit, left bool) {
	h.mu.Lock()
	defer h.unlock()
	now := time.Now()
	over := !now.Before(deadline)
	if !w.left && (ended || over && !w.unpaid) {
		h.remove(w)
		if w.asks == bySuccess { // the next one has its turn
			h.credit += successesPerRelease
			h.spend(now)
		}
		h.checkProbe(now)
	}
	w.armed = deadline
	if !w.left && !over && (w.unpaid || h.oldest() == w) { // w may have made the line long
		h.checkProbe(now)
	}
	select {
	case <-w.wake: // a signal from checkProbe
	default:
	}
	asks, w.asks = w.asks, unheld
	if over {
		asks = atTheEnd
	}
	return w.armed, asks, w.left
}

// checkProbe sends the oldest retry as a probe if a probe is due. The next probe may be due later, but
// before the first retry in the queue looks at the clock. checkProbe then wakes this retry, which
// resets its timer. The caller holds mu.
func (h *health) checkProbe(now time.Time) {
	if h.oldest() == nil {
		return
	}
	if due, ok := h.probeDue(now); ok && !due.After(now) {
		h.sendProbe(now)
	}
	w := h.oldest()
	if due, ok := h.probeDue(now); ok && w != nil && due.Before(w.armed) {
		w.armed = due
		w.signal()
	}
}

// probeDue returns when the next probe is due, unless it has to wait for a result. A probe may be due for
// a retry whose credentials are limited. It then gives its turn back.
//
// In a run, what is under way is going to tell, so a probe waits for it. At the beginning of a run it does not
// wait for long: one attempt that hangs, or a long poll, would strand the others.
func (h *health) probeDue(now time.Time) (due time.Time, ok bool) {
	due = h.newest.Add(h.pause)
	if h.run > 0 && h.isShortLine() && !h.line.isLasting(due, h.hold) {
		due = h.newest.Add(time.Duration(shortLinePauses * float64(h.pause)))
	}
	if h.run > 0 && h.underWay > 0 {
		if now.Sub(h.since) >= h.hold {
			return time.Time{}, false
		}
		due = later(due, h.entered.Add(h.hold/blockedFor))
	}
	if closed := &h.closures.host; closed.left(now) > 0 {
		due = later(due, closed.until)
	}
	return due, true
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// isShortLine reports whether all that waits is in the line, and few wait.
func (h *health) isShortLine() bool { return h.held.first() == nil && h.queued < freeProbesFrom }

// sendProbe releases the oldest retry as a probe, or has it ask for a token. The next probe has a
// pause of its own, whatever the answer: a probe that is refused does not pass its turn on.
func (h *health) sendProbe(now time.Time) {
	w := h.oldest()
	if h.isShortLine() && h.line.isLasting(now, h.hold) {
		h.newest = now
		h.letAsk(w, asProbe)
		return
	}
	h.release(w, now, asProbe)
}

// release takes w out of the queue or the line, and sends it. If the newest result is a success, a
// probe does not count as under way. Otherwise a host that is healthy but slow would get only one
// probe per answer.
func (h *health) release(w *waiter, now time.Time, how exit) {
	switch {
	case how == bySuccess:
		w.pass.released = h
	case h.run > 0:
		w.pass = h.enter(now)
	default:
		w.pass.released = h
		h.newest = now
	}
	w.pass.exit = how
	h.remove(w)
	w.signal()
}

// spend releases the oldest retries for which there is credit. The oldest in the line needs a token
// as well, and asks for it. It may ask at each success while the host has not been down lately.
// If the host is closed, credit for one retry is kept. The caller holds mu.
func (h *health) spend(now time.Time) {
	for w := h.oldest(); w != nil && h.closures.host.left(now) == 0; w = h.oldest() {
		free := !w.unpaid || h.queued >= freeProbesFrom && h.withoutFirsts(now)
		if h.credit < successesPerRelease && (free || now.Before(h.behind)) {
			break
		}
		h.credit = max(h.credit-successesPerRelease, 0)
		if !free {
			h.letAsk(w, bySuccess)
			break
		}
		h.release(w, now, bySuccess)
	}
	h.credit = min(h.credit, successesPerRelease)
}

// passOn releases the next retry in place of a released retry that was canceled.
func (h *health) passOn() {
	h.mu.Lock()
	defer h.unlock()
	now := time.Now()
	h.credit += successesPerRelease
	h.spend(now)
	h.checkProbe(now)
}

// remove takes w out of the queue or the line. The caller holds mu.
func (h *health) remove(w *waiter) {
	if w.unpaid {
		h.line.remove(w)
	} else {
		w.place.remove()
	}
	w.left = true
	h.queued--
	if h.oldest() == nil {
		h.pause, h.credit = firstPause, 0
	}
}

// letAsk lets w ask for a token, and others after it if it is refused. The caller holds mu.
func (h *health) letAsk(w *waiter, how exit) {
	h.line.tenants.begin(w)
	w.ask(how)
}

// ask lets w ask for a token.
func (w *waiter) ask(how exit) {
	w.asks = how
	w.signal()
}

func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
