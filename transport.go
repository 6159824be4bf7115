// Package retryhttp provides an http.RoundTripper that retries requests that
// are likely to succeed if sent again, and only where sending them again is
// safe.
//
//	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{})}
//
// # What is retried
//
// Responses with status 408, 429 or 5xx, and errors that another attempt may
// not meet again: connections that break, time-outs, hosts that refuse a
// connection. See [Classify].
//
// Only idempotent requests are: GET, HEAD, OPTIONS, PUT, DELETE and the like,
// and any request that carries an Idempotency-Key header. See [Idempotent]. A
// POST without a key is sent once.
//
// By default at most 4 attempts are made, with exponential backoff and full
// jitter, 250 ms at first and 30 s at most. A server's Retry-After is honored
// up to a minute, and never cut short. A [TokenBucket] bounds retries to a
// tenth of the successes, with a few in reserve, so that a client does not keep
// down a service that is down. A wait that would outlast the context's deadline,
// or http.Client.Timeout, is not begun. When retries end, the caller gets the
// last response, whatever its status, with its body unread; or, if there is
// none, an [*Error].
//
// All of this can be changed in the [Policy], and for one request with
// [WithPolicy].
//
// # Request bodies
//
// Every attempt sends the whole body from its first byte. A request made by
// [http.NewRequest] from a bytes.Reader, bytes.Buffer or strings.Reader has a
// GetBody, which is used. An *os.File, and any other body that has ReadAt and
// Seek, is read where it is, from where it stands; a body with Seek alone is
// rewound. Any other body is recorded while it is sent, up to
// [Policy.MaxBodyBytes].
//
// What ReadAt and Seek give must be what Read gives. A type that embeds an
// *os.File and has a Read of its own that changes the bytes must hide them, or
// the request be given a GetBody. An io.NopCloser hides what it wraps: set
// Request.Body to the file itself.
//
// The readers that GetBody returns may share one position. GetBody is called while
// the previous attempt does not read, and that attempt reads nothing after it. A
// Read that takes longer than 250 ms is not waited for.
//
// A request that no retry can follow is sent as it is, and nothing of it is kept.
//
// # What net/http resends by itself
//
// http.Transport also sends a request again, beneath this package and unseen by
// it: at once, on a new connection, if the connection it had taken from its pool
// turned out to be dead before any byte was written; or before any byte of the
// response was read, if the request has no body or a GetBody, and is a GET,
// HEAD, OPTIONS or TRACE or has an Idempotency-Key; and over HTTP/2, whatever the
// method, if the server refused the stream, ended it with PROTOCOL_ERROR, or
// announced in a GOAWAY that it had not processed it: up to seven times, with
// waits that add up to a minute, but after each GOAWAY anew. These do not count as
// attempts and draw on no budget; an AttemptTimeout bounds their time.
//
// A request whose body this package wraps is given a GetBody, so that they work for
// it too; but a body that can be read only once has one only if its ContentLength
// is known and not above [Policy.MaxBodyBytes]. A request that [Policy.Idempotent]
// does not accept is not given one, and if it has an idempotency key, it has none.
//
// # Connections that have died
//
// Over HTTP/2 the attempts of a request share one connection with everything else
// that goes to that host. Where its other end is gone without a word, they all
// meet the same silence, whatever the AttemptTimeout, until the kernel gives the
// connection up, which can take a quarter of an hour. Have the base ping it: set
// SendPingTimeout and PingTimeout in its [http.HTTP2Config]. The base that [New]
// makes for itself does.
//
// # Chains of RoundTrippers
//
// Signing, authentication, tracing of single attempts and circuit breakers
// belong beneath a Transport, so that every attempt passes through them; caches
// belong above. Where two Transports come to lie on top of each other, only the
// inner one retries: what it has given up on is not sent again by the outer one. A
// reverse proxy must not retry what is not idempotent (RFC 9110, section 9.2.2),
// whatever key the request carries: give it a [Policy.Idempotent] that looks at the
// method alone.
//
// A RoundTripper that changes the request it is given, instead of a copy, belongs
// above a Transport: below it, a retry would carry the change. If one below wraps
// the bodies of responses, as tracers and decoders do, set [Policy.AttemptTimeout].
// A failed response that stalls cannot be closed while it is read, unless its body is
// net/http's own. Without an AttemptTimeout its connection is then held until the
// request's context ends or the server goes on.
//
// A RoundTripper that lies between needs a CloseIdleConnections of its own, if
// [http.Client.CloseIdleConnections] is to reach what is beneath it. And the [*Error] of
// a request that it makes on the way, for a token say, is taken for one of a Transport
// underneath: its attempts are counted, and Ambiguous may come from it.
package retryhttp

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/retryhttp/retryhttp/internal/pooled"
	"github.com/retryhttp/retryhttp/internal/replay"
)

