// Package retryhttp provides an http.RoundTripper that retries requests when that is likely to
// help, and safe.
//
//	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{})}
//
// By default, a request is sent at most 4 times, with exponential backoff and full jitter. A
// Retry-After of up to a minute is honored. When retries end, the caller gets the last response
// with its body unread, or an [*Error]. A [Policy] changes all of this, and [WithPolicy] changes
// it for one request.
//
// # What is retried
//
// Responses with status 408, 429 or 5xx are retried, and so are errors that a retry may not
// meet. See [Classify]. The request must be idempotent, by its method or by an Idempotency-Key
// header. See [Idempotent]. A [TokenBucket] bounds retries to a tenth of the successes and a few.
// A [Gate] holds them back while a host is down.
//
// # Bodies
//
// Every attempt sends the whole request body. A GetBody is used if there is one. A file is
// read in place. Other bodies are recorded while they are sent, up to [Policy.MaxBodyBytes].
// An io.NopCloser hides a file: set Request.Body to the file itself. A response body is handed
// over unread, unless the Policy has BufferBytes, Resume or StallTimeout.
//
// # Chains of RoundTrippers
//
// Place signing, authentication, tracing and circuit breakers below a Transport, and caches
// above. When Transports are nested, only the inner one retries. A reverse proxy needs a
// [Policy.Idempotent] that looks at the method alone.
//
// See docs/behavior.md for details, and for what http.Transport resends by itself.
package retryhttp

import (
	"context"
	"errors"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/retryhttp/retryhttp/internal/neterr"
	"github.com/retryhttp/retryhttp/internal/pooled"
)

// Transport is an http.RoundTripper that retries. It is made by New.
type Transport struct {
	base   http.RoundTripper
	policy resolved
	own    shared
	epoch  time.Time
	drains sync.Pool // of *drain
}

// New returns a Transport that sends attempts through base. A nil base is a new pool of connections
// like http.DefaultTransport.
func New(base http.RoundTripper, p Policy) *Transport {
	if base == nil {
		base = pooled.Transport()
	}
	t := &Transport{base: base, epoch: time.Now()}
	t.policy = p.resolve(&t.own)
	return t
}

var errNotMade = errors.New("the retryhttp.Transport was not made by New")

// CloseIdleConnections closes the base's idle connections, if it has any.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip sends req, and sends it again as the Policy allows. It returns a response,
// whatever its status, or an [*Error]. It always closes the body of req, possibly after it
// has returned. The caller closes the response's body.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t == nil || t.base == nil {
		closeBody(req)
		return nil, &Error{Outcome: Outcome{Stop: StopFinal}, Err: errNotMade}
	}
	now := t.now()
	var c call // a literal would be on the stack twice, for as long as the request waits
	c.t, c.req, c.unsent, c.start, c.since = t, req, req, now, now
	defer c.giveBack()
	c.policy = t.policyFor(req)
	if !c.mayBegin() {
		return c.notSent()
	}
	var next upcoming
	next.number, next.begins = 1, c.start+c.held
	c.prepare(&next)
	for {
		var got result
		c.send(&next, &got)
		stop := c.refusal(&got)
		if stop == "" {
			stop = c.again(&got, &next)
		}
		if stop != "" {
			return c.finish(&next, &got, stop)
		}
	}
}

// again prepares for the attempt that follows on got, and waits for its time. Or it
// returns why there is none.
func (c *call) again(got *result, next *upcoming) Stop {
	stop := c.plan(got, next)
	if stop == "" {
		stop = c.claim(got, next)
	}
	if stop == "" {
		stop = c.pause(got, next)
	}
	return stop
}

// now is the time since an arbitrary moment. To read the monotonic clock alone
// costs half of what time.Now does, which shows on the path of a success.
func (t *Transport) now() time.Duration {
	return time.Since(t.epoch)
}

// policyFor returns the Policy of one request.
func (t *Transport) policyFor(req *http.Request) *resolved {
	if edit, ok := req.Context().Value(policyKey{}).(*policyEdit); ok {
		return edit.apply(&t.policy, &t.own)
	}
	return &t.policy
}

// call is one RoundTrip. It lives on the stack.
type call struct {
	t      *Transport
	policy *resolved
	req    *http.Request // the caller's
	keyed  *http.Request // req, or a copy that carries a key

	start     time.Duration // by Transport.now
	since     time.Duration // when MaxElapsed began to run: start, or where a body broke off
	sent      int           // attempts
	before    int           // those that do not count, since a later one has brought enough of a body
	waited    time.Duration
	held      time.Duration // part of waited
	mark      uint32        // of the Gate, when the newest attempt ended
	ambiguous bool          // an attempt may have taken effect
	hedged    bool          // an attempt was sent beside another

	pace  *pace // nil: the request is not hedged
	timer timer
	owned
}

