package retryhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
	"github.com/retryhttp/retryhttp/internal/neterr"
	"github.com/retryhttp/retryhttp/internal/replay"
	"github.com/retryhttp/retryhttp/internal/respbody"
	"github.com/retryhttp/retryhttp/internal/timer"
)

var errNoResponse = errors.New("the base RoundTripper returned neither a response nor an error")

// roundTrip sends req through base within the limits of p, and reads of the response's body what
// p requires. It returns either a response or an error, even if base breaks that rule. It
// returns both if the body broke off meanwhile. more reports whether a peek at the body goes on.
// body is the reading of the request's body. b is nil unless another attempt may end this attempt.
func roundTrip(
	base http.RoundTripper, req *http.Request, p *Policy, more func(*http.Response) bool,
	body *replay.Lease, b *bounds,
) (*http.Response, error) {
	if b == nil && (p.AttemptTimeout > 0 || p.StallTimeout > 0) {
		b = new(bounds)
		b.begin(req.Context(), body)
	}
	if b != nil {
		return b.roundTrip(base, req, p, more)
	}
	resp, err := base.RoundTrip(req)
	if err != nil || resp == nil {
		return nil, failure(resp, err)
	}
	if p.readsBody() {
		resp, _, err = readBody(nil, req, resp, p, more)
	}
	return resp, err
}

// readsBody reports whether something of a response's body is read within the attempt.
func (p *Policy) readsBody() bool { return p.BufferBytes > 0 || p.PeekBytes > 0 }

// readBody reads resp's body, or the first bytes of a body that is not read whole, as a part of its
// attempt. Policy.Classify may want to see them, so the status alone says here whether the response
// has failed. b is the Body that wraps resp's body, or nil.
func readBody(
	b *respbody.Body, req *http.Request, resp *http.Response, p *Policy, more func(*http.Response) bool,
) (_ *http.Response, read *respbody.Body, err error) {
	base, failed, returned := resp, classifyStatus(resp.StatusCode) != Final, false
	defer func() {
		if !returned { // a Read or a hook has panicked
			closing.Response(base)
		}
	}()
	if p.BufferBytes > 0 {
		resp, read, err = respbody.Buffer(b, req, resp, p.BufferBytes, failed)
	}
	if read == nil && p.PeekBytes > 0 {
		resp, read, err = respbody.Peek(b, req, resp, p.PeekBytes, failed, p.AttemptTimeout > 0, more)
	}
	passOutcome(base, resp)
	returned = true
	return resp, read, err
}

// failure returns the error for a base that returned anything other than a response alone.
func failure(resp *http.Response, err error) error {
	if err == nil {
		return errNoResponse
	}
	closing.Response(resp)
	return neterr.Named(err)
}

// bounds is an attempt that another goroutine may end. The reason is a time limit, a stall of
// the response's body, or another attempt that has won.
//
// A context with a deadline is not enough: it cannot be disarmed, and would cut a body that is
// being read. The context must live as long as the body, so the body is wrapped.
type bounds struct {
	ctx     timer.Context
	request http.Request  // the copy of the request that carries ctx
	body    respbody.Body // of the response; before, its Cancel and its Upload end the attempt

	timer  *time.Timer          // of Policy.AttemptTimeout; nil if there is none
	passed *attemptTimeoutError // the error if it fires

	connecting atomic.Bool // net/http is waiting for a connection; recorded only for a hedge

	// Each is set before the other is read. So either the body of a hedge that has lost is not buffered,
	// or the winner sees that it is.
	buffering, unwanted atomic.Bool
}

// begin prepares for an attempt that ends with ctx. body is the reading of the attempt's request
// body.
func (b *bounds) begin(ctx context.Context, body *replay.Lease) {
	b.ctx.Caller = ctx
	b.ctx.Context, b.body.Cancel = context.WithCancelCause(ctx)
	b.body.Upload = body
}

