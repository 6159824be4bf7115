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
// Responses with status 408, 429 or 5xx are retried, and so are errors that look transient. See
// [Classify]. The request must be idempotent, by its method or by an Idempotency-Key header. See
// [Idempotent]. A [TokenBucket] limits retries to a tenth of recent successes, plus a small
// reserve. A [Gate] holds them back while a host is down.
//
// # Bodies
//
// Every attempt sends the whole request body. A GetBody is used if there is one. An *os.File is
// read in place, and any other body that can seek is rewound. Other bodies are recorded while
// they are sent, up to [Policy.MaxBodyBytes]. An io.NopCloser hides a file: set Request.Body to
// the file itself. A response body is handed over unread, unless the Policy has BufferBytes,
// Resume or StallTimeout.
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
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
	"github.com/retryhttp/retryhttp/internal/durations"
	"github.com/retryhttp/retryhttp/internal/outage"
	"github.com/retryhttp/retryhttp/internal/timer"

	"github.com/retryhttp/retryhttp/internal/neterr"
	"github.com/retryhttp/retryhttp/internal/pooled"
	"github.com/retryhttp/retryhttp/internal/respbody"
)

// Transport is an http.RoundTripper that retries. It is made by New.
type Transport struct {
	base   http.RoundTripper
	policy resolved
	own    shared
	epoch  time.Time
	drains respbody.Drains
}

// New returns a Transport that sends attempts through base. A nil base is like
// http.DefaultTransport, with connections of its own. It keeps up to 100 idle connections for each
// host, and sends HTTP/2 pings. It has two pools, and the attempt that follows a
// [Policy.AttemptTimeout] uses the other pool.
func New(base http.RoundTripper, p Policy) *Transport {
	if base == nil {
		base = pooled.New()
	}
	t := &Transport{base: base, epoch: time.Now()}
	t.policy = p.resolve(&t.own)
	return t
}

var errNotMade = errors.New("the retryhttp.Transport was not made by New")

// CloseIdleConnections calls the base's method of this name, if it has one.
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
	var c call // a composite literal would keep a second copy on the stack while the request waits
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

// again prepares the attempt that follows got, and waits until it may be sent. If no attempt
// follows, again returns the reason.
func (c *call) again(got *result, next *upcoming) Stop {
	stop := c.plan(got, next)
	if stop == "" {
		stop = c.claim(got, next)
	}
	if stop == "" {
		stop = c.pause(got, next)
	}
	if stop != "" && c.race != nil {
		return c.afterHedge(got, next)
	}
	return stop
}

// now returns the time since an arbitrary moment. Reading only the monotonic clock costs half
// as much as time.Now. The difference is noticeable on the path of a success.
func (t *Transport) now() time.Duration {
	return time.Since(t.epoch)
}

// policyFor returns the Policy that applies to req.
func (t *Transport) policyFor(req *http.Request) *resolved {
	if edit, ok := req.Context().Value(policyKey{}).(*policyEdit); ok {
		return edit.apply(&t.policy, &t.own)
	}
	return &t.policy
}

// call is the state of one RoundTrip, which keeps it on the stack.
type call struct {
	t      *Transport
	policy *resolved
	req    *http.Request // the caller's request
	keyed  *http.Request // req, or a copy that carries a key

	start     time.Duration // read from Transport.now
	since     time.Duration // the start of MaxElapsed: start, or the time at which a body broke off
	sent      int           // number of attempts
	before    int           // number of attempts that do not count, because a later attempt brought a body, or enough of it
	waited    time.Duration
	held      time.Duration // included in waited
	mark      uint32        // the Gate's mark at the end of the newest attempt
	ambiguous bool          // an attempt before the last may have taken effect
	hedged    bool          // an attempt was sent beside another
	spare     bool          // the token of the hedge is neither given back nor spent on a retry
	otherPool bool          // attempts use the second pool of the nil base

	// idempotent is decided before the first attempt. A base may add an idempotency key to the
	// request that it is given, a new key for each attempt. Such a key makes nothing safe to repeat.
	idempotent bool

	pace  *pace // nil if the request is not hedged
	timer timer.Timer
	owned
}

