package outage

import (
	"math"
	"time"
)

// line holds the retries that the budget has refused. They wait for a token, behind the retries that
// have one. The mutex of the key's health guards all fields.
//
// For a while, every refused retry may join: the trouble may be short. In lasting trouble most would
// wait for nothing, so that no more may wait than the line has lately served, and one.
type line struct {
	tenants
	places    int       // number of retries in the line or on their way
	trouble   time.Time // the first refusal of the trouble
	refusal   time.Time // the newest refusal
	outage    bool      // it has failures, and not rejections alone
	recovered bool      // there was a success since then
	served    float64   // number of retries that got a token, with an exponential decay
	servedAt  time.Time
}

// forgottenAfter is the longest pause between two refusals of one trouble.
const forgottenAfter = 30 * time.Minute

// admit counts a refusal, and reports whether the retry may join the line.
//
// A trouble is over after hold without a refusal, and not without a success: after each pause, a page with
// two calls to a dead service would be slow. A trouble of rejections alone needs no success, for it has no run
// that one could end.
func (h *health) admit(now time.Time, hold time.Duration) bool {
	h.hold = hold
	l := &h.line
	since := now.Sub(l.refusal)
	over := since >= hold && (!l.outage || l.recovered) || since >= forgottenAfter
	if since < 0 || over {
		l.trouble, l.outage = now, false
	}
	if !l.outage {
		l.outage, l.recovered = h.failures > 0, false
	}
	l.refusal = now
	if l.isLasting(now, hold) && float64(l.places) >= l.servedWithin(now, hold)+1 {
		return false
	}
	l.places++
	return true
}

// isLasting reports whether the trouble has lasted for hold.
func (l *line) isLasting(now time.Time, hold time.Duration) bool {
	return now.Sub(l.trouble) >= hold
}

// serve counts a retry that got a token.
func (l *line) serve(now time.Time, hold time.Duration) {
	l.served = l.servedWithin(now, hold) + 1
	l.servedAt = now
}

func (l *line) servedWithin(now time.Time, hold time.Duration) float64 {
	return l.served * math.Exp(-max(now.Sub(l.servedAt), 0).Seconds()/hold.Seconds())
}

// Admit reports whether a retry that the budget has refused may wait in the key's line. If so, the
// caller calls Leave with this key when the retry no longer waits. The key's health is not forgotten
// before. hold is the longest time that a retry is held.
func (w *Watch) Admit(key string, hold time.Duration) (admitted bool) {
	w.update(key, func(h *health, now time.Time) { admitted = h.admit(now, hold) })
	return admitted
}

// Leave gives up the place in the line that Admit gave.
func (w *Watch) Leave(key string) {
	w.update(key, func(h *health, _ time.Time) { h.line.places-- })
}

// ask asks for the token of w.
func (h *health) ask(w *waiter, why exit, turn *Turn) {
	granted, later, panicked := false, false, true
	defer func() {
		h.answer(w, why, granted, later)
		if panicked {
			w.pass.GiveBack()
		}
	}()
	granted, later = turn.Ask()
	panicked = false
	if granted {
		turn.Ask = nil
	}
}

// answer takes w out of the line if it has got its token, or has nothing left to wait for. A probe may have
// released it meanwhile.
func (h *health) answer(w *waiter, why exit, granted, later bool) {
	h.mu.Lock()
	defer h.unlock()
	now := time.Now()
	switch {
	case granted:
		h.line.serve(now, h.hold)
	case why != atTheEnd:
		h.line.letAsk(why)
	}
	switch {
	case w.left:
	case granted && why != atTheEnd:
		h.release(w, now, why)
	case !later || why == atTheEnd:
		h.remove(w)
	}
	h.checkProbe(now)
}
