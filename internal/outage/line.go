package outage

import (
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/timer"
)

// line holds the retries that the budget has refused. They wait for a token, behind the retries that
// have one. The mutex of the key's health guards all fields except the atomics.
//
// For a while, every refused retry may join: the trouble may be short. In lasting trouble most would
// wait for nothing, so that no more may wait than the line has lately served, and one.
type line struct {
	list[waiter]
	tenants   tenants
	places    atomic.Int64 // number of retries in the line or on their way; rises with mu held
	trouble   time.Time    // the first refusal of the trouble
	refusal   time.Time    // the newest refusal
	run       time.Time    // when its first run of failures began; zero in one of rejections
	recovered atomic.Bool  // a success has ended a run since then
	served    float64      // number of retries that got a token, with an exponential decay
	servedAt  time.Time
}

// forgottenAfter is the longest pause between two refusals of one trouble.
const forgottenAfter = 30 * time.Minute

// admit counts a refusal, and reports whether the retry may join the line. The caller holds mu.
//
// A trouble ends with a success, and not with a pause between two batches. Nobody waits in a later
// run before a success: a page with two calls to a dead service would be slow each time. A trouble
// of rejections alone has no such end, and is over after window without a refusal.
func (h *health) admit(now time.Time, window time.Duration) bool {
	h.window = window
	l := &h.line
	since := now.Sub(l.refusal)
	over := since >= window && (l.run.IsZero() || l.recovered.Load()) || since >= forgottenAfter
	if since < 0 || over {
		l.trouble, l.run = now, time.Time{}
	}
	if l.run.IsZero() {
		l.recovered.Store(false) // before run is read, or the end of the run might be missed
		if h.run.Load() != 0 {
			l.run = h.since
		}
	}
	l.refusal = now
	if l.isLasting(now, window) {
		dead := !l.run.IsZero() && !l.run.Equal(h.since) && !l.recovered.Load()
		if dead || float64(l.places.Load()) >= l.servedWithin(window, now)+1 {
			return false
		}
	}
	l.places.Add(1)
	return true
}

// isLasting reports whether the trouble has lasted for so long that most of those who wait would wait
// for nothing.
func (l *line) isLasting(now time.Time, window time.Duration) bool {
	return now.Sub(l.trouble) >= window
}

func (l *line) add(w *waiter, bucket any) {
	l.list.add(&w.place, w)
	l.tenants.add(w, bucket)
}

func (l *line) remove(w *waiter) {
	w.place.remove()
	l.tenants.remove(w)
}

// serve counts a retry that got a token.
func (l *line) serve(now time.Time, window time.Duration) {
	l.served = l.servedWithin(window, now) + 1
	l.servedAt = now
}

func (l *line) servedWithin(window time.Duration, now time.Time) float64 {
	return l.served * math.Exp(-max(now.Sub(l.servedAt), 0).Seconds()/window.Seconds())
}

// leave gives up a place, without the lock: many may leave at one moment.
func (l *line) leave() { l.places.Add(-1) }

// busy reports whether the line is in use, or remembers a trouble.
func (l *line) busy(now time.Time) bool {
	return l.places.Load() > 0 || now.Sub(l.refusal) < idleAfter
}

// Admit reports whether a retry that the budget has refused may wait in the key's line. If so, the
// caller calls Leave with this key when the retry no longer waits. The key's health is not forgotten
// before. window is the longest time that a retry is held.
func (w *Watch) Admit(key string, window time.Duration) (admitted bool) {
	w.update(key, func(h *health, now time.Time) { admitted = h.admit(now, window) })
	return admitted
}

// Leave gives up the place in the line that Admit gave.
func (w *Watch) Leave(key string) { w.keys.Find(key).line.leave() }

// Line is what a retry in the line waits with.
type Line struct {
	Mark   uint32        // from the End of the previous attempt
	Limit  time.Duration // the longest wait
	Window time.Duration // as for Admit
	Heed   bool          // closures hold the retry as well
	Asked  bool          // the server has asked for the retry's wait: the retry is not alone
	// Ask asks the budget for a token. later reports whether the budget may grant later what it refuses.
	Ask func() (granted, later bool)
}