// owned holds what a call gives back when it ends, even if a panic of a hook or of the base
// ends it.
type owned struct {
	unsent   *http.Request  // the request of the first attempt, or of a hedge, until it is sent; only the call closes its body
	bodies   *bodies        // the source of the attempts' bodies; nil if each body is sent as it is
	token    bool           // a token is withdrawn for an attempt that is not sent yet
	pass     outage.Pass    // the pass of an attempt that has not ended
	race     *race          // a race that has not ended
	response *http.Response // a response that is neither returned nor drained yet
}

// giveBack releases what the call owns when a panic ends the call, such as
// http.ErrAbortHandler, which a function up the stack recovers. After finish, giveBack does
// nothing.
func (c *call) giveBack() {
	if c.owned == (owned{}) {
		return
	}
	if c.unsent != nil {
		closeBody(c.unsent)
	}
	c.race.abandon()
	c.refund()
	c.pass.GiveBack()
	c.bodies.release(true)
	closing.Response(c.response)
}

// refund gives back the token of a retry that is not sent.
func (c *call) refund() {
	if c.token {
		c.token = false
		c.policy.Budget.Refund(c.req)
	}
}

// mayBegin waits before the first attempt if Gate.First requires it. It returns false if the
// context has ended.
func (c *call) mayBegin() bool {
	if g := c.policy.Gate; g.First && c.policy.MaxRetryAfter >= 0 && g.waitFirst(c.req, &c.timer, c.room(c.start)/2) {
		c.addHeld(c.start)
		c.waited = c.held
	}
	return c.req.Context().Err() == nil
}

// upcoming is an attempt that is about to be made.
type upcoming struct {
	number   int
	request  *http.Request // nil until it is sent if there is no body; a waiting call needs no copy
	reading  reading
	previous reading       // the previous attempt's reading; may still be running
	backoff  time.Duration // the backoff before the attempt; 0 for the first attempt
	wait     time.Duration // backoff, or longer if the server asked for a wait
	decided  time.Duration // the start of the wait; read from Transport.now, like begins
	begins   time.Duration
}

// result is an attempt and how it is judged.
type result struct {
	Attempt
	class  Class
	inner  *Outcome       // a nested Transport's Outcome
	broken *http.Response // a response whose body broke off while it was buffered; Response is nil then

	// These two fields outlive the Response, which must not be retained during a wait.
	responded bool
	status    int

	written   bool // the request header is known to have been written
	begun     bool // the response body broke off, while it was buffered or after RoundTrip returned
	asks      bool // the response has a valid Retry-After; see retryAfter, like the next two
	read      bool
	asked     time.Duration
	notBefore time.Duration // the time until which the server asked a parallel attempt to wait, by Transport.now; 0 if it did not
}

// answer returns the attempt's response, even if its body broke off.
func (r *result) answer() *http.Response {
	if r.broken != nil {
		return r.broken
	}
	return r.Response
}

// notSent ends a call whose context ended before the first attempt.
func (c *call) notSent() (*http.Response, error) {
	c.unsent = nil
	closeBody(c.req)
	return c.finish(nil, &result{Attempt: Attempt{Request: c.req, Err: context.Cause(c.req.Context())}}, StopCanceled)
}

// prepare chooses the request of the first attempt: the caller's own request if possible.
func (c *call) prepare(first *upcoming) {
	c.keyed, c.idempotent = withKey(c.req, &c.policy.Policy)
	first.request = c.keyed
	if hasBody(c.req) {
		if c.bodies = bodiesOf(c.keyed, &c.policy.Policy, c.idempotent); c.bodies != nil {
			_ = c.open(first) // the first reading is always granted
		}
	}
	c.unsent = first.request
}

// open makes the request that next sends, with its body. The requests of all retries come from
// here. A time limit or a trace later gives the request another context.
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

// send makes and judges an attempt. With a Hedge, send may make two attempts.
func (c *call) send(next *upcoming, got *result) {
	if c.policy.Hedge != nil {
		c.sendTimed(next, got)
		return
	}
	c.transmit(next, got)
	c.judge(next, got)
	c.endAttempt(got)
}

