package retryhttp

import (
	"context"

	"github.com/retryhttp/retryhttp/internal/durations"
	"github.com/retryhttp/retryhttp/internal/outage"
)

// This file has what happens when the first attempt has failed while a hedge is under way. The
// retry's wait runs beside the hedge. If the hedge does not answer meanwhile, it is ended, and
// the retry is sent.

// waiting returns the context of the call's waits. It ends with the request's context, or when a
// hedge that is under way has decided the race.
func (c *call) waiting() context.Context {
	if c.race != nil {
		return c.race.waiting
	}
	return c.req.Context()
}

// awaitHedge waits for the result of the hedge, when the first attempt's does not count, or no
// retry follows it.
func (c *call) awaitHedge(got *result, next *attempt) {
	r := c.race
	c.discard(r, &r.first, got)
	<-r.waiting.Done()
	decided := r.conclude()
	c.endRace()
	if decided != abandoned {
		c.takeHedge(r, next, got)
	}
	if decided == bothFailed {
		got.alsoFailed(r.asked, r.inner)
	}
}

// afterHedge awaits the hedge, and is like refusal and again for its result.
func (c *call) afterHedge(got *result, next *attempt) Stop {
	c.awaitHedge(got, next)
	stop := c.refusal(got)
	if stop == "" {
		stop = c.again(got, next)
	}
	return stop
}

// meetHedge ends the race when the wait for a retry is over, or when the hedge has ended it. It
// returns the empty Stop if the retry may be sent.
func (c *call) meetHedge(got *result, next *attempt) Stop {
	r := c.race
	decided := r.conclude()
	c.endRace()
	if decided == hedgeWon {
		c.dropRetry()
		c.takeHedge(r, next, got)
		return StopFinal
	}
	if decided == bothFailed {
		if stop := c.takeFailure(r, got, next); stop != "" {
			c.dropRetry()
			return stop
		}
	}
	c.waited -= c.core.now() - next.decided // the hedge was under way until now
	if decided == bothFailed {
		c.leaveGate()
		c.timer.Sleep(c.req.Context(), c.left(next))
		c.hold(max(c.core.now()-next.decided-next.wait, 0))
	}
	return ""
}

// takeFailure makes the hedge's failure the result that a retry follows, and discards its
// response. The response may ask for a longer wait, or end the retries. A Final error, which the
// hedge alone has met, does neither.
func (c *call) takeFailure(r *race, got *result, next *attempt) Stop {
	if r.got.class == Final {
		r.next.reading.cut()
		return ""
	}
	*got = *r.got
	c.response, c.mark = got.answer(), r.mark
	stop := c.refusal(got)
	if stop == "" {
		stop = c.prolong(got, next)
	}
	if stop == "" {
		r.next.reading.cut() // not earlier: see pause
		c.discard(r, r.second, got)
	}
	return stop
}

// prolong makes the wait for a retry longer if the response of a second failure asks for that.
func (c *call) prolong(got *result, next *attempt) Stop {
	asked := got.askedFor(c.policy.MaxRetryAfter)
	now := c.core.now()
	room := c.room(now)
	switch {
	case asked > max(c.policy.MaxRetryAfter, 0):
		return StopRetryAfter
	case asked <= c.left(next):
		return ""
	case durations.Add(asked, next.backoff) > room:
		return StopDeadline
	}
	next.wait = now - next.decided + spread(asked, next.backoff, room)
	return ""
}

// openLate opens the body of a retry whose wait has run beside a hedge. The hedge no longer reads
// its own. The failed response is gone, and an error names its status.
func (c *call) openLate(got *result, next *attempt) Stop {
	if next.request != nil || !c.withBody {
		return ""
	}
	if got.responded {
		got.Err = statusError(got.status)
	}
	stop := c.openRetry(got, next)
	if stop != "" {
		c.dropRetry()
	}
	return stop
}

// dropRetry gives back what a retry has claimed that is not sent.
func (c *call) dropRetry() {
	c.refund(&c.token)
	c.leaveGate()
}

func (c *call) leaveGate() {
	c.pass.GiveBack()
	c.pass = outage.Pass{}
}
