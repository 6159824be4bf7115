package retryhttp

import (
	"context"
	"math"
	"time"
)

// retryAfter is how long the server asked to be left alone. 0 is not at all.
func (c *call) retryAfter(a *Attempt) time.Duration {
	if a.Response == nil || c.policy.MaxRetryAfter < 0 {
		return 0
	}
	asked, _ := RetryAfter(a.Response.Header)
	return asked
}

// schedule sets a.Wait, or reports that there is no room for the wait.
//
// After a Retry-After, clients that were told the same moment must not come
// back at the same moment. So what they were told is a minimum, on top of which
// comes their backoff, or up to half of it again: a spread in proportion to the
// time in which the server's queue of clients built up. Where the deadline is
// near, the spread makes do with what is left; the backoff is not cut.
func (c *call) schedule(a *Attempt, asked time.Duration) bool {
	c.decided = c.t.now() // not when the attempt ended: asked may have been a date, which was read since
	c.backoff = max(c.policy.Backoff(a.Number, c.backoff), 0)
	a.Wait = addSaturating(asked, c.backoff)
	room := c.room()
	if a.Wait > room {
		return false
	}
	if asked > 0 {
		a.Wait = addSaturating(asked, max(c.backoff, uniform(0, min(asked/2, room-asked))))
	}
	return true
}

// room is the longest wait that still lets an attempt start in time: strictly
// before the context's deadline, and at MaxElapsed at the latest.
func (c *call) room() time.Duration {
	room := time.Duration(math.MaxInt64)
	if deadline, ok := c.req.Context().Deadline(); ok {
		room = time.Until(deadline) - 1
	}
	if c.policy.MaxElapsed > 0 {
		room = min(room, c.policy.MaxElapsed-(c.decided-c.start))
	}
	return room
}

// spare is how long what precedes the next attempt may take: the drain of the failed
// response, say. If it takes longer than the wait, it holds up the retry by no more
// than a tenth of the time that is left.
func (c *call) spare(wait time.Duration) time.Duration {
	return max(wait, c.room()/10)
}

// pause tells of the retry that has been decided on, clears the failed response
// away, and waits. It returns the empty Stop, or StopCanceled if the context
// ended meanwhile; a is then the attempt whose result cannot be returned any
// more.
func (c *call) pause(a *Attempt) Stop {
	c.tellRetry(a)
	c.bodies.cutPrevious() // not earlier: it may cost the connection, and so the failed body that OnRetry may read
	ctx := c.req.Context()
	status, responded := 0, a.Response != nil
	if resp := a.Response; responded {
		status, a.Response, c.response = resp.StatusCode, nil, nil // sleepers need not hold on to it
		c.drain(ctx, resp, a.Wait)
	}
	if a.Wait > 0 && ctx.Err() == nil {
		c.timer.sleep(ctx, a.Wait-(c.t.now()-c.decided)) // for what is left of it
	}
	c.began = c.t.now()
	c.waited += c.began - c.decided
	if !ended(c.req) {
		c.ambiguous = c.ambiguous || c.mayHaveTakenEffect(a, status)
		return ""
	}
	c.refund()
	if responded {
		a.Err = statusError(status)
	}
	return StopCanceled
}

// mayHaveTakenEffect reports whether the server may have done what the attempt
// asked for although it failed.
func (c *call) mayHaveTakenEffect(a *Attempt, status int) bool {
	if safeMethod(a.Request.Method) || c.class == Unprocessed {
		return false
	}
	return a.Err != nil || status >= 500
}

// timer is the one with which a RoundTrip waits, made when it is first needed.
//
// It is not kept in a sync.Pool beyond that: a time.Timer that was made in a
// testing/synctest bubble must not be used in another, and a Transport may well
// serve several.
type timer struct{ *time.Timer }

func (t *timer) start(d time.Duration) {
	if t.Timer == nil {
		t.Timer = time.NewTimer(d)
	} else {
		t.Reset(d)
	}
}

// sleep waits for d, or until ctx ends.
func (t *timer) sleep(ctx context.Context, d time.Duration) {
	t.start(d)
	select {
	case <-t.C:
	case <-ctx.Done():
		t.Stop()
	}
}