// transmit sends an attempt through the base, which then owns the request's body.
func (c *call) transmit(next *upcoming, got *result) {
	if next.request == nil {
		_ = c.open(next) // open cannot fail without a body
	}
	var trace *headerTrace
	req := next.request
	if c.policy.RetryUnprocessed && !c.idempotent {
		trace = new(headerTrace)
		req = trace.attach(req)
	}
	if next.number > 1 || !c.policy.Gate.calm() {
		c.pass = c.policy.Gate.begin(c.req, c.pass)
	}
	c.unsent, c.token, c.sent = nil, false, next.number
	resp, err := roundTrip(c.base(), req, &c.policy.Policy, next.reading, c.bounds())
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
		got.Body = respbody.Whole(resp, c.policy.BufferBytes)
	}
}

// base returns what the next attempt is sent through. Only a nil base has a second pool.
func (c *call) base() http.RoundTripper {
	if c.otherPool {
		if pools, ok := c.t.base.(*pooled.Pools); ok {
			return pools.Second
		}
	}
	return c.t.base
}

// endAttempt reports the attempt's result to the Gate. A success has nothing to report while
// the Gate is calm and the response closes no key.
func (c *call) endAttempt(got *result) {
	gate, closed := c.policy.Gate, got.closes(&c.policy.Policy)
	if got.succeeded() && closed == 0 && !c.pass.UnderWay() && gate.calm() {
		return
	}
	c.mark = gate.end(c.req, c.pass, evidence{got.verdict(c.req), got.Number == 1, closed, got.status == http.StatusServiceUnavailable})
	c.pass = outage.Pass{}
}

// judge sets the result's class, and records a nested Transport's Outcome. A success that no
// hook observes is Final, and needs neither the clock nor a copy of the Attempt.
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

// refusal returns why no attempt follows got. The cheapest checks come first. The empty Stop
// means that time, budget and body decide. refusal changes nothing.
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
	case !c.idempotent && !(p.RetryUnprocessed && got.unprocessed()):
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

// retries returns how many of the attempts that count were retries. A hedge is not a retry.
func (c *call) retries() int {
	retries := c.sent - c.before - 1
	if c.hedged && c.before == 0 {
		retries--
	}
	return retries
}

// unprocessed reports whether the server provably did not process the attempt. If so, a
// request that is not idempotent may be sent again.
//
// After the header was written, an error proves nothing. A connection inside another
// connection may report a failed dial from any of its reads. A refused stream and a response
// are proof, because they come from the server itself.
func (r *result) unprocessed() bool {
	return r.class == Unprocessed && (r.Err == nil || !r.written || neterr.StreamRefused(r.Err))
}

