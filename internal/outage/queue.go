package outage

import (
	"container/list"
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
	// grant later what it refuses. Ask is nil for a retry that has its token, and becomes nil once it has.
	Ask func() (granted, later bool)
}

// waiter is a retry in the queue, or in the line of retries without a token. The mutex of the key's health guards
// all fields.
type waiter struct {
	wake  chan struct{} // buffers one signal
	place *list.Element // in the queue, or among the retries of its tenant
	armed time.Time     // the time at which the waiter looks without being woken
	left  bool          // the waiter has left the queue or the line
	pass  Pass

	tenant *tenant // whose bucket it draws on in the line; nil in the queue
	asks   exit    // why it may ask for a token now, or unheld
}

// wait holds a retry that no closure holds until its turn comes. It returns at the deadline or the end
// of the request's context at the latest. A retry from the line is ok if it has its token, or needs none.
func (h *health) wait(req *http.Request, bucket any, t *timer.Timer, turn *Turn, deadline time.Time) (p Pass, held, ok bool) {
	w, p := h.join(bucket, turn)
	if w == nil {
		if turn.Ask != nil { // it asks for the first and the last time
			if granted, _ := turn.Ask(); granted {
				turn.Ask = nil
			}
		}
		return p, false, turn.Ask == nil
	}
	for ended := false; ; held = true {
		at, asks, left := h.look(w, deadline, ended)
		switch {
		case left:
			return w.pass, held, turn.Ask == nil || w.pass.exit != unheld
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

// open reports whether a retry that has its token may be sent. It does not read the clock: after a few
// failures, most retries need nothing else.
func (h *health) open() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.failing() && h.queued() == 0 && len(h.closures.byKey) == 0 && h.crowded.IsZero()
}

// join queues a retry, or puts it into the line. It returns a nil waiter if the retry need not wait, or if it has no
// token and is alone: nothing waits, and nothing has begun since its own failure. In most cases only a later failure
// could follow its wait.
func (h *health) join(bucket any, turn *Turn) (*waiter, Pass) {
	h.mu.Lock()
	defer h.unlock()
	now := time.Now()
	paid, alone := turn.Ask == nil, h.queued() == 0 && h.mark == turn.Mark
	queues := h.down(now) || now.Before(h.crowded) || h.held.Len() > 0 && now.Before(h.behind)
	switch {
	case paid && !queues, !paid && alone && h.line.places == 1 && h.failures > 0 && !h.mayBeShort(now):
		return nil, Pass{}
	case paid && alone:
		return nil, h.enter(now)
	}
	w := &waiter{wake: make(chan struct{}, 1)}
	if paid {
		w.place = h.held.PushBack(w)
	} else {
		h.line.add(w, bucket)
	}
	return w, Pass{}
}

// mayBeShort reports whether the outage may soon be over, for the first retry that the trouble refuses: a probe may then
// succeed. Who sends little has nobody else to ask the host.
func (h *health) mayBeShort(now time.Time) bool {
	return h.line.refusal.Equal(h.line.trouble) && h.failures >= aloneAfter && now.Sub(h.since) < h.hold
}

// queued returns how many retries wait for a success.
func (h *health) queued() int { return h.held.Len() + h.line.length }

// next returns the waiter whose turn is next, or nil. The line is behind the queue.
func (h *health) next() *waiter {
	if w := first[waiter](&h.held); w != nil {
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
	if !w.left && (ended || over && w.tenant == nil) {
		h.remove(w)
		if !ended && h.failures > 0 { // it is sent now, and the next probe waits for it
			w.pass = h.enter(now)
		}
		if w.asks == bySuccess { // the next one has its turn
			h.credit += successesPerRelease
			h.spend(now)
		}
		h.checkProbe(now)
	}
	w.armed = deadline
	if !over { // w may have made the line long
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

// checkProbe sends the next retry as a probe if a probe is due. The next probe may be due later, but
// before the first retry in the queue looks at the clock. checkProbe then wakes this retry, which
// resets its timer.
func (h *health) checkProbe(now time.Time) {
	if h.queued() == 0 {
		return
	}
	if due, ok := h.probeDue(now); ok && !due.After(now) {
		h.sendProbe(now)
	}
	w := h.next()
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
	if h.failures > 0 && h.isShortLine() && !h.line.isLasting(due, h.hold) {
		due = h.newest.Add(shortLinePause)
	}
	if h.failures > 0 && h.underWay > 0 {
		if now.Sub(h.since) >= h.hold {
			return time.Time{}, false
		}
		due = latest(due, h.entered.Add(h.hold/blockedPart))
	}
	if closed := h.closures.host(); closed.left(now) > 0 {
		due = latest(due, closed.until)
	}
	return due, true
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// isShortLine reports whether all that waits is in the line, and few wait.
func (h *health) isShortLine() bool { return h.held.Len() == 0 && h.line.length < freeProbesFrom }

// sendProbe releases the next retry as a probe, or has it ask for a token. The next probe has a
// pause of its own, whatever the answer: a probe that is refused does not pass its turn on.
func (h *health) sendProbe(now time.Time) {
	if h.isShortLine() && h.line.isLasting(now, h.hold) {
		h.newest = now
		h.line.begin()
		h.line.letAsk(asProbe)
		return
	}
	h.release(h.next(), now, asProbe)
}

// release takes w out of the queue or the line, and sends it. If the newest result is a success, a
// probe does not count as under way. Otherwise a host that is healthy but slow would get only one
// probe per answer.
func (h *health) release(w *waiter, now time.Time, how exit) {
	switch {
	case how == bySuccess:
		w.pass.released = h
	case h.failures > 0:
		w.pass = h.enter(now)
	default:
		w.pass.released = h
		h.newest = now
	}
	w.pass.exit = how
	if w.tenant != nil {
		h.line.order.MoveToBack(w.tenant.place) // its bucket has had its turn
	}
	h.remove(w)
	w.signal()
}

// spend releases the oldest retries for which there is credit. A retry in the line needs a token
// as well, and asks for it. It may ask at each success while the host has not been down lately.
// If the host is closed, credit for one retry is kept.
func (h *health) spend(now time.Time) {
	for w := h.next(); w != nil && h.closures.host().left(now) == 0; w = h.next() {
		free := w.tenant == nil || h.line.length >= freeProbesFrom && h.withoutFirsts(now)
		if h.credit < successesPerRelease && (free || now.Before(h.behind)) {
			break
		}
		h.credit = max(h.credit-successesPerRelease, 0)
		if !free {
			h.line.begin()
			h.line.letAsk(bySuccess)
			break
		}
		h.release(w, now, bySuccess)
	}
	h.credit = min(h.credit, successesPerRelease)
}

// remove takes w out of the queue or the line.
func (h *health) remove(w *waiter) {
	if w.tenant != nil {
		h.line.remove(w)
	} else {
		h.held.Remove(w.place)
	}
	w.left = true
	if h.queued() == 0 {
		h.pause, h.credit = firstPause, 0
	}
}

func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
