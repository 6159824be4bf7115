package retryhttp

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
	"github.com/retryhttp/retryhttp/internal/representation"
	"github.com/retryhttp/retryhttp/internal/respbody"
)

// enoughProgress is how many bytes an attempt must bring before the attempts count from one
// again, and before a resumption costs no token.
const enoughProgress = 1 << 20

// download is the body of a response that is resumed where it breaks off.
//
// All work happens in the caller's Read. A break is judged like a failed attempt, and a
// resumption is prepared like a retry. Close may be called from another goroutine.
type download struct {
	whole  representation.Representation
	offset int64 // position of the caller's next byte in the representation
	part   part  // the part that is being read

	origin   origin
	resuming *resuming // nil before the first break
	broke    error     // what ended the part; if bytes came with it, the next Read resumes
	failed   error     // the error that every further Read returns

	mu     sync.Mutex // guards what Close looks at; only Read changes body
	body   io.ReadCloser
	closed bool
	cancel context.CancelCauseFunc // cancels the resumptions; nil before the first break
}

// part is the part of a representation that one response brings.
type part struct {
	representation.Continuation
	resumed bool
	brought int64
	inner   *Outcome // recorded by a nested Transport
}

// origin is what a download keeps of its call until the first break.
type origin struct {
	core   *core
	policy *resolved
	req    *http.Request // the caller's request
	keyed  *http.Request
	sent   *http.Request

	idempotent          bool
	number, made        int // number of the attempt that had the response; number of all attempts
	hedges              int
	refused             bool
	start, begins       time.Duration
	waited, timeInGates time.Duration
}

// resuming is a call that continues after RoundTrip has returned.
type resuming struct {
	call
	original *http.Request // the request that the resumptions' requests are made from
	next     attempt       // the newest attempt, and later its successor
}

// makeResumable makes the body of a final response resume where it breaks off. If the server does
// not let it be resumed, the error of a break says so. A nested Transport that has retried is not
// called again.
func makeResumable(c *call, made *attempt, got *result) {
	resp := got.Response
	if resp == nil || resp.Body == nil || got.inner != nil || got.Body != nil {
		return
	}
	if c.withBody || c.policy.MaxAttempts == 1 || !wantsResumption(c.keyed, resp) {
		return
	}
	origin := origin{
		core: c.core, policy: c.policy, req: c.req, keyed: c.keyed, sent: got.Request, idempotent: c.idempotent,
		number: got.Number, made: c.sent, hedges: c.hedges, refused: c.refused, start: c.start, begins: made.begins, waited: c.waited, timeInGates: c.held,
	}
	whole, why := representation.Of(c.keyed, resp)
	if why != nil {
		resp.Body = &unresumable{why: refusedError{why}, left: resp.ContentLength, body: resp.Body, origin: origin}
		return
	}
	resp.Body = &download{whole: whole, offset: whole.Begin, body: resp.Body, origin: origin}
}

// Read returns the next bytes of the representation, from any response.
func (d *download) Read(p []byte) (int, error) {
	for d.failed == nil {
		if d.broke != nil {
			d.resume()
			continue
		}
		n, err := d.readPart(p)
		if err == nil {
			return n, nil
		}
		if !d.isBreak(err) {
			d.release()
			return n, err
		}
		d.broke = err
		if n > 0 {
			return n, nil
		}
	}
	return 0, d.failed
}

// readPart reads from the current body. It drops the bytes before the offset, and returns nothing
// beyond the end of a resumption.
func (d *download) readPart(p []byte) (int, error) {
	for d.part.Skip > 0 {
		n, err := d.body.Read(p[:min(int64(len(p)), d.part.Skip)])
		d.part.Skip -= int64(n)
		if err != nil {
			return 0, d.endOfPart(err)
		}
		if n == 0 {
			return 0, nil
		}
	}
	if d.part.resumed {
		if d.offset == d.part.Until && len(p) > 0 {
			return 0, d.readEnd(p[:1])
		}
		p = p[:min(int64(len(p)), d.part.Until-d.offset)]
	}
	n, err := d.body.Read(p)
	if n > 0 {
		d.bring(int64(n))
	}
	if err != nil {
		err = d.endOfPart(err)
	}
	return n, err
}