// beginDetachable is like begin, but the attempt ends with ctx only until detach is called.
func (b *bounds) beginDetachable(ctx context.Context, body *replay.Lease) (detach func() bool) {
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	detach = context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	b.ctx.Caller = ctx
	b.ctx.Context = httptrace.WithClientTrace(own, &httptrace.ClientTrace{
		GetConn: func(string) { b.connecting.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { b.connecting.Store(false) },
	})
	b.body.Upload, b.body.Caller = body, ctx
	b.body.Cancel = func(cause error) {
		detach()
		cancel(cause)
	}
	return detach
}

// roundTrip makes the attempt. It ends the attempt if the response header, or the buffered
// body, does not arrive in time. It also ends the attempt if the response body stalls.
func (b *bounds) roundTrip(
	base http.RoundTripper, req *http.Request, p *Policy, more func(*http.Response) bool,
) (*http.Response, error) {
	b.request = *req.WithContext(&b.ctx)
	b.startTimer(p)
	lives := false // the response still needs the context
	defer func() {
		if !lives {
			if b.timer != nil {
				b.timer.Stop()
			}
			b.body.Cancel(nil)
		}
	}()
	replay.Watch(&b.request, &b.body)
	resp, err := base.RoundTrip(&b.request)
	var read *respbody.Body
	if err != nil || resp == nil {
		resp, err = nil, failure(resp, err)
	} else if resp.Body != nil {
		b.body.Wrap(resp, p.StallTimeout, newStallError)
		b.buffering.Store(p.readsBody())
		if p.readsBody() && !b.unwanted.Load() {
			resp, read, err = readBody(&b.body, req, resp, p, more)
		}
	}
	if b.tooLate() {
		return b.cut(resp, read, err)
	}
	b.ctx.Unlimit()
	lives = resp != nil && resp.Body != nil
	return resp, err
}

// end ends the attempt.
func (b *bounds) end(cause error) { b.body.End(cause, b.buffering.Load()) }

// startTimer starts the timer of Policy.AttemptTimeout, if there is one.
func (b *bounds) startTimer(p *Policy) {
	if p.AttemptTimeout <= 0 {
		return
	}
	b.ctx.Limit(p.AttemptTimeout)
	b.passed = &attemptTimeoutError{p.AttemptTimeout, "response header"}
	awaited := "whole response body"
	if p.BufferBytes <= 0 {
		awaited = "first byte of the response body"
	}
	b.timer = time.AfterFunc(p.AttemptTimeout, func() {
		if b.buffering.Load() {
			b.passed.missing = awaited
		}
		b.end(b.passed)
	})
}

// tooLate stops the timer, and reports whether the timer has ended the attempt.
func (b *bounds) tooLate() bool {
	if b.timer == nil || b.timer.Stop() {
		return false
	}
	<-b.ctx.Done() // the timer has fired, and its function cancels ctx
	return context.Cause(&b.ctx) == error(b.passed)
}

// cut returns what is left of an attempt after the timeout: a complete body, the beginning of a
// body, or nothing. A body without a length may be incomplete even if it ends cleanly, because
// the timeout itself may be the cause of the end.
func (b *bounds) cut(resp *http.Response, read *respbody.Body, err error) (*http.Response, error) {
	if read != nil && err == nil && read.Complete(resp) {
		return resp, nil
	}
	// This is a copy, because the base may be reading b.passed, the cause of the attempt's context.
	timeout := &attemptTimeoutError{b.passed.after, b.passed.missing}
	var ended error = timeout
	// The context's cause is the timeout, and not an error of another request.
	if inner := outcomeBelow(resp, err); inner != nil && inner.Attempts > 1 {
		o := *inner
		o.Stop, o.Elapsed = StopNested, timeout.after
		ended = &Error{Outcome: o, Err: timeout} // as the nested Transport would give up
	}
	if read != nil {
		timeout.missing = read.Missing()
		read.BreakOff(ended)
		return resp, ended
	}
	closing.Response(resp)
	return nil, ended
}

// attemptTimeoutError is the error of an attempt that took longer than
// Policy.AttemptTimeout. It implements net.Error.
type attemptTimeoutError struct {
	after   time.Duration
	missing string // what did not come in time
}

func (e *attemptTimeoutError) Error() string {
	return fmt.Sprintf("no %s within %v", e.missing, e.after)
}

func (e *attemptTimeoutError) Timeout() bool        { return true }
func (e *attemptTimeoutError) Temporary() bool      { return true }
func (e *attemptTimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// stallError is the error of a body that delivered nothing for longer than Policy.StallTimeout.
// It implements net.Error. Telemetry names errors by the full names of their types, so the type
// stays in this package, though internal/respbody ends the Read.
type stallError struct{ after time.Duration }

func newStallError(after time.Duration) error { return &stallError{after} }

func (e *stallError) Error() string {
	return fmt.Sprintf("the response body stalled for %v", e.after)
}
func (e *stallError) Timeout() bool        { return true }
func (e *stallError) Temporary() bool      { return true }
func (e *stallError) Is(target error) bool { return target == context.DeadlineExceeded }
