package retryhttp

import (
	"time"

	"github.com/retryhttp/retryhttp/internal/outage"
)

// This file has the steps of a call whose attempts may be hedged. A race knows nothing of its call.

// sendTimed is send for a Policy with a Hedge.
func (c *call) sendTimed(next *attempt, got *result) {
	if next.number == 1 && c.mayBeHedged() {
		c.tail = c.policy.Hedge.tail(c.req)
	}
	if next.request == nil {
		_ = c.open(next) // cannot fail, because the request has no body
	}
	c.sent, c.rival = next.number, nil
	c.arm(next)
	c.transmit(next, got, c.race.firstBounds())
	if c.race == nil || c.race.disarm() {
		c.refused = c.refused || c.race != nil && c.race.refused
		c.race = nil
		c.judgeTimed(next, got)
	} else {
		c.settle(c.race, next, got)
	}
}

// mayBeHedged reports whether two attempts of the request may be sent side by side.
func (c *call) mayBeHedged() bool {
	return safeMethod(c.req.Method) && c.idempotent && (!c.withBody || c.bodies.readableBeside(c.req)) &&
		// A body may set the trailer when it ends.
		c.req.Header.Get("Upgrade") == "" && len(c.req.Trailer) == 0
}

// arm starts the timer that sends a hedge beside next, if next may be hedged.
func (c *call) arm(next *attempt) {
	if c.tail == nil || c.hedges > 0 || c.attemptsLeft() < 1 || numberOf(c.req.Context()) > 1 {
		return
	}
	delay := time.Duration(c.tail.delay.Load())
	if delay == 0 {
		return
	}
	r := &race{
		exchange: exchange{
			core: c.core, policy: c.policy, req: c.req, keyed: c.keyed, idempotent: c.idempotent, withBody: c.withBody, tail: c.tail,
			since: c.since, leg: c.leg, route: c.route, owned: owned{bodies: c.bodies},
		},
		next: attempt{number: next.number + 1, backoff: next.backoff, decided: next.begins},
	}
	r.first.begin(next.request.Context(), next.reading)
	c.race = r
	if c.policy.PeekBytes > 0 {
		r.turn = make(chan struct{}, 1) // the first attempt may be judged before the hedge is sent
		c.rival, r.rival = r, r
	}
	r.timer = time.AfterFunc(delay, r.fire)
}

// settle judges the first attempt if the hedge has not won, and stores the result that counts in
// next and got. If the first attempt has failed and the hedge is under way, the race continues
// beside the wait for a retry.
func (c *call) settle(r *race, next *attempt, got *result) {
	r.surface()
	c.sent, c.hedges, c.hedgeToken, c.leg = r.next.number, 1, r.bought, r.onTheWay
	switch c.judgeFirst(r, next, got) {
	case undecided:
		if c.refusal(got) != "" {
			c.awaitHedge(got, next)
		}
	case firstWon:
		c.endRace()
		r.lose(got)
		c.refundHedge(got)
	case bothFailed:
		c.endRace()
		r.next.reading.cut() // a retry may follow
		got.alsoFailed(r.asked, r.inner)
	default:
		c.awaitHedge(got, next)
	}
}

// endRace ends the race for the call. The hedge may continue by itself.
func (c *call) endRace() {
	c.race.wake() // nobody waits; this releases the context
	c.arrive()
	c.race = nil
}

// takeHedge makes the hedge's result the result of the call.
func (c *call) takeHedge(r *race, next *attempt, got *result) {
	*next, *got = r.next, *r.got
	c.response, c.mark = got.answer(), r.mark
	c.refundHedge(got)
}

// refundHedge gives back the hedge's token if the race has ended in a Final response. The
// allowance bounds such hedges, and the tokens are there for retries.
func (c *call) refundHedge(got *result) {
	if got.class == Final && got.Response != nil {
		c.hedgeToken.lent = false
		c.refund(&c.hedgeToken)
	}
}

// takeHedgeToken takes the hedge's token, if the call still has it. If the hedge has taken the last token,
// a retry that takes the place of the hedge needs no other. The hedge was sent: the token is not given
// back if the retry is not.
func (c *call) takeHedgeToken() receipt {
	if c.hedgeToken.lent {
		return receipt{}
	}
	c.hedgeToken.lent = c.hedgeToken.held
	return c.hedgeToken
}

// judgeFirst judges the first attempt unless the hedge has won, and returns the state of the
// race.
func (c *call) judgeFirst(r *race, next *attempt, got *result) raceState {
	defer r.giveTurn()
	if r.takeTurn() {
		c.judgeTimed(next, got)
		return r.decide(got, firstWon)
	}
	c.pass.Abandon()
	c.pass = outage.Pass{}
	now := c.core.now()
	c.tail.observe(c.hedgeTime(now), now-next.begins, false)
	return hedgeWon
}

// discard clears away the response of one of two attempts, whose bounds are b. If the caller stops
// waiting, the error names the response's status.
func (c *call) discard(r *race, b *bounds, got *result) {
	resp := got.answer()
	if got.responded {
		got.Err = statusError(got.status)
	}
	c.forget(got)
	r.discard(b, resp)
}
