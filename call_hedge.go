package retryhttp

import (
	"cmp"
	"runtime"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
	"github.com/retryhttp/retryhttp/internal/field"
	"github.com/retryhttp/retryhttp/internal/outage"
)

// sendRacing is send for an attempt beside which r may send a hedge.
func (c *call) sendRacing(r *race, next *attempt, got *result) {
	settled := false
	defer func() {
		if !settled {
			r.abandon()
		}
	}()
	c.transmit(next, got, &r.first)
	r.timer.Stop()
	c.settle(r, next, got)
	settled, c.rival = true, nil
}

// mayBeHedged reports whether two attempts of the request may be sent side by side.
func (c *call) mayBeHedged() bool {
	return field.SafeMethod(c.req.Method) && c.idempotent &&
		(!c.withBody || c.req.GetBody != nil || c.bodies.IsSection()) &&
		// A body may set the trailer when it ends.
		c.req.Header.Get("Upgrade") == "" && len(c.req.Trailer) == 0
}

// arm starts the timer that sends a hedge beside next. It returns nil if next is not hedged.
func (c *call) arm(next *attempt) *race {
	if next.number == 1 && c.mayBeHedged() {
		c.tail = c.policy.Hedge.tail(c.req)
	}
	if c.tail == nil || c.Hedges > 0 || c.madeAll() || AttemptOf(c.req.Context()).Number > 1 {
		return nil
	}
	delay := c.tail.Delay()
	if delay == 0 {
		return nil
	}
	r := &race{exchange: c.exchange, next: attempt{number: next.number + 1, decided: next.begins}}
	r.owned = owned{bodies: c.bodies}
	r.first.begin(next.request.Context(), next.reading)
	r.turn.L = &r.mu
	c.rival, r.rival = r, r
	r.timer = time.AfterFunc(delay, r.fire)
	return r
}

// settle stores the result that counts in next and got.
func (c *call) settle(r *race, next *attempt, got *result) {
	state := c.judgeFirst(r, next, got)
	if state == notSent {
		c.HedgeRefused = c.HedgeRefused || r.refused.Load()
		return
	}
	c.Attempts, c.Hedges = r.next.number, 1
	if state == undecided {
		state = c.awaitHedge(r, next, got)
	}
	if state == panicking {
		if r.panicked == nil {
			runtime.Goexit()
		}
		panic(r.panicked)
	}
	c.newest = r.next.request.Context().(*numbered)
	c.learnFromBelow()
	switch state {
	case firstWon:
		r.lose(got)
	case hedgeWon:
		lost := got.answer()
		*next, *got, r.got = r.next, *r.got, nil
		c.response = got.answer()
		if lost != nil && lost.Body != nil {
			closing.Begin(lost.Body) // nobody waits
		}
		r.first.body.Upload.Cut()
	case hedgeFailed:
		r.next.reading.Cut() // a retry may follow
		if r.got.class != Final {
			got.asked, got.until = max(got.asked, r.got.asked), max(got.until, r.got.until)
			got.inner = cmp.Or(got.inner, r.got.inner)
		}
	}
	if got.stands() {
		c.refund(&r.spent) // the allowance bounds such hedges
	}
}

// judgeFirst judges the first attempt unless the hedge has won. It returns undecided if the first
// attempt has failed, and the hedge is under way.
func (c *call) judgeFirst(r *race, next *attempt, got *result) raceState {
	defer r.giveTurn()
	if !r.takeTurn() {
		c.pass.Abandon()
		c.pass = outage.Pass{}
		r.observe(next)
		return r.state
	}
	c.conclude(next, got)
	r.failed = got.class != Final
	switch {
	case r.second == nil:
		r.state = notSent
	case !r.failed:
		r.state = firstWon // even if the hedge has failed before
	}
	return r.state
}

// awaitHedge awaits the hedge after the first attempt has failed, for as long as a retry would
// wait, and then ends the hedge. This time is part of the retry's wait, so the retry is as early
// as without a hedge unless the hedge's failure asks for a longer wait. Without a retry, the hedge
// is awaited to its end.
func (c *call) awaitHedge(r *race, next *attempt, got *result) raceState {
	failed, retry, limit := c.core.now(), *next, never
	planned := c.refusal(got) == "" && c.plan(got, &retry) == ""
	if planned {
		limit = retry.wait
	}
	r.await(limit)
	state := r.callOff()
	retry.decided = c.core.now()
	retry.wait = max(retry.wait-(retry.decided-failed), 0)
	if planned && (state != hedgeFailed || r.got.until <= retry.decided+retry.wait) {
		*next = retry
	}
	return state
}