// owned is what a call gives back at its end, even if a panic of a hook or of the base
// ends it.
type owned struct {
	unsent   *http.Request  // the first attempt's, before it is sent: nobody else closes its body
	bodies   *bodies        // the source of the attempts' bodies; nil: each is sent as it is
	token    bool           // withdrawn for an attempt that was not sent
	pass     pass           // of an attempt that is not over
	race     *race          // that is not over
	response *http.Response // neither handed over nor drained
}

// giveBack does nothing after finish. It is for a panic such as
// http.ErrAbortHandler, which somebody up the stack recovers.
func (c *call) giveBack() {
	if c.owned == (owned{}) {
		return
	}
	if c.unsent != nil {
		closeBody(c.unsent)
	}
	c.race.abandon()
	c.refund()
	c.pass.giveBack()
	c.bodies.release(true)
	closeResponse(c.response)
}

// refund gives back the token of a retry that is not sent, and its turn.
func (c *call) refund() {
	if c.token {
		c.token = false
		c.policy.Budget.Refund(c.req)
	}
}

// mayBegin waits before the first attempt if the Gate's First asks for it. It returns
// false if the context has ended.
func (c *call) mayBegin() bool {
	if g := c.policy.Gate; g.First && g.waitFirst(c.req, &c.policy.Policy, &c.timer, c.room(c.start)/2) {
		c.addHeld(c.start)
		c.waited = c.held
	}
	return c.req.Context().Err() == nil
}

// upcoming is an attempt that is about to be made.
type upcoming struct {
	number   int
	request  *http.Request // nil until it is sent if there is no body: sleepers need no copy
	reading  reading
	previous reading       // of the attempt before, which may still go on
	backoff  time.Duration // that precedes it; 0 for the first
	wait     time.Duration // backoff, or more if the server asked for it
	decided  time.Duration // when the wait began; by Transport.now, like begins
	begins   time.Duration
}

// result is what came of an attempt.
type result struct {
	Attempt
	class  Class
	inner  *Outcome       // of a nested Transport
	broken *http.Response // whose body broke off while it was buffered; there is no Response then

	// Both outlive the Response, which must not be kept through a wait.
	responded bool
	status    int

	written   bool          // its header was, as far as that is known
	begun     bool          // a body broke off, then or after RoundTrip had returned
	notBefore time.Duration // what an attempt beside it was asked to wait for, by Transport.now; 0: nothing
}

// answer returns the response that came, even if its body broke off.
func (r *result) answer() *http.Response {
	if r.broken != nil {
		return r.broken
	}
	return r.Response
}

// notSent ends a call whose context had ended before the first attempt.
func (c *call) notSent() (*http.Response, error) {
	c.unsent = nil
	closeBody(c.req)
	return c.finish(nil, &result{Attempt: Attempt{Request: c.req, Err: context.Cause(c.req.Context())}}, StopCanceled)
}

// prepare decides what the first attempt sends: the caller's own request if it can.
func (c *call) prepare(first *upcoming) {
	c.keyed = withKey(c.req, &c.policy.Policy)
	first.request = c.keyed
	if hasBody(c.req) {
		if c.bodies = bodiesOf(c.keyed, &c.policy.Policy); c.bodies != nil {
			_ = c.open(first) // the first reading is always granted
		}
	}
	c.unsent = first.request
}

// open makes the request that next sends, with its body. Every request that is sent and
// is not the caller's own comes from here; a time limit or a trace gives it a context.
func (c *call) open(next *upcoming) error {
	req := copyForAttempt(c.keyed, next.number)
	if hasBody(c.req) {
		opened, err := c.bodies.open(c.keyed, req, next.number == 1, next.previous, c.patience(next))
		if err != nil {
			return err
		}
		next.reading = opened
	}
	next.request = req
	return nil
}

// send makes an attempt, and judges it. With a Hedge it may make two.
func (c *call) send(next *upcoming, got *result) {
	if c.policy.Hedge != nil {
		c.sendTimed(next, got)
		return
	}
	c.transmit(next, got)
	c.judge(next, got)
	c.endAttempt(got)
}