// plan decides when the next attempt is made, or returns why there is none.
func (c *call) plan(got *result, next *upcoming) Stop {
	asked := got.askedFor(&c.policy.Policy)
	now := c.t.now() // not the end of the attempt: asked may come from a date, whose distance was measured after that
	if got.notBefore != 0 {
		asked = max(asked, got.notBefore-now)
	}
	if asked > max(c.policy.MaxRetryAfter, 0) {
		return StopRetryAfter
	}
	backoff := max(c.policy.Backoff(c.retries()+1, next.backoff), 0)
	room := c.room(now)
	if durations.Add(asked, backoff) > room {
		return StopDeadline
	}
	if _, late := got.Err.(*attemptTimeoutError); late {
		c.otherPool = !c.otherPool
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

// claim withdraws the retry's token when every other check has passed. It then opens the
// retry's body, unless a hedge may still read its own.
func (c *call) claim(got *result, next *upcoming) Stop {
	if !c.policy.Budget.Withdraw(c.req) && !c.takeSpare() {
		return StopBudget
	}
	c.token = true
	if c.race != nil {
		return ""
	}
	return c.openRetry(got, next)
}

// openRetry opens the retry's body, if there is one.
func (c *call) openRetry(got *result, next *upcoming) Stop {
	if !hasBody(c.req) {
		return ""
	}
	err := c.open(next)
	if err == nil {
		return "" // bodies holds the body until it is sent
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

// pause reports the retry, drains the failed response, and waits. If the context ends
// meanwhile, pause returns StopCanceled, because the response is gone.
func (c *call) pause(got *result, next *upcoming) Stop {
	got.Wait = next.wait
	c.policy.reportRetry(c.req, &got.Attempt)
	next.previous.cut() // not earlier: cut may cost the connection, and with it the failed body, which OnRetry may read
	c.waitOut(got, next)
	c.hold(0)
	if c.race != nil {
		if stop := c.meetHedge(got, next); stop != "" {
			return stop
		}
	}
	next.begins = c.t.now()
	c.waited += next.begins - next.decided
	if !ended(c.req) {
		c.ambiguous = c.ambiguous || got.mayHaveTakenEffect()
		return c.openLate(got, next)
	}
	c.dropRetry()
	if got.responded {
		got.Err = statusError(got.status)
	}
	return StopCanceled
}

// waitOut drains the failed response, and sleeps. The drain and OnRetry are part of the wait.
// The call does not retain the response meanwhile.
//
// The drain and the sleep run in parallel. Waking up at the end of a drain would cost as much
// as the drain.
func (c *call) waitOut(got *result, next *upcoming) {
	ctx := c.waiting()
	failed := got.Response
	got.Response, got.Body, got.broken, c.response = nil, nil, nil, nil
	if failed != nil {
		limit := min(respbody.MaxDrainTime, c.patience(next))
		drain := c.t.drains.Start(failed, limit > 0)
		slept := min(c.left(next), limit)
		c.timer.Sleep(ctx, slept)
		drain.Join(ctx, &c.timer, limit-slept)
	}
	c.timer.Sleep(ctx, c.left(next))
}

// hold waits while the Gate holds a retry that was due before the time late.
func (c *call) hold(late time.Duration) {
	now, req := c.t.now(), c.req
	if c.race != nil {
		req = req.WithContext(c.race.waiting)
	}
	limit := min(durations.Add(c.room(now), late)/2, c.policy.Gate.hold()) - late
	var held bool
	c.pass, held = c.policy.Gate.wait(req, &c.timer, c.mark, limit, c.policy.MaxRetryAfter >= 0)
	if held && c.race == nil {
		c.addHeld(now)
	}
}

// addHeld adds the time since the Gate began to hold the request, and reports the total.
func (c *call) addHeld(since time.Duration) {
	c.held += c.t.now() - since
	c.policy.reportHeld(c.req, c.held)
}

// room returns the longest wait from now after which another attempt still starts in time.
func (c *call) room(now time.Duration) time.Duration {
	return room(c.req.Context(), c.policy.MaxElapsed, now-c.since)
}

// patience returns how long it may take to open the next attempt's body, or to drain the failed
// response. Either may take longer than the wait, up to a tenth of the time that is left.
func (c *call) patience(next *upcoming) time.Duration {
	return max(next.wait, c.room(c.t.now())/10)
}

// left returns the rest of the wait.
func (c *call) left(next *upcoming) time.Duration {
	if next.wait <= 0 {
		return 0
	}
	return max(next.wait-(c.t.now()-next.decided), 0)
}

// mayHaveTakenEffect reports whether the server may have carried out the request although the
// attempt failed. A nested Transport that has given up knows this itself.
func (r *result) mayHaveTakenEffect() bool {
	switch {
	case r.Number == 0, safeMethod(r.Request.Method), r.class == Unprocessed, refuses(r.status):
		return false
	case r.responded:
		return r.status >= 500
	case r.inner != nil && !is[*attemptTimeoutError](r.Err):
		return false
	}
	return resendable(r.Request) || !neterr.NeverSent(r.Err)
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
	atOnce := success && c.sent == 1 && got.inner == nil && c.waited == 0 // OutcomeOf needs no record of such a call
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
		Ambiguous: c.ambiguous || got.answer() == nil && got.mayHaveTakenEffect(),
	}.including(got.inner)
}
