package retryhttp

import (
	"reflect"
	"time"

	"github.com/retryhttp/retryhttp/internal/outage"
	"github.com/retryhttp/retryhttp/internal/respbody"
)

// This file has what differs for a retry that the Budget refuses: it may wait in line until a success
// of its host has earned a token. The failed response is kept meanwhile, because the caller gets it
// if no token comes.

// mostKept is how many bytes of a failed response are kept for a retry that waits in line.
const mostKept = 16 << 10

// endRefused ends a request that gets no token and may not wait in line. It ends no sooner than after its
// backoff, or somebody's loop of requests would turn hot while the host is down.
// A short response is read meanwhile: its connection is for others.
func (c *call) endRefused(got *result, next *attempt) Stop {
	next.wait = min(next.backoff, next.wait) // shorter if a hedge was awaited meanwhile
	if left := c.left(next); left > 0 {
		c.keep(got, left)
		c.timer.Sleep(c.req.Context(), c.left(next))
	}
	c.Waited += c.core.now() - next.decided
	if ended(c.req) {
		return StopCanceled // unlike in endWait, the response is the caller's
	}
	return StopBudget
}

// keep reads the failed response of got, and reports whether all of it is in memory. The request no
// longer waits if its context has ended meanwhile.
func (c *call) keep(got *result, patience time.Duration) bool {
	resp := got.answer()
	if resp == nil || resp.Body == nil {
		return true
	}
	if got.broken != nil {
		return false // to Keep, what broke off may look whole
	}
	kept, whole := respbody.Keep(c.req, resp, mostKept, min(respbody.MaxDrainTime, patience))
	got.Response, c.response = kept, kept
	return whole && !ended(c.req)
}

// turnsWith returns what distinguishes the bucket of a retry in line from other buckets.
func (c *call) turnsWith() any {
	budget := c.policy.Budget
	switch {
	case c.bucket != nil:
		return *c.bucket
	case reflect.ValueOf(budget).Comparable():
		return budget
	}
	return nil
}

// standInLine keeps the failed response of a retry that has no token, sleeps out its backoff, waits for its
// token, and opens its body. It returns false if the retry may not wait in line.
func (c *call) standInLine(got *result, next *attempt, later bool) (_ Stop, stood bool) {
	gate := c.policy.Gate
	if !later || c.lined >= gate.hold() { // always, if Hold is negative: there is no line
		return "", false
	}
	key := keyOf(c.req, gate.Key) // once: it may change its answer, and Leave needs this one
	if !gate.hosts.Admit(key, gate.hold()) {
		return "", false
	}
	defer gate.hosts.Leave(key)
	if !c.keep(got, c.patience(next)) {
		return "", false
	}
	c.timer.Sleep(c.req.Context(), c.left(next))
	now := c.core.now()
	var held, granted bool
	c.pass, held, granted = gate.hosts.Wait(c.req, key, c.turnsWith(), &c.timer, &outage.Turn{
		Mark: c.mark,
		// A held retry leaves at half of the time left, into the outage if need be: it has a token. One
		// that has none cannot leave, and a quarter of the time is enough for most attempts.
		Limit: min(c.room(now)/4*3, gate.hold()-c.lined),
		Heed:  c.policy.MaxRetryAfter >= 0,
		Ask: func() (granted, later bool) {
			later = c.askBudget(got, true, "")
			return c.token.taken, later
		},
	})
	if held {
		c.lined += c.core.now() - now
		c.addHeld(now)
	}
	if !granted || ended(c.req) {
		return StopBudget, true
	}
	return c.openRetry(got, next, c.core.now()-next.decided), true
}