// bring counts n bytes of the part. A resumption that brings enough gives its token back at once:
// the budget bounds attempts that achieve nothing, and a long download would take the tokens of
// every other request to its host. The last bytes are a success.
func (d *download) bring(n int64) {
	enough := d.part.brought >= enoughProgress
	d.offset += n
	d.part.brought += n
	if !d.part.resumed {
		return
	}
	c := d.resuming
	if !enough && d.part.brought >= enoughProgress {
		c.refund(&c.spent)
	}
	if d.offset == d.whole.End {
		c.policy.Budget.Deposit(c.req)
	}
}

// readEnd returns the error that follows the last byte of a resumption. After the last byte of
// the whole body, it reads once more, and usually meets the end. Without this Read, the
// connection could not be reused. The caller gets none of the bytes that this Read returns.
func (d *download) readEnd(scratch []byte) error {
	if d.offset < d.whole.End {
		return io.ErrUnexpectedEOF // the server sent a shorter range
	}
	n, err := d.body.Read(scratch)
	if n > 0 || err != nil && respbody.IsConnectionsEnd(d.body, err) {
		return io.EOF
	}
	return err
}

// endOfPart returns what the end of the current body means. Once all bytes have come, the end of
// the connection is the end of the bytes. Before the last byte, an end is an error.
func (d *download) endOfPart(err error) error {
	switch {
	case d.offset == d.whole.End && respbody.IsConnectionsEnd(d.body, err):
		return io.EOF
	case d.offset < d.whole.End && err == io.EOF:
		return io.ErrUnexpectedEOF
	}
	return err
}

// isBreak reports whether the caller still wants bytes, and bytes are missing. If a nested
// Transport has given up, its error is not a break.
func (d *download) isBreak(err error) bool {
	d.mu.Lock() // also for the request: see begin
	defer d.mu.Unlock()
	return d.offset < d.whole.End && !d.closed && !ended(d.origin.req) && !is[*Error](err)
}

// resume provides a body that continues at the offset, or sets the error that the caller gets.
func (d *download) resume() {
	d.failed = d.broke // returned by a Read that follows a panic of a hook
	c := d.leavePart()
	if c == nil {
		d.failed = http.ErrBodyReadAfterClose
		return
	}
	defer c.giveBack()
	got := d.brokenOff(c)
	var why error
	for {
		stop := c.refusal(&got)
		if stop == "" {
			stop = c.again(&got, &c.next)
		}
		if stop != "" {
			d.giveUp(&got, stop, why)
			return
		}
		var how representation.Continuation
		how, why = d.ask(c, &got)
		switch {
		case got.Response == nil || got.class != Final: // a failed attempt
		case why != nil:
			d.giveUp(&got, StopFinal, why)
			return
		default:
			d.goOn(&got, how)
			return
		}
	}
}

// leavePart closes the body that broke off, and returns the call that continues it. It
// returns nil if the caller has closed the body.
func (d *download) leavePart() *resuming {
	d.mu.Lock()
	broken, closed := d.body, d.closed
	d.body = http.NoBody
	if d.resuming == nil && !closed {
		d.begin()
	}
	d.mu.Unlock()
	if closed {
		return nil
	}
	closing.Soon(broken)
	return d.resuming
}

// begin makes the call that all resumptions share. Close ends the call's context. The lock is
// held, because the caller may change its request as soon as Close has returned: from here on, the
// download uses copies.
func (d *download) begin() {
	o := &d.origin
	ctx, cancel := context.WithCancelCause(o.req.Context())
	o.own(ctx)
	policy := *o.policy
	policy.BufferBytes, policy.PeekBytes = 0, 0 // Classify has no use for a part of a body
	d.cancel = cancel
	d.resuming = &resuming{
		call: call{
			exchange: exchange{core: o.core, policy: &policy, req: o.req, idempotent: o.idempotent},
			start:    o.start, sent: o.made, hedges: o.hedges, refused: o.refused, waited: o.waited, held: o.timeInGates,
		},
		original: o.keyed,
		next:     attempt{number: o.number, request: o.sent, begins: o.begins},
	}
	d.startOver()
}

// own replaces the requests by copies. The copies of the caller's request end with ctx.
func (o *origin) own(ctx context.Context) {
	req, keyed := o.req.Clone(ctx), o.keyed
	if keyed == o.req {
		keyed = req
	} else {
		keyed = keyed.Clone(ctx)
	}
	o.req, o.keyed, o.sent = req, keyed, o.sent.Clone(o.sent.Context())
}

// startOver makes the attempts and the time in line count anew, and MaxElapsed run from now.
func (d *download) startOver() {
	c := d.resuming
	c.uncounted, c.since, c.lined, c.next.backoff = c.sent-1, c.core.now(), 0, 0
}

