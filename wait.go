package retryhttp

import (
	"context"
	"io"
	"math"
	"net/http"
	"sync/atomic"
	"time"
)

// How much of a failed response is read so that its connection can serve
// again, and how long that may take.
const (
	maxDrainBytes = 64 << 10
	maxDrainTime  = 250 * time.Millisecond
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
	c.decided = c.t.now()
	c.backoff = max(c.policy.Backoff(a.Number, c.backoff), 0)
	a.Wait = addSaturating(asked, c.backoff)
	room := c.room()
	if a.Wait > room {
		return false
	}
	if asked > 0 {
		a.Wait = asked + max(c.backoff, uniform(0, min(asked/2, room-asked)))
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

// pause tells of the retry that has been decided on, clears the failed response
// away, and waits. It returns the empty Stop, or StopCanceled if the context
// ended meanwhile; a is then the attempt whose result cannot be returned any
// more.
func (c *call) pause(a *Attempt) Stop {
	c.tellRetry(*a)
	if c.waiter == nil {
		c.waiter = newWaiter()
	}
	ctx := c.req.Context()
	if a.Response != nil && !c.waiter.drain(ctx, a.Response, c.drainTime(a.Wait)) {
		c.waiter = nil // a goroutine that is stuck in a Read still has it
	}
	if left := a.Wait - (c.t.now() - c.decided); left > 0 && ctx.Err() == nil {
		if c.waiter == nil {
			c.waiter = newWaiter()
		}
		c.waiter.sleep(ctx, left)
	}
	c.waited += c.t.now() - c.decided
	if ctx.Err() == nil {
		c.ambiguous = c.ambiguous || c.mayHaveTakenEffect(a)
		return ""
	}
	c.policy.Budget.Refund(c.req)
	closeBody(c.next)
	if a.Response != nil {
		a.Err, a.Response = statusError(a.Response.StatusCode), nil
	}
	return StopCanceled
}

// drainTime keeps a drain that outlasts a short wait from using up the time for
// the attempt.
func (c *call) drainTime(wait time.Duration) time.Duration {
	if c.room() < maxDrainTime {
		return min(wait, maxDrainTime)
	}
	return maxDrainTime
}

// mayHaveTakenEffect reports whether the server may have done what the attempt
// asked for although it failed.
func (c *call) mayHaveTakenEffect(a *Attempt) bool {
	if safeMethod(a.Request.Method) || c.class == Unprocessed {
		return false
	}
	return a.Err != nil || a.Response.StatusCode >= 500
}

// waiter is what one RoundTrip needs to wait, made at its first retry and used
// for all of them.
//
// It is not kept in a sync.Pool beyond that: a timer that was made in a
// testing/synctest bubble must not be used in another, and a Transport may
// well serve several.
type waiter struct {
	timer   *time.Timer
	drained chan struct{}
	run     func() // readAll, as a value: starting it allocates nothing
	rest    io.LimitedReader
	body    io.ReadCloser
	closed  atomic.Bool
}

func newWaiter() *waiter {
	w := &waiter{timer: time.NewTimer(math.MaxInt64), drained: make(chan struct{}, 1)}
	w.run = w.readAll
	return w
}

// drain reads what is left of a failed response, so that its connection can
// serve again, and closes it. It reports false if that took too long, or too
// long for ctx: then the response is closed, which costs the connection, and w
// must not be used again.
//
// The body is read in a goroutine of its own, since a Read may hang, even
// through the end of the context.
func (w *waiter) drain(ctx context.Context, resp *http.Response, limit time.Duration) bool {
	if resp.Body == nil {
		return true
	}
	if resp.Body == http.NoBody || resp.ContentLength > maxDrainBytes || limit <= 0 {
		resp.Body.Close()
		return true
	}
	w.body = resp.Body
	w.rest = io.LimitedReader{R: resp.Body, N: maxDrainBytes}
	w.closed.Store(false)
	w.timer.Reset(limit)
	go w.run()
	select {
	case <-w.drained:
		return true
	case <-w.timer.C:
	case <-ctx.Done():
	}
	w.timer.Stop()
	go w.close() // which may wait for the Read
	return false
}

func (w *waiter) readAll() {
	io.Copy(io.Discard, &w.rest)
	w.close()
	w.drained <- struct{}{}
}

func (w *waiter) close() {
	if w.closed.CompareAndSwap(false, true) {
		w.body.Close()
	}
}

// sleep waits for d, or until ctx ends.
func (w *waiter) sleep(ctx context.Context, d time.Duration) {
	w.timer.Reset(d)
	select {
	case <-w.timer.C:
	case <-ctx.Done():
		w.timer.Stop()
	}
}