// Transport is an http.RoundTripper that retries. It is made by [New], and is
// safe for concurrent use. One that was not made by New fails every request.
type Transport struct {
	base   http.RoundTripper
	policy Policy // resolved
	plain  bool   // policy.Classify is Classify
	own    TokenBucket
	epoch  time.Time
	drains sync.Pool // of *drain; it spares a retry two allocations
}

// New returns a Transport that sends attempts through base. A nil base is a
// pooled go-cleanhttp transport of its own: the settings of
// [http.DefaultTransport], sharing no connections with it. Its HTTP/2 connections
// are pinged when nothing has come for 30 seconds, and closed if nothing comes
// for another 15.
func New(base http.RoundTripper, p Policy) *Transport {
	if base == nil {
		base = pooled.Transport()
	}
	t := &Transport{base: base, plain: p.Classify == nil, epoch: time.Now()}
	t.policy = p.resolve(&t.own)
	return t
}

var errNotMade = errors.New("the retryhttp.Transport was not made by New")

// CloseIdleConnections closes the base's idle connections, if it has any. It
// is what makes [http.Client.CloseIdleConnections] work.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip sends req, and sends it again as the Policy allows. It returns
// either a response, whatever its status, or an [*Error].
//
// The request is not changed, and its body is always closed, though possibly
// after RoundTrip has returned, as with any RoundTripper. The response's body
// is the caller's to close. Its Request is req, or a copy of it that carries
// the [Outcome].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t == nil || t.base == nil {
		closeBody(req)
		return nil, &Error{Outcome: Outcome{Stop: StopFinal}, Err: errNotMade}
	}
	c := call{t: t, policy: &t.policy, req: req, next: req, start: t.now(), unsent: true}
	c.began = c.start
	defer c.cleanUp()
	if edit, ok := req.Context().Value(policyKey{}).(*policyEdit); ok {
		c.policy = edit.apply(&t.policy, &t.own)
	}
	if req.Context().Err() != nil {
		c.unsent = false
		closeBody(req)
		return c.finish(&Attempt{Request: req, Err: context.Cause(req.Context())}, StopCanceled)
	}
	c.prepare()
	for {
		a := c.send()
		stop := c.judge(&a)
		if stop == "" {
			stop = c.pause(&a)
		}
		if stop != "" {
			return c.finish(&a, stop)
		}
	}
}

// now is the time since an arbitrary moment. Reading the monotonic clock alone
// costs half of what time.Now does, which shows on the path of a success.
func (t *Transport) now() time.Duration {
	return time.Since(t.epoch)
}

