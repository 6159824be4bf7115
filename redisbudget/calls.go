package redisbudget

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// arm schedules the next call. The caller holds the lock and has folded the deposits.
func (a *account) arm(now time.Time) {
	if a.calling != nil || a.silent {
		return
	}
	// A deposit is counted before it looks at due. arm clears due before it looks at the
	// count, so that no deposit is overlooked.
	a.due.Store(false)
	if a.deposits.Load() != a.folded {
		a.fold(now)
	}
	at, ok := a.next(now)
	if !ok {
		return
	}
	a.due.Store(a.unreported.any())
	switch wait := max(at.Sub(now), 0); {
	case wait == 0 && (a.timer == nil || !a.timer.Stop()):
		// Not a new timer of 0: several at once in a bubble make the race detector of Go 1.26 crash.
		go a.call()
	case a.timer == nil:
		a.timer = time.AfterFunc(wait, a.call)
	default:
		a.timer.Reset(wait)
	}
}

func (a *account) stopTimer() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// next returns the time at which the next call is due, if any.
func (a *account) next(now time.Time) (at time.Time, ok bool) {
	sinceCall := now.Sub(a.began)
	switch {
	case a.refused && now.Sub(a.brought) >= a.settings.interval:
		return now, true
	case a.granted && !a.failing:
		return a.limiter.next(a.settings.interval), true
	case a.unreported.any():
		if sinceCall >= a.settings.interval {
			return now, true
		}
		return a.began.Add(a.settings.interval + a.spread), true
	}
	// With nothing to report, the process asks after an Interval, and then again after twice the
	// time, and so on. So it knows the balance before its next request fails.
	idle := max(a.began.Sub(a.used), a.settings.interval)
	at = a.began.Add(idle + a.spread)
	return at, at.Sub(a.used) <= a.settings.keep
}

// call makes the call that is due. It runs in a goroutine of its own.
func (a *account) call() {
	if sent, ok := a.beginDue(); ok {
		a.bucket.send(&call{a: a, ctx: context.Background(), sent: sent})
	}
}

// beginDue begins a call, if one is due now. The timer may have fired before its time was
// changed.
func (a *account) beginDue() (sent unreported, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.calling != nil || a.silent || a.gone {
		return sent, false
	}
	now := time.Now()
	a.fold(now)
	if at, any := a.next(now); !any || at.After(now) {
		a.arm(now)
		return sent, false
	}
	return a.begin(now), true
}

// begin takes the amounts to report. The caller holds the lock and has folded the deposits.
func (a *account) begin(now time.Time) (sent unreported) {
	sent, a.unreported = a.unreported, unreported{}
	switch early := now.Sub(a.began) < a.settings.interval; {
	case early && a.refused && now.Sub(a.brought) >= a.settings.interval:
		a.brought = now
	case a.granted:
		a.limiter.take(now, a.settings.interval)
	}
	a.granted, a.refused = false, false
	a.began = now
	a.spread = time.Duration(rand.Int64N(int64(a.settings.interval/5) + 1))
	a.calling = make(chan struct{})
	a.due.Store(true)
	a.startWatch()
	return sent
}

// end books the result of a call. It returns an error if the call took so long that the own
// bucket has decided meanwhile.
func (a *account) end(c *call) (slow error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.fold(now)
	if took := now.Sub(a.began); took > a.settings.patience && a.view.known {
		// A first call may have to dial.
		slow = fmt.Errorf("%w: an answer took %v, and the process decides alone after %v",
			ErrSlow, took.Round(time.Millisecond), a.settings.patience)
	}
	if c.err != nil {
		a.keepForLater(c, now)
	} else {
		a.see(c)
	}
	a.failing = c.err != nil
	close(a.calling)
	a.calling = nil
	a.stopWatch()
	a.arm(now)
	return slow
}

// see makes the view from the answer to a call, and from what has happened here since the call
// began.
func (a *account) see(c *call) {
	old := a.view
	a.view = view{known: true, tokens: c.got.tokens, capacity: c.got.capacity, asked: a.began}
	a.view.earn(a.unreported.earned)
	a.view.take(a.unreported.withdrawals)
	a.view.follow(&old, c.sent.withdrawals)
}

// keepForLater keeps the amounts that a failed call did not report. If the server may have
// booked the call anyway, deposits and refunds are not reported a second time. Either would
// grant tokens that were not earned.
func (a *account) keepForLater(c *call, now time.Time) {
	sent := c.sent
	if !c.unbooked() {
		sent.deposits, sent.earned = 0, 0
		sent.withdrawals = max(sent.withdrawals, 0)
	}
	before, since := decay(now.Sub(a.began), a.settings.fade)
	sent = sent.faded(before)
	if !a.failing { // amounts since the call began have not faded yet
		a.unreported = a.unreported.faded(since)
	}
	a.unreported.deposits += sent.deposits
	a.unreported.earned += sent.earned
	a.unreported.withdrawals += sent.withdrawals
}

// close ends all reports except by reportRest, and reports whether reportRest has something to
// do.
func (a *account) close() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fold(time.Now())
	a.silence()
	a.stopTimer()
	return a.calling != nil || a.unreported.any()
}

// reportRest waits for the call under way, reports the rest, and then calls done. If ctx
// ends before that call, reportRest does nothing more.
func (a *account) reportRest(ctx context.Context, done func(error)) {
	a.mu.Lock()
	calling := a.calling
	a.mu.Unlock()
	if calling != nil {
		select {
		case <-calling:
		case <-ctx.Done():
			return
		}
	}
	a.mu.Lock()
	if !a.unreported.any() {
		a.mu.Unlock()
		done(nil)
		return
	}
	sent := a.begin(time.Now())
	a.mu.Unlock()
	a.bucket.send(&call{a: a, ctx: ctx, sent: sent, done: done})
}