// transmit makes an attempt. From here on the base owns the request's body.
func (c *call) transmit(next *upcoming, got *result) {
	if next.request == nil {
		_ = c.open(next) // there is no body that could fail to open
	}
	var trace *headerTrace
	req := next.request
	if c.policy.RetryUnprocessed && !c.policy.Idempotent(req) {
		trace = new(headerTrace)
		req = trace.attach(req)
	}
	if next.number > 1 || !c.policy.Gate.calm() {
		c.pass = c.policy.Gate.begin(c.req, c.pass)
	}
	c.unsent, c.token, c.sent = nil, false, next.number
	resp, err := roundTrip(c.t.base, req, &c.policy.Policy, next.reading, c.bounds())
	c.response = resp
	got.Number, got.Request, got.Err = next.number, next.request, err
	got.written = trace.written()
	if resp == nil {
		return
	}
	got.status = resp.StatusCode
	if err != nil {
		got.broken, got.begun = resp, true
		return
	}
	got.Response, got.responded = resp, true
	if c.policy.BufferBytes > 0 {
		got.Body = wholeBody(resp, c.policy.BufferBytes)
	}
}

// endAttempt has the Gate take note of what came of the attempt. A success has nothing to
// note while all is well.
func (c *call) endAttempt(got *result) {
	gate, closed := c.policy.Gate, closedFor(&c.policy.Policy, got.answer())
	if got.succeeded() && closed == 0 && c.pass.fate == nil && gate.calm() {
		return
	}
	c.mark = gate.end(c.req, c.pass, got.verdict(c.req), closed)
	c.pass = pass{}
}

// judge sets the result's class, and looks for a nested Transport. A success that nobody
// observes, which is Final, needs neither the clock nor a copy of the Attempt.
func (c *call) judge(made *upcoming, got *result) {
	if c.policy.observed || got.status >= 400 || !got.responded {
		got.Elapsed = c.t.now() - made.begins
		got.class = c.policy.Classify(got.Attempt)
	}
	switch {
	case got.class == Unprocessed && got.begun:
		got.class = Retryable // the server has answered
	case got.class != Retryable && got.class != Unprocessed:
		got.class = Final
	}
	if got.inner = innerOutcome(&got.Attempt); got.inner == nil && got.broken != nil {
		got.inner = innerOutcomeOf(got.broken)
	}
}

// refusal returns why the attempt is not followed by another, cheapest reason first.
// The empty Stop means that time, budget and body decide. It changes nothing.
func (c *call) refusal(got *result) Stop {
	p := c.policy
	switch {
	case got.class == Final && got.Response != nil:
		return StopFinal
	case ended(c.req):
		return StopCanceled
	case got.class == Final:
		return StopFinal
	case got.inner != nil:
		return StopNested
	case !p.Idempotent(got.Request) && !(p.RetryUnprocessed && got.unprocessed()):
		return StopNotIdempotent
	case c.attemptsLeft() <= 0:
		return StopAttempts
	case !c.bodies.repeatable(c.req):
		return StopBody
	}
	return ""
}

// attemptsLeft returns how many more attempts MaxAttempts allows.
func (c *call) attemptsLeft() int {
	if c.policy.MaxAttempts < 0 {
		return math.MaxInt
	}
	return c.policy.MaxAttempts - (c.sent - c.before)
}

// retries returns how many of the attempts that count were retries. A hedge is none.
func (c *call) retries() int {
	retries := c.sent - c.before - 1
	if c.hedged && c.before == 0 {
		retries--
	}
	return retries
}

// unprocessed reports whether the server provably did not process the attempt, so
// that a request that is not idempotent may be sent again. An error that claims so
// after the header was written proves nothing: a connection that is carried by
// another one may report a failed dial from any of its reads. A refused stream is
// the server's own word, and so is a response.
func (r *result) unprocessed() bool {
	return r.class == Unprocessed && (r.Err == nil || !r.written || neterr.StreamRefused(r.Err))
}

// plan decides when the next attempt is made, or says why none is.
func (c *call) plan(got *result, next *upcoming) Stop {
	asked := askedFor(&c.policy.Policy, got.answer())
	now := c.t.now() // not when the attempt ended: asked may have been a date, which was read since
	if got.notBefore != 0 {
		asked = max(asked, got.notBefore-now)
	}
	if asked > max(c.policy.MaxRetryAfter, 0) {
		return StopRetryAfter
	}
	backoff := max(c.policy.Backoff(c.retries()+1, next.backoff), 0)
	room := c.room(now)
	if addSaturating(asked, backoff) > room {
		return StopDeadline
	}
	*next = upcoming{
		number:   c.sent + 1,
		previous: next.reading,
		backoff:  backoff,
		wait:     spread(asked, backoff, room),
		decided:  now,
	}
	return ""
}

