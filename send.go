package retryhttp

import (
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
	"github.com/retryhttp/retryhttp/internal/detour"
	"github.com/retryhttp/retryhttp/internal/latency"
	"github.com/retryhttp/retryhttp/internal/outage"
	"github.com/retryhttp/retryhttp/internal/replay"
	"github.com/retryhttp/retryhttp/internal/respbody"
)

// core is what all exchanges of a Transport share.
type core struct {
	base      http.RoundTripper
	epoch     time.Time // the time that all times of an exchange are measured from
	drains    respbody.Drains
	questions sync.Pool // of *question

	below detour.Below // each Base below
}

// now returns the time since the epoch. Reading only the monotonic clock costs half as much as
// time.Now. The difference is noticeable on the path of a success.
func (c *core) now() time.Duration { return time.Since(c.epoch) }

// exchange is what a call and its hedge have in common: what they send, and what they own while an
// attempt is under way.
type exchange struct {
	core   *core
	policy *resolved
	req    *http.Request // the caller's request, or a hedge's copy of it
	keyed  *http.Request // req, or a copy with a key; of a resumption, a copy with a Range

	// idempotent is decided before the first attempt. A base may add an idempotency key to the
	// request that it is given, a new key for each attempt. Such a key makes nothing safe to repeat.
	idempotent bool

	// withBody is decided before the first attempt, too. A base may put an empty body on a request that
	// has none, as recorders and signers do that read the body and put it back.
	withBody     bool
	hidesGetBody bool

	// since is the start of MaxElapsed, read from core.now: the call's start, or the time at which a
	// body broke off.
	since time.Duration

	newest *numbered     // until its answer; nil if a Base below need not know of it
	route  detour.Route  // of the attempts before
	tail   *latency.Tail // nil if the request is not hedged
	rival  *race         // whose turn a peek takes; nil unless a hedge may be sent
	mark   uint32        // the Gate's mark at the end of the newest attempt
	spent  receipt       // the token of a hedge or a resumption that was sent

	owned
}

// owned holds what is given back when an exchange ends, even if a panic of a hook or of the base
// ends it.
type owned struct {
	unsent   *http.Request  // the request of the first attempt, or of a hedge, until it is sent
	bodies   *replay.Body   // what the attempts' bodies come from; nil if each is sent as it is
	token    receipt        // of an attempt that is not sent yet
	pass     outage.Pass    // the pass of an attempt that has not ended
	response *http.Response // a response that is neither returned nor drained yet
}

// giveBack gives back what is owned for an attempt that is not sent, or that is not judged. The bodies
// of the request and of the response are closed last, because a Close may take its time, or panic.
func (x *exchange) giveBack() {
	defer func() {
		x.pass.GiveBack()
		if x.unsent != nil {
			closeBody(x.unsent)
		}
		closing.Response(x.response)
	}()
	x.refund(&x.token) // which may panic
}

// open makes the request that next sends, with its body. The request of each attempt but a hedge comes
// from here. A time limit or a trace later gives the request another context.
func (x *exchange) open(next *attempt) error {
	req := x.copyForAttempt(next.number, false)
	if x.withBody {
		if err := x.openBody(req, next); err != nil {
			return err
		}
	}
	next.request = req
	return nil
}

// openBody gives req the body for next, an attempt that runs beside no other. It may wait for a Read of the
// previous attempt.
func (x *exchange) openBody(req *http.Request, next *attempt) (err error) {
	switch {
	case x.bodies == nil && next.number == 1: // req has the caller's body
	case x.bodies == nil:
		req.Body, err = x.keyed.GetBody()
	case next.number == 1:
		next.reading = x.bodies.First(req)
	default:
		next.reading, err = next.previous.Next(req, x.patience(next))
	}
	if x.hidesGetBody {
		req.GetBody = nil
	}
	return err
}

// openBodyBeside gives req a body for an attempt that runs beside elder's attempt. It calls a
// GetBody that http.NewRequest did not make only if no attempt has a body open.
func (x *exchange) openBodyBeside(req *http.Request, elder *replay.Lease) (opened *replay.Lease, err error) {
	if x.bodies != nil {
		return elder.Beside(req)
	}
	if req.Body, err = x.keyed.GetBody(); err != nil {
		return nil, err
	}
	// Even such a body is not sent as it is, so that the reading can be cut.
	return replay.Of(req, 0).First(req), nil
}

// copyForAttempt returns a copy of the request for the attempt with the given number. The base may use
// its request until the response's body is closed. After it has returned an error, the base may go on
// using the request for any time.
func (x *exchange) copyForAttempt(number int, hedge bool) *http.Request {
	ctx := x.keyed.Context()
	if number == 1 {
		return x.keyed.WithContext(ctx)
	}
	n := x.numberFor(x.keyed, number, hedge)
	if !x.withBody && hasBody(&n.request) {
		n.request.Body, n.request.GetBody, n.request.ContentLength = nil, nil, 0 // the base's own
	}
	return &n.request
}

