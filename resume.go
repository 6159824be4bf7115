package retryhttp

import (
	"context"
	"io"
	"net/http"
	"sync"

	"github.com/retryhttp/retryhttp/internal/closing"
	"github.com/retryhttp/retryhttp/internal/representation"
	"github.com/retryhttp/retryhttp/internal/respbody"
)

// enoughProgress is how many bytes an attempt must bring before the attempts count from one
// again, and before a resumption costs no token.
const enoughProgress = 1 << 20

// download is the body of a response that is resumed where it breaks off. If the server does not let it
// be resumed, the error of a break says why. That error is no *Error: nothing was tried, so a
// Transport above may retry.
//
// All work happens in the caller's Read. A break is judged like a failed attempt, and a
// resumption is prepared like a retry. Close may be called from another goroutine.
type download struct {
	reader representation.Reader
	inner  *Outcome // recorded by a nested Transport on the newest resumption

	call   call    // goes on after RoundTrip has returned; owns nothing before a break
	next   attempt // the newest attempt, and later its successor
	broke  error   // what ended the body; if bytes came with it, the next Read resumes
	failed error   // the error that every further Read returns

	mu     sync.Mutex // guards what Close looks at; only Read changes body
	body   io.ReadCloser
	closed bool
	cancel context.CancelCauseFunc // cancels the resumptions; nil before the first break
}

// makeResumable makes the body of a final response resume where it breaks off. A nested Transport that
// has retried is not called again.
func makeResumable(c *call, made *attempt, got *result) {
	resp := got.Response
	if resp == nil || resp.Body == nil || got.inner != nil || got.Body != nil ||
		c.withBody || c.policy.MaxAttempts == 1 || !wantsResumption(c.keyed, resp) {
		return
	}
	d := &download{
		reader: representation.NewReader(c.keyed, resp), body: resp.Body,
		call: call{
			exchange: exchange{core: c.core, policy: c.policy, req: c.keyed, idempotent: c.idempotent, route: c.route},
			Outcome:  c.Outcome,
			start:    c.start,
		},
		next: attempt{number: got.Number, request: got.Request, begins: made.begins},
	}
	resp.Body = d
}

// wantsResumption reports whether the caller's request, which has no body, and the kind of its
// response, can be a download. Nobody needs the body of a redirect.
func wantsResumption(req *http.Request, resp *http.Response) bool {
	return (req.Method == http.MethodGet || req.Method == "") &&
		resp.StatusCode != http.StatusSwitchingProtocols && !respbody.IsRedirect(resp) && !respbody.IsEmpty(resp.Body)
}

