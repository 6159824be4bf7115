package retryhttp

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
	"github.com/retryhttp/retryhttp/internal/durations"
	"github.com/retryhttp/retryhttp/internal/outage"
	"github.com/retryhttp/retryhttp/internal/replay"
	"github.com/retryhttp/retryhttp/internal/respbody"
	"github.com/retryhttp/retryhttp/internal/timer"
)

// call is the state of one RoundTrip, which keeps it on the stack: an exchange, and what came of
// the attempts so far.
type call struct {
	exchange
	Outcome // so far
	timer   timer.Timer
	over    bool // finish has returned: the response is the caller's

	start     time.Duration // read from core.now
	uncounted int           // the part of Attempts that no longer counts: a body has come so far
	retries   int           // number of retries since then; a hedge is none
	lined     time.Duration // the part of Held without a token
	bucket    *bucketID     // which bucket it draws on in line; nil if a Budget does not know
}

// giveBack releases what the call owns when a panic ends the call, such as
// http.ErrAbortHandler, which a function up the stack recovers.
func (c *call) giveBack() {
	if c.over {
		return
	}
	defer c.exchange.giveBack() // even if the body panics
	c.bodies.Seal(true)         // before the response is closed, which may wait for the upload
}

// mayBegin waits before the first attempt if Gate.HoldFirst requires it. It returns false if the
// context has ended.
func (c *call) mayBegin() bool {
	g := c.policy.Gate
	if g.HoldFirst && c.policy.MaxRetryAfter >= 0 &&
		g.hosts.WaitWhileClosed(c.req, keyOf(c.req, g.Key), &c.timer, min(c.room(c.start)/2, g.hold())) {
		c.addHeld(c.start)
		c.Waited = c.Held
	}
	return c.req.Context().Err() == nil
}

// notSent ends a call whose context ended before the first attempt.
func (c *call) notSent() (*http.Response, error) {
	c.unsent = nil
	closeBody(c.req)
	return c.finish(&result{Attempt: Attempt{Request: c.req, Err: context.Cause(c.req.Context())}}, StopCanceled)
}

// prepare chooses the request of the first attempt: the caller's own request if possible.
func (c *call) prepare(first *attempt) {
	c.keyed, c.idempotent = withKey(c.req, c.policy.Idempotent, c.policy.IdempotencyKey)
	first.request = c.keyed
	if c.withBody = hasBody(c.req); c.withBody {
		p := c.policy
		mayRetry := p.MaxAttempts != 1 && (c.idempotent || p.RetryUnprocessed)
		// Over HTTP/2, a Read of the body that has nothing to send holds up the end of the context, and
		// with it a Read of the response.
		mustEnd := p.AttemptTimeout > 0 || p.StallTimeout > 0 || p.readsBody()
		c.bodies = replay.For(c.keyed, mayRetry, mustEnd, p.RecordBytes)
		c.hidesGetBody = hidesGetBody(c.keyed, c.idempotent)
		if c.bodies != nil || c.hidesGetBody && c.keyed.GetBody != nil {
			_ = c.open(first) // the first reading is always granted
		}
	}
	c.unsent = first.request
}

// send makes and judges an attempt. With a Hedge, send may make two attempts.
func (c *call) send(next *attempt, got *result) {
	if next.request == nil {
		_ = c.open(next) // which cannot fail without a body
	}
	// A first attempt needs a context of its own only after a hold, or while a host of a Base below may be
	// in trouble. A retry has one anyway.
	if c.Held != 0 || c.core.below.MayDetour() {
		c.note(next)
	}
	c.Attempts = next.number
	if c.policy.Hedge != nil {
		if r := c.arm(next); r != nil {
			c.sendRacing(r, next, got)
			return
		}
	}
	c.transmit(next, got, nil)
	c.conclude(next, got)
}

// note records in the context of next how long the request was held before. It gives a first attempt such a
// context, in which a Base below says which connection the attempt takes. The base has not seen it yet.
func (c *call) note(next *attempt) {
	if next.number == 1 {
		n := c.numberFor(next.request, 1, false)
		next.request, c.unsent = &n.request, &n.request
	}
	n := next.request.Context().(*numbered)
	n.held, n.lined = c.Held, c.lined
}

