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
// [Idempotent]. A [TokenBucket] limits retries to half of recent successes while a host is mostly
// well, and to a tenth while it is not, plus a small reserve. A retry that it refuses may wait a few
// seconds for a success. A [Gate] holds retries back while a host is down.
//
// # Bodies
//
// Every attempt sends the whole request body. A GetBody is used if there is one. An *os.File is
// read in place, and any other body that can seek is rewound. Other bodies are recorded while
// they are sent, up to [Policy.RecordBytes]. An io.NopCloser hides a file: set Request.Body to
// the file itself. The body of a success is handed over as it came, unless it came beside the pool.
// AttemptTimeout, BufferBytes, PeekBytes, Resume, StallTimeout and Hedge wrap it.
//
// # Zero and negative values
//
// A zero field means its default, and a nil function, Budget or Gate does, too.
//
//	                        zero                    negative            to switch it off
//	Policy
//	  MaxAttempts           4                       no limit            1: nothing is retried
//	  MaxElapsed            no limit                no limit            0
//	  AttemptTimeout        no limit                no limit            0
//	  Backoff               FullJitter(250ms, 30s)                      Constant(0): no wait
//	  MaxRetryAfter         a minute                the header is       -1
//	                                                ignored
//	  RecordBytes           64 KiB                  nothing is recorded -1
//	  BufferBytes           nothing is buffered     as zero             0
//	  PeekBytes             nothing is awaited      as zero             0
//	  StallTimeout          no limit                as zero             0
//	  Budget                a new TokenBucket                           Unlimited{}
//	  Gate                  a new Gate                                  &Gate{Hold: -1}
//	  Hedge                 no hedges                                   nil
//	TokenBucket
//	  Ratio                 0.1                     nothing is earned   -1
//	  HealthyRatio          0.5, or Ratio if set    as Ratio            as Ratio
//	  Burst                 5                       none                -1
//	  Window                20 s                    no room beyond      -1
//	                                                Burst
//	  MinPerSecond          none                    none                0
//	Gate
//	  Hold                  5 s                     nothing is held,    -1
//	                                                and there is no line
//	Hedge
//	  Share                 0.05                    nothing is hedged   -1
//	  After                 the quantile            the quantile        0
//	  Min                   1 ms                    no minimum          -1
//	  Window                30 s                    30 s
//
// In a [Backoff], a limit of 0 or less is no limit, and a base or a step of 0 or less gives no wait. A
// number that is NaN counts as negative.
//
// # Chains of RoundTrippers
//
// Place signing, authentication, tracing and circuit breakers below a Transport, and caches
// above. When Transports are nested, the outer one repeats nothing that the inner one has retried or
// given up. A reverse proxy needs a [Policy.Idempotent] that looks at the method alone.
//
// See docs/behavior.md for details, and for what http.Transport resends by itself.
package retryhttp

import (
	"errors"
	"net/http"
	"time"
)

// Transport is an http.RoundTripper that retries. It is made by New.
type Transport struct {
	core
	policy resolved
	own    shared
}

// New returns a Transport that sends attempts through base. A nil base is NewBase(nil), and not
// http.DefaultTransport. An *http.Transport t is NewBase(t), so that a retry takes another connection.
// Give Transports that share t one Base: each New(t, p) would make its own, with detours of its own.
// If base wraps an http.Transport, wrap a [Base] instead: New(signer{NewBase(t)}, p). It learns of
// attempts by their contexts, so a wrapper must pass on the context of its request.
func New(base http.RoundTripper, p Policy) *Transport {
	switch b := base.(type) {
	case nil:
		base = NewBase(nil)
	case *http.Transport:
		base = NewBase(b)
	}
	t := &Transport{core: core{base: base, epoch: time.Now()}}
	if b, ok := base.(*Base); ok && b != nil {
		t.below.NoteReached(b.dispatcher)
	}
	t.policy = p.resolve(&t.own)
	return t
}

var errNotMade = errors.New("the retryhttp.Transport was not made by New")

// CloseIdleConnections calls the base's method of this name, if it has one.
func (t *Transport) CloseIdleConnections() {
	if t == nil {
		return
	}
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
	c.core, c.req, c.unsent, c.start, c.since = &t.core, req, req, now, now
	defer c.giveBack()
	c.policy = t.policyFor(req)
	if !c.mayBegin() {
		return c.notSent()
	}
	var next attempt
	next.number, next.begins = 1, c.start+c.Held
	c.prepare(&next)
	for { // next is sent, and again then puts its successor in its place
		var got result
		c.send(&next, &got)
		if stop := c.again(&got, &next); stop != "" {
			if stop == StopFinal && c.policy.Resume {
				makeResumable(&c, &next, &got)
			}
			return c.finish(&got, stop)
		}
	}
}

// policyFor returns the Policy that applies to req.
func (t *Transport) policyFor(req *http.Request) *resolved {
	if edit, ok := req.Context().Value(policyKey{}).(*policyEdit); ok {
		return edit.apply(&t.policy, &t.own)
	}
	return &t.policy
}