// brokenOff returns the break as the result of an attempt.
func (d *download) brokenOff(c *resuming) result {
	if d.part.brought >= enoughProgress {
		d.startOver()
	}
	got := result{brokeOff: true, Attempt: Attempt{
		Number: c.next.number, Request: c.next.request, Err: d.broke, Offset: d.offset,
	}}
	c.judge(&c.next, &got)
	got.inner = d.part.inner
	c.endAttempt(&got)
	return got
}

// ask makes an attempt to continue the body. It returns how the response continues the body, or
// why it does not. Policy.Classify judges only errors. It does not decide what a status means
// here.
func (d *download) ask(c *resuming, got *result) (how representation.Continuation, why error) {
	c.keyed = d.whole.Request(c.original, d.offset)
	*got = result{Attempt: Attempt{Offset: d.offset}}
	c.sent = c.next.number
	c.note(&c.next)
	c.transmit(&c.next, got, nil)
	if got.Response == nil {
		c.judge(&c.next, got)
		why = got.Err
	} else {
		got.Elapsed = c.core.now() - c.next.begins
		got.class = classifyStatus(got.status)
		got.inner = innerOutcome(&got.Attempt)
		got.hear(c.policy.RetryAfter)
		how, why = d.continuedBy(got)
	}
	c.endAttempt(got)
	return how, why
}

// continuedBy returns how the response of a resumption continues the body, or why it does not.
func (d *download) continuedBy(got *result) (representation.Continuation, error) {
	if got.class != Final {
		// Another attempt may continue the body.
		return representation.Continuation{}, statusError(got.status)
	}
	how, why := d.whole.ContinuedBy(got.Response, d.offset)
	if why != nil {
		return representation.Continuation{}, refusedError{why}
	}
	return how, nil
}

// goOn continues the body with the response of a resumption.
func (d *download) goOn(got *result, how representation.Continuation) {
	d.resuming.owned = owned{}
	if got.Response.Body == nil {
		got.Response.Body = http.NoBody
	}
	d.mu.Lock()
	closed := d.closed
	if !closed {
		d.body = got.Response.Body
	}
	d.mu.Unlock()
	if closed {
		d.failed = http.ErrBodyReadAfterClose
		closing.Response(got.Response)
		return
	}
	d.part = part{Continuation: how, resumed: true, inner: got.inner}
	d.broke, d.failed = nil, nil
}

// giveUp makes the error that ends the body. The error carries the Outcome, which shows an outer
// Transport that nothing more could be done.
func (d *download) giveUp(got *result, stop Stop, why error) {
	c := d.resuming
	c.countFailure(got, stop)
	closing.Response(got.Response)
	c.owned = owned{}
	o := c.outcome(got, stop)
	got.Response, got.Err = nil, &brokenError{d.broke, why}
	c.policy.reportBroken(c.req, &got.Attempt, o)
	d.failed = newError(got.Err, o, c.req)
	if d.release() {
		d.failed = http.ErrBodyReadAfterClose
	}
}

// release ends the context of the resumptions, and reports whether the caller has closed
// the body.
func (d *download) release() (closed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cancel != nil {
		d.cancel(nil)
	}
	return d.closed
}

// Close ends a Read, and the resumption that the Read waits for.
func (d *download) Close() error {
	d.mu.Lock()
	d.closed = true
	body := d.body
	if d.cancel != nil {
		d.cancel(nil)
	}
	d.mu.Unlock()
	return body.Close()
}

// ClosableWhileRead reports whether the current body may be closed while it is read.
func (d *download) ClosableWhileRead() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.body == http.NoBody || closing.WhileRead(d.body)
}

// brokenError is the error of a body that broke off and was not resumed. It implements net.Error. Its
// text ends with the text of the break, as the text of an Error does.
type brokenError struct {
	broke error
	why   error // nil: there was no attempt to resume the body
}

func (e *brokenError) Error() string {
	if e.why == nil {
		return e.broke.Error()
	}
	return "not resumed: " + e.why.Error() + ": " + e.broke.Error()
}

// Timeout reports whether a time limit ended the body, or the attempt to resume it.
func (e *brokenError) Timeout() bool { return isTimeout(e.broke) || isTimeout(e.why) }

// Temporary reports whether the break, or the failure of the resumption, says that it is temporary.
func (e *brokenError) Temporary() bool { return isTemporary(e.broke) || isTemporary(e.why) }

func (e *brokenError) Unwrap() []error {
	if e.why == nil {
		return []error{e.broke}
	}
	return []error{e.broke, e.why}
}