// claim takes what the retry needs: its token, when every other check has passed, and
// then its body.
func (c *call) claim(got *result, next *upcoming) Stop {
	if !c.policy.Budget.Withdraw(c.req) {
		return StopBudget
	}
	c.token = true
	if !hasBody(c.req) {
		return ""
	}
	err := c.open(next)
	if err == nil {
		return "" // until it is sent, bodies holds the body
	}
	c.refund()
	if ended(c.req) {
		return StopCanceled
	}
	if got.Err != nil {
		got.Err = errors.Join(got.Err, err)
	}
	return StopBody
}

// pause reports the retry, clears the failed response away, and waits. If the context
// ends meanwhile, it returns StopCanceled: the response is gone.
func (c *call) pause(got *result, next *upcoming) Stop {
	got.Wait = next.wait
	c.policy.reportRetry(c.req, &got.Attempt)
	next.previous.cut() // not earlier: it may cost the connection, and so the failed body that OnRetry may read
	c.waitOut(got, next)
	c.hold()
	next.begins = c.t.now()
	c.waited += next.begins - next.decided
	if !ended(c.req) {
		c.ambiguous = c.ambiguous || got.mayHaveTakenEffect()
		return ""
	}
	c.refund()
	c.pass.giveBack()
	c.pass = pass{}
	if got.responded {
		got.Err = statusError(got.status)
	}
	return StopCanceled
}

// waitOut drains the failed response and sleeps. The time that both and OnRetry take is
// part of the wait. Nothing holds on to the response meanwhile.
//
// The drain and the sleep go on beside each other: to be woken for the end of a drain
// would cost as much as the drain.
func (c *call) waitOut(got *result, next *upcoming) {
	ctx := c.req.Context()
	failed := got.Response
	got.Response, got.Body, got.broken, c.response = nil, nil, nil, nil
	if failed != nil {
		limit := min(maxDrainTime, c.patience(next))
		drain := startDrain(&c.t.drains, failed, limit > 0)
		slept := min(c.left(next), limit)
		c.timer.sleep(ctx, slept)
		drain.join(ctx, &c.t.drains, &c.timer, limit-slept)
	}
	c.timer.sleep(ctx, c.left(next))
}

// hold waits for as long as the Gate holds the retry, which is due.
func (c *call) hold() {
	due := c.t.now()
	var held bool
	c.pass, held = c.policy.Gate.wait(c.req, &c.policy.Policy, &c.timer, c.mark, c.room(due)/2)
	if held {
		c.addHeld(due)
	}
}

// addHeld counts and reports a time since when the Gate has held the request.
func (c *call) addHeld(since time.Duration) {
	c.held += c.t.now() - since
	c.policy.reportHeld(c.req, c.held)
}

// room is the longest wait from now on that lets another attempt start in time.
func (c *call) room(now time.Duration) time.Duration {
	return room(c.req.Context(), c.policy.MaxElapsed, now-c.since)
}

// patience is how long what precedes the next attempt may take: to open its body, or to
// drain the failed response. If it takes longer than the wait, it holds up the retry by
// no more than a tenth of the time that is left.
func (c *call) patience(next *upcoming) time.Duration {
	return max(next.wait, c.room(c.t.now())/10)
}

// left is what is left of the wait.
func (c *call) left(next *upcoming) time.Duration {
	if next.wait <= 0 {
		return 0
	}
	return max(next.wait-(c.t.now()-next.decided), 0)
}

// mayHaveTakenEffect reports whether the server may have done what the attempt
// asked for although it failed.
func (r *result) mayHaveTakenEffect() bool {
	if safeMethod(r.Request.Method) || r.class == Unprocessed || refuses(r.status) {
		return false
	}
	return r.Err != nil || r.status >= 500
}

// finish ends the call with the last attempt's result.
func (c *call) finish(made *upcoming, got *result, stop Stop) (*http.Response, error) {
	c.bodies.release(got.Err != nil)
	success := stop == StopFinal && got.Response != nil
	if success {
		c.policy.Budget.Deposit(c.req)
		if c.policy.Resume {
			c.makeResumable(made, got)
		}
	}
	atOnce := success && c.sent == 1 && got.inner == nil && c.waited == 0 // OutcomeOf needs no record of it
	if atOnce && got.Response.Request != c.req {
		got.Response.Request = c.req
	}
	var err error
	if !atOnce || c.policy.OnDone != nil {
		err = c.report(got, stop, !atOnce)
	}
	c.owned = owned{}
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
	return Outcome{
		Attempts:  c.sent,
		Elapsed:   c.t.now() - c.start,
		Waited:    c.waited,
		Held:      c.held,
		Hedges:    c.hedges(),
		HedgeWon:  got.Hedge && got.answer() != nil,
		Stop:      stop,
		Ambiguous: c.ambiguous,
	}.including(got.inner)
}