// refusal returns why no attempt follows got. The cheapest checks come first. The empty Stop
// means that time, budget, and the opening of the body decide. refusal changes nothing.
func (c *call) refusal(got *result) Stop {
	p := c.policy
	switch {
	case got.stands():
		return StopFinal
	case ended(c.req):
		return StopCanceled
	case got.class == Final:
		return StopFinal
	case got.inner != nil:
		return StopNested
	case !c.idempotent && !(p.RetryUnprocessed && got.unprocessed()):
		return StopNotIdempotent
	case c.madeAll():
		return StopAttempts
	case !c.bodies.Repeatable():
		return StopBody
	}
	return ""
}

// madeAll reports whether MaxAttempts were made. A negative number is no limit.
func (c *call) madeAll() bool {
	return c.policy.MaxAttempts >= 0 && c.Attempts-c.uncounted >= c.policy.MaxAttempts
}

// again prepares the attempt that follows got, and waits until it may be sent. If no attempt
// follows, again returns the reason.
//
// The token is withdrawn when every other check has passed, and then the body is opened. A retry that the
// Budget refuses may wait in line for its token. Its body is opened once the token is there.
func (c *call) again(got *result, next *attempt) (stop Stop) {
	stop = c.refusal(got)
	if stop == "" && next.number <= c.Attempts { // awaitHedge has not planned it yet
		stop = c.plan(got, next)
	}
	if stop != "" {
		c.countFailure(got, stop)
		return stop
	}
	if later := c.askBudget(got, false, ""); !c.token.taken {
		var stood bool
		if stop, stood = c.standInLine(got, next, later); !stood {
			return c.endRefused(got, next)
		}
		return c.endWait(got, next, stop)
	}
	if stop = c.openRetry(got, next, next.wait); stop != "" {
		return stop
	}
	c.waitOut(got, next)
	c.hold()
	return c.endWait(got, next, "")
}

// countFailure reports a failure to the Budget that has not been asked for its retry. Otherwise a client
// of requests that cannot be repeated would never see an overload. If MaxAttempts were made, all but the last
// have counted with their retries.
func (c *call) countFailure(got *result, stop Stop) {
	switch stop {
	case StopNotIdempotent, StopBody, StopDeadline:
		c.askBudget(got, false, stop)
		c.refund(&c.token)
	}
}

// plan decides when the next attempt is made, or returns why there is none.
func (c *call) plan(got *result, next *attempt) Stop {
	if got.until == never {
		return StopRetryAfter
	}
	now := c.core.now()
	asked := max(got.until-now, 0)
	backoff := max(c.policy.Backoff(c.retries+1, next.backoff), 0)
	room := c.room(now)
	if durations.Add(asked, backoff) > room {
		return StopDeadline
	}
	*next = attempt{
		number:   c.Attempts + 1,
		previous: next.reading,
		backoff:  backoff,
		wait:     spread(asked, backoff, room),
		decided:  now,
	}
	return ""
}

// askBudget is withdraw for the retry that follows got: again if it asks from the line. With a stop, no
// retry follows, and the failure is only counted. askBudget learns which bucket the retry draws on, even
// of a Budget that wraps a TokenBucket.
func (c *call) askBudget(got *result, again bool, stop Stop) (later bool) {
	q, _ := c.core.questions.Get().(*question)
	if q == nil {
		q = new(question)
	}
	q.refusedBy.Store(nil)
	q.Request, q.Failed, q.Status = c.req, got.Attempt, got.status
	q.Asked, q.Again, q.Stop, q.bucket = got.asked, again, stop, &q.refusedBy
	if got.Err != nil || got.status >= 500 {
		q.Down = c.policy.Gate.Status(c.req).Down
	}
	later = c.withdraw(&q.Retry)
	c.bucket = q.refusedBy.Load()
	q.Retry = Retry{}
	c.core.questions.Put(q) // if the Budget has panicked, q is left to the collector
	return later
}

// question is what a Budget is asked, and which bucket has refused it. Questions are used again: a Retry
// is large for the stack of a request that sleeps afterwards. The bucket is atomic because somebody's
// Budget may ask a TokenBucket in another goroutine, and after it has answered itself.
type question struct {
	Retry
	refusedBy atomic.Pointer[bucketID]
}

// openRetry opens the body of a retry that has its token, and reports the retry: before its wait, or when it has got
// the token in line. Only then is the previous attempt's reading cut: this may cost the connection, and with it the
// failed body, which OnRetry may read.
func (c *call) openRetry(got *result, next *attempt, wait time.Duration) Stop {
	if c.withBody { // bodies holds the body until it is sent
		if err := c.open(next); err != nil {
			c.refund(&c.token)
			if ended(c.req) {
				return StopCanceled
			}
			if got.Err != nil {
				got.Err = &unmendedError{"no body for a retry", err, got.Err}
			}
			return StopBody
		}
	}
	got.Wait = wait
	c.policy.reportRetry(c.req, &got.Attempt)
	next.previous.Cut()
	return ""
}

