package retryhttp

import (
	"net/http"

	"github.com/retryhttp/retryhttp/internal/closing"
	"github.com/retryhttp/retryhttp/internal/outage"
	"github.com/retryhttp/retryhttp/internal/respbody"
)

// This file has what happens to a retry that the Budget refuses: it may wait in line until a success
// of its host has earned a token. The failed response is kept meanwhile, because the caller gets it
// if no token comes.

// mostKept is how many bytes of a failed response are kept for a retry that waits in line.
const mostKept = 16 << 10

// mayQueue reports whether a retry that the Budget has refused may wait in line. The response of got
// is then in memory.
func (c *call) mayQueue(got *result) bool {
	gate := c.policy.Gate
	if c.race != nil || !c.policy.asksAgain || c.lined >= gate.hold() || !gate.admit(c.req) {
		return false
	}
	admitted := false
	defer func() {
		if !admitted { // even if the body panics
			gate.leave(c.req)
		}
	}()
	admitted = c.keep(got)
	return admitted
}

// keep reads the failed response of got, and reports whether all of it is in memory.
func (c *call) keep(got *result) bool {
	resp := got.Response
	if resp == nil || got.Body != nil || resp.Body == nil || resp.Body == http.NoBody {
		return true
	}
	kept, _, _ := respbody.Buffer(c.req, resp, mostKept, true)
	got.Response, c.response = kept, kept
	return respbody.Whole(kept, mostKept) != nil
}

// queue waits out the backoff of a retry that has no token, and then waits in line for one. If the
// Budget grants none, the result is the caller's.
func (c *call) queue(got *result, next *attempt) Stop {
	defer c.policy.Gate.leave(c.req)
	c.timer.Sleep(c.req.Context(), c.left(next))
	granted := c.standInLine(got)
	next.begins = c.core.now()
	c.waited += next.begins - next.decided
	switch {
	case ended(c.req):
		c.drop(got)
		return StopCanceled
	case !granted:
		return StopBudget
	}
	if stop := c.openRetry(got, next); stop != "" {
		c.leaveGate()
		return stop
	}
	got.Wait = next.begins - next.decided
	c.policy.reportRetry(c.req, &got.Attempt)
	next.previous.cut()
	c.ambiguous = c.ambiguous || got.mayHaveTakenEffect()
	closing.Response(got.answer())
	c.forget(got)
	return ""
}

// standInLine waits for a token, and reports whether the retry may be sent.
func (c *call) standInLine(got *result) (granted bool) {
	due, gate := c.core.now(), c.policy.Gate
	c.pass, granted = gate.hosts.Queue(c.req, keyOf(c.req, gate.Key), &c.timer, outage.Line{
		Mark:   c.mark,
		Limit:  min(c.room(due)/2, gate.hold()-c.lined),
		Window: gate.hold(),
		Heed:   c.policy.MaxRetryAfter >= 0,
		Asked:  got.asks && got.asked > 0,
		Ask:    func() bool { c.token = c.withdraw(got, true); return c.token },
	})
	c.lined += c.core.now() - due
	c.addHeld(due)
	return granted
}

// drop gives up a retry and the response that it follows, because the caller no longer waits.
func (c *call) drop(got *result) {
	c.dropRetry()
	closing.Response(got.answer())
	c.forget(got)
	if got.responded {
		got.Err = statusError(got.status)
	}
}