// numberFor returns the context and the request of an attempt of req, which a Base below knows from now on.
func (x *exchange) numberFor(req *http.Request, number int, hedge bool) *numbered {
	x.learnFromBelow() // a hedge learns how the attempt beside it was sent
	above := AttemptOf(req.Context())
	n := &numbered{Context: req.Context(), number: above.Number + number - 1, hedge: hedge || above.Hedge}
	n.request = *req.WithContext(n)
	n.detour.Begin(n.Context, x.route, number, hedge)
	x.newest = n
	return n
}

// learnFromBelow learns how a Base below has sent the newest attempt, and lets go of the attempt, whose
// request must not be retained.
func (x *exchange) learnFromBelow() {
	if x.newest == nil {
		return
	}
	x.route, x.newest = x.newest.detour.Route(), nil
	x.core.below.NoteReached(x.route.Reached)
}

// transmit sends an attempt through the base, which then owns the request's body. The bounds are
// nil unless another attempt may end this one.
func (x *exchange) transmit(next *attempt, got *result, b *bounds) {
	var wrote *atomic.Bool
	req := next.request
	if x.policy.RetryUnprocessed && !x.idempotent {
		wrote = new(atomic.Bool)
		req = noteHeader(req, wrote)
	}
	if next.number > 1 || !x.policy.Gate.hosts.Calm() { // the turn of a retry's Pass ends here
		x.pass = x.policy.Gate.begin(x.req, x.pass)
	}
	x.unsent, x.token = nil, receipt{}
	p := x.policy
	more := func(resp *http.Response) bool { return x.peekOn(next, got, resp) }
	resp, err := roundTrip(x.core.base, req, &p.Policy, more, next.reading, b)
	x.response = resp
	if n := x.newest; n != nil {
		x.learnFromBelow()
		got.Detour, got.Held, got.InLine = x.route.Detoured, n.held, n.lined
	} else if err != nil || resp.StatusCode >= http.StatusInternalServerError {
		x.core.below.NoteFailure()
	}
	got.Number, got.Request, got.Err = next.number, next.request, err
	got.written = wrote != nil && wrote.Load()
	if resp == nil {
		return
	}
	got.status = resp.StatusCode
	if err != nil {
		got.broken, got.brokeOff = resp, true
		return
	}
	got.receive(resp, p.BufferBytes, p.PeekBytes)
}

// receive takes a response, and what was read of its body.
func (r *result) receive(resp *http.Response, buffer, peek int64) {
	r.Response, r.responded = resp, true
	if buffer > 0 {
		r.Body = respbody.Whole(resp, buffer)
	}
	if peek > 0 && r.Body == nil {
		r.Peek = respbody.First(resp, peek)
	}
}

// peekOn asks Classify about what a peek has read of resp, and reports whether the peek goes on. An
// answer is the attempt's class. Nobody is asked about an attempt whose race is decided.
func (x *exchange) peekOn(made *attempt, got *result, resp *http.Response) bool {
	if x.rival != nil {
		defer x.rival.giveTurn()
		if !x.rival.takeTurn() {
			return false
		}
	}
	a := got.Attempt // of a hedge, Hedge is set
	a.Number, a.Request, a.Response, a.Elapsed = made.number, made.request, resp, x.core.now()-made.begins
	if n := x.newest; n != nil {
		a.Detour, a.Held, a.InLine = n.detour.Route().Detoured, n.held, n.lined
	}
	a.Peek = respbody.First(resp, x.policy.PeekBytes)
	defer respbody.Seal(resp).Unseal(resp)
	got.class = x.policy.Classify(a)
	got.judged = got.class != Undecided
	return !got.judged
}

// room returns the longest wait from now after which an attempt can still start in time. The attempt must
// start strictly before the context's deadline, and at MaxElapsed at the latest.
func (x *exchange) room(now time.Duration) time.Duration {
	room := time.Duration(math.MaxInt64)
	if deadline, ok := x.req.Context().Deadline(); ok {
		room = time.Until(deadline) - 1
	}
	if limit := x.policy.MaxElapsed; limit > 0 {
		room = min(room, limit-(now-x.since))
	}
	return room
}

// patience returns how long it may take to open the next attempt's body, or to drain the failed
// response. Either may take longer than the wait, up to a tenth of the time that is left.
func (x *exchange) patience(next *attempt) time.Duration {
	return max(next.wait, x.room(x.core.now())/10)
}

// receipt is what a Budget has taken for an attempt.
type receipt struct {
	taken bool
	cost  float64
}

// withdraw asks the Budget for the token of a retry or a hedge. later reports whether the Budget may
// grant later what it refuses now.
func (x *exchange) withdraw(r *Retry) (later bool) {
	cost, ok := x.policy.Budget.Withdraw(*r)
	if ok {
		x.token = receipt{taken: true, cost: cost}
	}
	return !ok && !math.IsInf(cost, 1)
}

// refund gives back what the Budget has taken, once, even if its Refund panics.
func (x *exchange) refund(r *receipt) {
	refunded := *r
	*r = receipt{}
	if refunded.taken {
		x.policy.Budget.Refund(x.req, refunded.cost)
	}
}
