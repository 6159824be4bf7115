package outage

import (
	"context"
	"time"

	"github.com/retryhttp/retryhttp/internal/timer"
)

// waiter is a retry in the queue, or in the line of retries without a token. The fate's mu guards
// all fields.
type waiter struct {
	wake  chan struct{} // buffers one signal
	place node[waiter]  // in the queue or in the line
	armed time.Time     // the time at which the waiter looks without being woken
	left  bool          // the waiter has left the queue or the line
	pass  Pass

	unpaid   bool // it has no token, and is in the line
	asks     exit // why it may ask for a token now, or unheld
	tenant   *tenant
	ofTenant node[waiter] // among those of the tenant
}

// wait holds a retry that is due while the key is down or other retries are held. It returns at
// the deadline or the end of ctx at the latest, and reports whether the retry was held.
func (f *fate) wait(ctx context.Context, t *timer.Timer, mark uint32, deadline time.Time) (p Pass, held bool) {
	if ctx.Err() != nil {
		// Otherwise the retry would count as begun, although it is not going to be sent.
		return Pass{}, false
	}
	w, p := f.join(mark)
	if w == nil {
		return p, false
	}
	for ended := false; ; held = true {
		at, over := f.look(w, deadline, ended)
		if over {
			return w.pass, held
		}
		t.Start(time.Until(at))
		select {
		case <-w.wake:
		case <-t.C:
		case <-ctx.Done():
			ended = true
		}
		t.Stop()
	}
}

// join queues a retry. It returns a nil waiter if the retry need not wait.
func (f *fate) join(mark uint32) (*waiter, Pass) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.oneMore() // before run is read
	queues := f.down(now) || now.Before(f.crowded) || f.held.first() != nil && now.Before(f.behind)
	if f.forgotten || !queues {
		f.oneLess()
		return nil, Pass{}
	}
	if f.oldest() == nil && f.mark.Load() == mark {
		f.oneLess()
		return nil, f.enter()
	}
	w := &waiter{wake: make(chan struct{}, 1)}
	f.held.add(&w.place, w)
	return w, Pass{}
}

// oldest returns the waiter whose turn is next, or nil. The line is behind the queue. The caller
// holds mu.
func (f *fate) oldest() *waiter {
	if w := f.held.first(); w != nil {
		return w
	}
	return f.line.first()
}

// look reports whether w need not wait any longer. Otherwise it returns when w looks again if
// nothing wakes w earlier.
func (f *fate) look(w *waiter, deadline time.Time, ended bool) (at time.Time, over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if !w.left && (ended || !now.Before(deadline)) {
		f.remove(w)
		f.rouse(now)
	}
	w.armed = deadline
	if f.oldest() == w {
		f.rouse(now)
	}
	select {
	case <-w.wake: // a signal from rouse
	default:
	}
	return w.armed, w.left
}

// rouse sends the oldest retry as a probe if a probe is due. The next probe may be due later, but
// before the first retry in the queue looks at the clock. rouse then wakes this retry, which
// resets its timer. The caller holds mu.
func (f *fate) rouse(now time.Time) {
	if f.oldest() == nil {
		return
	}
	if due, ok := f.probeDue(now); ok && !due.After(now) {
		f.sendProbe(now)
	}
	w := f.oldest()
	if due, ok := f.probeDue(now); ok && w != nil && due.Before(w.armed) {
		w.armed = due
		w.signal()
	}
}

// probeDue returns when the next probe is due, unless it has to wait for a result. A probe may be due
// although its credentials are limited: it then gives its turn back.
//
// What is under way is going to tell, so a probe waits for it. At the beginning of a run it does not
// wait for long: one attempt that hangs, or a long poll, would strand the others.
func (f *fate) probeDue(now time.Time) (due time.Time, ok bool) {
	pause := f.pause
	if f.probing {
		pause = firstPause
	}
	due = f.newest.Add(pause)
	if f.run.Load() > 0 && f.isShortLine() && !f.line.isLasting(due, f.window) {
		due = f.newest.Add(time.Duration(shortLinePauses * float64(pause)))
	}
	if !f.underWay.none() {
		if now.Sub(f.since) >= f.window {
			return time.Time{}, false
		}
		due = later(due, f.born.Add(time.Duration(f.entered.Load())).Add(f.window/blockedFor))
	}
	if closed := &f.closures.host; closed.left(now) > 0 {
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
func (f *fate) isShortLine() bool { return f.held.first() == nil && f.queued.Load() < freeProbesFrom }

// sendProbe releases the oldest retry as a probe, or has it ask for a token. The next probe has a
// pause of its own, whatever the answer: a probe that is refused does not pass its turn on.
func (f *fate) sendProbe(now time.Time) {
	w := f.oldest()
	if f.isShortLine() && f.line.isLasting(now, f.window) {
		f.newest, f.probing = now, false
		f.letAsk(w, asProbe)
		return
	}
	f.release(w, now, asProbe)
}

// release takes w out of the queue or the line, and sends it. If the newest result is a success, a
// probe does not count as under way. Otherwise a host that is healthy but slow would get only one
// probe per answer. The next probe waits for firstPause, or for a result.
func (f *fate) release(w *waiter, now time.Time, how exit) {
	switch {
	case how == bySuccess:
		w.pass.released = f
	case f.run.Load() > 0:
		w.pass = f.enter()
	default:
		w.pass.released = f
		f.newest, f.probing = now, true
	}
	w.pass.left = how
	f.remove(w)
	w.signal()
}

// spend releases the oldest retries for which there is credit. The oldest in the line needs a token
// as well, and asks for it. It may ask at each success while the host has not been down lately.
// If the host is closed, credit for one retry is kept. The caller holds mu.
func (f *fate) spend(now time.Time) {
	for w := f.oldest(); w != nil && f.closures.host.left(now) == 0; w = f.oldest() {
		free := !w.unpaid || f.queued.Load() >= freeProbesFrom && f.withoutFirsts(now)
		if f.credit < successesPerRelease && (free || now.Before(f.behind)) {
			break
		}
		f.credit = max(f.credit-successesPerRelease, 0)
		if !free {
			f.letAsk(w, bySuccess)
			break
		}
		f.release(w, now, bySuccess)
	}
	f.credit = min(f.credit, successesPerRelease)
}

// passOn releases the next retry in place of a released retry that was canceled.
func (f *fate) passOn() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.credit += successesPerRelease
	f.spend(now)
	f.rouse(now)
}

// remove takes w out of the queue or the line. The caller holds mu.
func (f *fate) remove(w *waiter) {
	if w.unpaid {
		f.line.remove(w)
		f.unpaid.Add(-1)
	} else {
		w.place.remove()
	}
	w.left = true
	if f.oldest() == nil {
		f.pause, f.credit = firstPause, 0
	}
	f.oneLess()
}

// oneMore and oneLess update queued. trouble may be too high for a moment, but never too low,
// or a success would see no trouble. The caller holds mu.
func (f *fate) oneMore() {
	f.trouble.Add(1)
	if f.queued.Add(1) > 1 {
		f.trouble.Add(-1)
	}
}

func (f *fate) oneLess() {
	if f.queued.Add(-1) == 0 {
		f.trouble.Add(-1)
	}
}

// letAsk lets w ask for a token, and others after it if it is refused. The caller holds mu.
func (f *fate) letAsk(w *waiter, how exit) {
	f.line.tenants.begin(w)
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