// Queue holds a retry, which has a place, in the line until Ask grants a token, or until a probe needs
// none. It reports false if there is no token at the end of the wait, or the request's context has
// ended. The bucket, which is comparable, tells retries apart that draw on others. It is no field of
// the Line, because it is kept, and the Line's Ask would escape with it.
func (w *Watch) Queue(req *http.Request, key string, bucket any, t *timer.Timer, l Line) (p Pass, granted bool) {
	h := w.keys.Find(key)
	deadline := time.Now().Add(l.Limit)
	for {
		if l.Heed {
			h.waitWhileClosed(req, t, deadline, false)
		}
		if isDone(req.Context()) {
			return Pass{}, false
		}
		p, how := h.queue(req, bucket, t, l, deadline)
		if how == refused || !l.Heed || !h.closedMeanwhile(req) {
			return p, how != refused
		}
		p.GiveBack()
		if how == paid {
			p, _ = w.Wait(req, key, t, l.Mark, time.Until(deadline), true)
			return p, true
		}
	}
}

// admission is how a retry leaves the line.
type admission uint8

const (
	refused admission = iota
	paid              // with a token
	free              // without, as a probe or in a long line
)

// queue is Queue for a retry that no closure holds.
func (h *health) queue(req *http.Request, bucket any, t *timer.Timer, l Line, deadline time.Time) (Pass, admission) {
	w := h.joinLine(bucket, l)
	if w == nil { // it asks for the first and the last time
		if granted, _ := l.Ask(); granted {
			return Pass{}, paid
		}
		return Pass{}, refused
	}
	out := false
	defer func() {
		if !out { // Ask has panicked
			p, _ := h.giveUp(w)
			p.GiveBack()
		}
	}()
	for ended := false; ; {
		at, asks, left := h.lookInLine(w, deadline, ended)
		switch {
		case left:
			out = true
			return w.pass, w.admission()
		case asks != unheld:
			switch granted, later := l.Ask(); {
			case granted:
				out = true
				return h.grant(w, asks, l.Window), paid
			case asks == atTheEnd:
				out = true
				return h.giveUp(w)
			case !later:
				h.passAsk(asks)
				out = true
				return h.giveUp(w)
			}
			h.passAsk(asks)
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

// joinLine puts a retry into the line. It returns nil if the retry is alone: nothing waits, and
// nothing has begun since its own failure. Only a later failure could follow its wait.
func (h *health) joinLine(bucket any, l Line) *waiter {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.oneMore() // before run is read
	alone := !l.Asked && h.line.places.Load() == 1 && h.oldest() == nil && h.run.Load() > 0 && h.mark.Load() == l.Mark
	if alone {
		h.oneLess()
		return nil
	}
	w := &waiter{wake: make(chan struct{}, 1), unpaid: true}
	earned := h.oldest() == nil && h.run.Load() == 0 // perhaps, during its backoff
	h.line.add(w, bucket)
	h.unpaid.Add(1)
	if earned {
		h.letAsk(w, bySuccess)
	}
	return w
}

// lookInLine reports whether w has left the line, or may ask for a token. Otherwise it returns when
// w looks again if nothing wakes w earlier.
func (h *health) lookInLine(w *waiter, deadline time.Time, ended bool) (at time.Time, asks exit, left bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	over := !now.Before(deadline)
	if !w.left && ended {
		h.remove(w)
		if w.asks == bySuccess { // the next one has its turn
			h.credit += successesPerRelease
			h.spend(now)
		}
		h.checkProbe(now)
	}
	w.armed = deadline
	if !w.left && !over {
		h.checkProbe(now) // w may be the oldest, or have made the line long
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

// grant takes w, which has got a token, out of the line.
func (h *health) grant(w *waiter, how exit, window time.Duration) Pass {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	h.line.serve(now, window)
	if w.left {
		return w.pass // a probe has released it meanwhile
	}
	if how == atTheEnd {
		h.remove(w)
		h.checkProbe(now)
		return Pass{}
	}
	h.release(w, now, how)
	h.checkProbe(now)
	return w.pass
}

// giveUp takes w out of the line, unless a probe has released it meanwhile.
func (h *health) giveUp(w *waiter) (Pass, admission) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !w.left {
		h.remove(w)
		h.checkProbe(time.Now())
	}
	return w.pass, w.admission()
}

// admission returns how w has left the line without asking.
func (w *waiter) admission() admission {
	if w.pass.left == unheld {
		return refused
	}
	return free
}

// passAsk lets a retry ask that draws on another bucket than one that was refused.
func (h *health) passAsk(how exit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if next := h.line.tenants.pass(); next != nil {
		next.ask(how)
	}
}