// Read returns the next bytes of the representation, from any response.
func (d *download) Read(p []byte) (int, error) {
	for d.failed == nil {
		if d.broke != nil {
			d.resume()
			continue
		}
		n, err := d.reader.Read(d.body, p)
		if n > 0 && d.cancel != nil { // a break has come before
			d.bring()
		}
		if err == nil {
			return n, nil
		}
		if !d.breaks(err) {
			d.release()
			return n, err
		}
		d.broke = err
		if d.reader.Unfit != nil {
			d.failed = err // returned by a Read that follows a panic of the Logger
			d.giveUp(&result{Attempt: Attempt{Number: d.next.number, Request: d.next.request}}, StopFinal, d.reader.Unfit)
			return n, d.failed
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, d.failed
}

// bring counts what a resumption has brought. One that brings enough gives its token back at once:
// the budget bounds attempts that achieve nothing, and a long download would take the tokens of
// every other request to its host. The last bytes are a success.
func (d *download) bring() {
	c := &d.call
	d.failed = io.ErrUnexpectedEOF // returned by a Read that follows a panic of the Budget
	if d.reader.Brought >= enoughProgress {
		c.refund(&c.spent) // once
	}
	if d.reader.IsWhole() {
		c.policy.Budget.Deposit(c.req)
	}
	d.failed = nil
}

// breaks reports whether the caller still wants bytes, and bytes are missing. If a nested
// Transport has given up, its error is not a break. From the first break on, the download uses copies of the
// caller's request, which the caller may change as soon as Close has returned.
func (d *download) breaks(err error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == io.EOF || !d.reader.MayMiss() || d.closed || ended(d.call.req) || is[*Error](err) {
		return false
	}
	if d.cancel == nil {
		d.begin()
	}
	return true
}

// resume provides a body that continues at the offset, or sets the error that the caller gets.
func (d *download) resume() {
	d.failed = d.broke // returned by a Read that follows a panic of a hook
	broken, ok := d.swap(http.NoBody)
	if !ok {
		d.failed = http.ErrBodyReadAfterClose
		return
	}
	closing.Soon(broken)
	c := &d.call
	defer c.giveBack()
	got := d.brokenOff()
	var why error
	for {
		if stop := c.again(&got, &d.next); stop != "" {
			d.giveUp(&got, stop, why)
			return
		}
		switch d.ask(&got); {
		case got.Response == nil:
			why = got.Err
		case got.class != Final:
			why = statusError(got.status)
		default:
			d.continueWith(&got)
			return
		}
	}
}

// swap puts body in the place of the current body, and returns that. It returns false if the caller has closed
// the download.
func (d *download) swap(body io.ReadCloser) (current io.ReadCloser, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, false
	}
	current, d.body = d.body, body
	return current, true
}

// begin prepares the call that all resumptions share. Close ends the call's context, and with it the
// copies of the caller's request. The caller holds mu.
func (d *download) begin() {
	c := &d.call
	ctx, cancel := context.WithCancelCause(c.req.Context())
	d.cancel = cancel
	c.req = c.req.Clone(ctx)
	d.next.request = d.next.request.Clone(d.next.request.Context())
	policy := *c.policy
	policy.BufferBytes, policy.PeekBytes = 0, 0 // Classify has no use for a part of a body
	c.policy = &policy
	d.startOver()
}

// startOver makes the attempts and the time in line count anew, and MaxElapsed run from now.
func (d *download) startOver() {
	c := &d.call
	c.uncounted, c.retries, d.next.backoff = c.Attempts-1, 0, 0
	c.since, c.lined = c.core.now(), 0
}

// brokenOff returns the break as the result of an attempt.
func (d *download) brokenOff() result {
	if d.reader.Brought >= enoughProgress {
		d.startOver()
	}
	c := &d.call
	got := result{brokeOff: true, Attempt: Attempt{
		Number: d.next.number, Request: d.next.request, Err: d.broke, Offset: d.reader.Offset,
	}}
	c.judge(&d.next, &got)
	got.inner = d.inner
	c.endAttempt(&got)
	return got
}

// ask makes an attempt to continue the body. Policy.Classify judges only errors. It does not decide what a
// status means here.
func (d *download) ask(got *result) {
	c := &d.call
	c.keyed = d.reader.Request(c.req)
	*got = result{Attempt: Attempt{Offset: d.reader.Offset}}
	c.Attempts = d.next.number
	_ = c.open(&d.next) // which cannot fail without a body
	c.note(&d.next)
	c.spent = c.token
	c.transmit(&d.next, got, nil)
	got.class, got.judged = classifyStatus(got.status), true
	c.judge(&d.next, got)
	c.endAttempt(got)
}

// continueWith continues the body with the response of a resumption, or gives up if the response does not continue it.
func (d *download) continueWith(got *result) {
	if refusal := d.reader.Continue(got.Response); refusal != nil {
		d.giveUp(got, StopFinal, refusal)
		return
	}
	d.call.owned = owned{}
	if got.Response.Body == nil {
		got.Response.Body = http.NoBody
	}
	if _, ok := d.swap(got.Response.Body); !ok {
		d.failed = http.ErrBodyReadAfterClose
		closing.Response(got.Response)
		return
	}
	d.inner, d.broke, d.failed = got.inner, nil, nil
}

// giveUp makes the error that ends the body, and reports it. If the server lets the download be resumed, the
// error carries the Outcome, which shows an outer Transport that nothing more could be done.
func (d *download) giveUp(got *result, stop Stop, why error) {
	c := &d.call
	closing.Response(got.Response)
	c.owned = owned{}
	o := c.outcome(got, stop)
	got.Response, got.Err = nil, d.broke
	if why != nil {
		got.Err = &unmendedError{"not resumed", why, d.broke}
	}
	c.policy.reportBroken(c.req, &got.Attempt, o)
	d.failed = got.Err
	if d.reader.Unfit == nil {
		d.failed = newError(got.Err, o, c.req)
	}
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

// ClosableAs returns the current body. See [closing.WhileRead].
func (d *download) ClosableAs() io.ReadCloser {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.body
}

// These are the reasons why [Policy.Resume] did not continue a body that broke off. The error of
// the Read matches one of them, and the error that broke the body.
//
// ErrChanged means that the server has another version than the one that the caller has begun to
// read. The server answered 412 or 416, or sent another validator or another length. Start the
// download again.
//
// ErrNotResumable means that the server does not let the download be continued. The first response
// did not qualify, because it had no validator, no known length, or was decompressed. Or the answer
// had another status, another encoding, no validator, or a range that does not fit. If the first
// response did not qualify, no attempt was made to continue, and the error of the Read is no *Error.
//
// The error matches neither if the retries ended, such as with [StopAttempts]. It also matches
// neither if the caller rules out resumption, by a POST or by MaxAttempts 1.
var (
	ErrChanged      = representation.ErrChanged
	ErrNotResumable = representation.ErrNotResumable
)