// call is the state of one RoundTrip. It lives on the stack.
type call struct {
	t      *Transport
	policy *Policy
	req    *http.Request // the caller's
	keyed  *http.Request // req, or a copy that carries a key
	next   *http.Request // what the next attempt sends; its context is the caller's
	bodies *bodies

	timer timer

	start     time.Duration // by t.now, as are the next two
	began     time.Duration // the newest attempt
	decided   time.Duration // when it was decided to retry
	backoff   time.Duration // before the last retry
	waited    time.Duration
	attempts  int
	class     Class    // of the last attempt
	written   bool     // its header was, as far as that is known
	inner     *Outcome // of a Transport underneath, in the last attempt
	ambiguous bool

	unsent    bool           // nobody else closes c.next's body
	withdrawn bool           // for an attempt that has not been sent
	response  *http.Response // not handed over, nor closed
	finished  bool
}

// prepare decides what the attempts send. The first sends the caller's own request
// where it can.
func (c *call) prepare() {
	c.keyed = withKey(c.req, c.policy)
	c.next = c.keyed
	if !hasBody(c.req) {
		return
	}
	if c.bodies = bodiesOf(c.keyed, c.policy); c.bodies != nil {
		_ = c.open(0) // the first reading is always granted
	}
}

// open makes the request that the next attempt sends, with its body, for which it may
// wait as long as patience. Every request that is not the caller's own is made here.
func (c *call) open(patience time.Duration) error {
	next := copyForAttempt(c.keyed, c.attempts)
	if hasBody(c.req) {
		if err := c.bodies.open(c.keyed, next, c.attempts == 0, patience); err != nil {
			return err
		}
	}
	c.next = next
	return nil
}

// send makes one attempt.
func (c *call) send() Attempt {
	if c.attempts > 0 && !hasBody(c.req) {
		_ = c.open(0) // not earlier: many requests may be waiting, and need no copy meanwhile
	}
	c.withdrawn, c.unsent = false, false
	c.attempts++
	var trace *headerTrace
	if c.policy.RetryUnprocessed && !c.policy.Idempotent(c.next) {
		trace = new(headerTrace)
	}
	resp, err := roundTrip(c.t.base, trace.attach(c.next), c.policy.AttemptTimeout, c.bodies.reading())
	c.response = resp
	c.written = trace.written()
	a := Attempt{Number: c.attempts, Request: c.next, Response: resp, Err: err}
	if !c.t.plain || c.policy != &c.t.policy || c.policy.OnDone != nil || err != nil || resp.StatusCode >= 400 {
		a.Elapsed = c.t.now() - c.began // else nobody will ask
	}
	if c.class = c.policy.Classify(a); c.class != Retryable && c.class != Unprocessed {
		c.class = Final
	}
	c.inner = innerOutcome(&a)
	return a
}

// judge decides what follows on an attempt. The empty Stop means a retry: its
// token has been withdrawn, its request and body are ready, and a.Wait is set.
// The order is that of Stop's constants, cheapest first, and the budget comes
// last so that no token goes to a retry that will not happen.
func (c *call) judge(a *Attempt) Stop {
	p := c.policy
	if c.class == Final && a.Response != nil {
		return StopFinal
	}
	if ended(c.req) {
		return StopCanceled
	}
	if c.class == Final {
		return StopFinal
	}
	if c.inner != nil {
		return StopNested
	}
	if !p.Idempotent(a.Request) && !(p.RetryUnprocessed && c.unprocessed(a)) {
		return StopNotIdempotent
	}
	if p.MaxAttempts > 0 && a.Number >= p.MaxAttempts {
		return StopAttempts
	}
	if !c.bodies.repeatable(c.req) {
		return StopBody
	}
	asked := c.retryAfter(a)
	if asked > max(p.MaxRetryAfter, 0) {
		return StopRetryAfter
	}
	if !c.schedule(a, asked) {
		return StopDeadline
	}
	if !p.Budget.Withdraw(c.req) {
		return StopBudget
	}
	c.withdrawn = true
	if hasBody(c.req) {
		if err := c.open(c.spare(a.Wait)); err != nil {
			c.refund()
			if ended(c.req) {
				return StopCanceled
			}
			if a.Err != nil {
				a.Err = errors.Join(a.Err, err)
			}
			return StopBody
		}
	}
	return ""
}