// waitOut drains the failed response, and sleeps. The drain and OnRetry are part of the wait.
// The call does not retain the response meanwhile.
//
// The drain and the sleep run in parallel. Waking up at the end of a drain would cost as much
// as the drain.
func (c *call) waitOut(got *result, next *attempt) {
	ctx := c.req.Context()
	failed := got.Response
	c.forget(got)
	if failed != nil {
		limit := min(respbody.MaxDrainTime, c.patience(next))
		drain := c.core.drains.Start(failed, limit > 0)
		slept := min(c.left(next), limit)
		c.timer.Sleep(ctx, slept)
		drain.Join(ctx, &c.timer, limit-slept)
	}
	c.timer.Sleep(ctx, c.left(next))
}

// hold waits while the Gate holds a retry that is due.
func (c *call) hold() {
	now, gate := c.core.now(), c.policy.Gate
	turn := outage.Turn{Mark: c.mark, Limit: min(c.room(now)/2, gate.hold()), Heed: c.policy.MaxRetryAfter >= 0}
	// This is not a method of the Gate: a held request's stack has no room for another frame.
	var held bool
	c.pass, held, _ = gate.hosts.Wait(c.req, keyOf(c.req, gate.Key), nil, &c.timer, &turn)
	if held {
		c.addHeld(now)
	}
}

// addHeld adds the time since the Gate began to hold the request, and reports the total.
func (c *call) addHeld(since time.Duration) {
	c.Held += c.core.now() - since
	c.policy.reportHeld(c.req, c.Held)
}

func (c *call) left(next *attempt) time.Duration {
	return max(next.wait-(c.core.now()-next.decided), 0)
}

// endWait ends the wait of a retry, and counts it. If the retry is sent or canceled, it closes the failed
// response. With another Stop, the response is the caller's. A retry that is not sent gives back what it has claimed.
func (c *call) endWait(got *result, next *attempt, stop Stop) Stop {
	next.begins = c.core.now()
	c.Waited += next.begins - next.decided
	if ended(c.req) {
		stop = StopCanceled
	}
	if stop == "" {
		c.retries++
		c.Ambiguous = c.Ambiguous || got.mayHaveTakenEffect()
		c.dropResponse(got)
		return ""
	}
	c.refund(&c.token)
	c.pass.GiveBack()
	c.pass = outage.Pass{}
	if stop == StopCanceled {
		c.dropResponse(got)
		if got.responded {
			got.Err = statusError(got.status)
		}
	}
	return stop
}

// dropResponse closes the failed response, which nobody gets. A Close that panics is not repeated.
func (c *call) dropResponse(got *result) {
	resp := got.answer()
	c.forget(got)
	closing.Response(resp)
}

// forget lets go of got's response, which must not be retained during a wait.
func (c *call) forget(got *result) {
	got.Response, got.Body, got.Peek, got.broken, c.response = nil, nil, nil, nil, nil
}

// finish ends the call with the last attempt's result.
func (c *call) finish(got *result, stop Stop) (*http.Response, error) {
	c.bodies.Seal(got.Err != nil)
	// OutcomeOf needs no record of such a call.
	atOnce := stop == StopFinal && got.Response != nil && c.Attempts == 1 && got.inner == nil && c.Waited == 0 && !c.HedgeRefused
	if atOnce && got.Response.Request != c.req {
		got.Response.Request = c.req
	}
	var err error
	if !atOnce || c.policy.OnDone != nil {
		err = c.report(got, stop, !atOnce)
	}
	c.over = true
	return got.answer(), err
}

// report records the Outcome on the response or in the error, and reports it.
func (c *call) report(got *result, stop Stop, record bool) error {
	o := c.outcome(got, stop)
	resp := got.answer()
	if record && resp != nil {
		attachOutcome(resp, c.req, o)
	}
	got.Wait = 0 // there is no next attempt
	c.policy.reportDone(c.req, &got.Attempt, o)
	if resp == nil {
		return newError(got.Err, o, c.req)
	}
	return nil
}

func (c *call) outcome(got *result, stop Stop) Outcome {
	o := c.Outcome
	o.Elapsed, o.Stop = c.core.now()-c.start, stop
	o.HedgeWon = got.Hedge // the failure of a hedge never counts
	o.Ambiguous = o.Ambiguous || got.answer() == nil && got.mayHaveTakenEffect()
	return o.including(got.inner)
}