// unprocessed reports whether the server provably did not process the attempt, so
// that a request that is not idempotent may be sent again. An error that claims so
// after the header was written proves nothing: a connection that is carried by
// another one may report a failed dial from any of its reads. A refused stream is
// the server's own word, and so is a response.
func (c *call) unprocessed(a *Attempt) bool {
	return c.class == Unprocessed && (a.Err == nil || !c.written || streamRefused(a.Err))
}

// finish ends the RoundTrip with the last attempt's result.
func (c *call) finish(a *Attempt, stop Stop) (*http.Response, error) {
	c.bodies.release(a.Err != nil)
	a.Wait = 0 // there is no next attempt
	success := stop == StopFinal && a.Response != nil
	if success {
		c.policy.Budget.Deposit(c.req)
	}
	if success && c.attempts == 1 && c.inner == nil {
		return c.finishAtOnce(a), nil
	}
	o := c.outcome(stop)
	if a.Response != nil {
		attachOutcome(a.Response, c.req, o)
	}
	c.tellDone(a, o)
	c.finished = true
	if a.Err != nil {
		return nil, newError(a.Err, o, c.req)
	}
	return a.Response, nil
}

// refund gives back the token of a retry that is not sent.
func (c *call) refund() {
	if c.withdrawn {
		c.withdrawn = false
		c.policy.Budget.Refund(c.req)
	}
}

// cleanUp is for a RoundTrip that a panic ends, of a hook or of the base:
// http.ErrAbortHandler, say, which somebody up the stack recovers.
func (c *call) cleanUp() {
	if c.finished {
		return
	}
	if c.unsent {
		closeBody(c.next)
	}
	c.refund()
	c.bodies.release(true)
	closeResponse(c.response)
}

// finishAtOnce ends the RoundTrip whose first attempt was final. There is
// nothing to record: OutcomeOf knows this case.
func (c *call) finishAtOnce(a *Attempt) *http.Response {
	if a.Response.Request != c.req {
		a.Response.Request = c.req
	}
	if c.policy.OnDone != nil {
		c.policy.OnDone(*a, c.outcome(StopFinal))
	}
	c.finished = true
	return a.Response
}

func (c *call) outcome(stop Stop) Outcome {
	o := Outcome{
		Attempts:  c.attempts,
		Elapsed:   c.t.now() - c.start,
		Waited:    c.waited,
		Stop:      stop,
		Ambiguous: c.ambiguous,
	}
	if c.inner != nil {
		o.Attempts += max(c.inner.Attempts, 1) - 1 // 0 if its context had ended
		o.Waited += c.inner.Waited
		o.Ambiguous = o.Ambiguous || c.inner.Ambiguous
	}
	return o
}

func newError(err error, o Outcome, req *http.Request) *Error {
	e := &Error{Outcome: o, Err: err}
	if o.Stop == StopCanceled {
		e.canceled = endOf(req)
	}
	return e
}

// innerOutcome returns what a Transport underneath recorded, or nil if there is
// none or it neither retried nor gave up.
func innerOutcome(a *Attempt) *Outcome {
	if a.Err != nil {
		e, ok := errors.AsType[*Error](a.Err)
		if !ok || fromElsewhere(e, a) {
			return nil
		}
		return &e.Outcome
	}
	if a.Response.Request == a.Request {
		return nil
	}
	if rec, ok := recordOf(a.Response); ok {
		return &rec.outcome
	}
	return nil
}

// fromElsewhere reports whether an Error in a's error tells of another request:
// one that failed and so ended this one's context, or one that this one's body
// is read from.
func fromElsewhere(e *Error, a *Attempt) bool {
	return errors.Is(context.Cause(a.Request.Context()), e) || is[*replay.ReadError](a.Err) || is[*replay.BodyError](a.Err)
}
