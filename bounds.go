package retryhttp

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// bounds is an attempt that another goroutine may end. The reason is a time limit, a stall of
// the response's body, or another attempt that has won.
//
// A context with a deadline is not enough: it cannot be disarmed, and would cut a body that is
// being read. The context must live as long as the body, so the body is wrapped.
type bounds struct {
	ctx     attemptContext
	cancel  context.CancelCauseFunc
	request http.Request // the copy of the request that carries ctx
	reading reading
	body    attemptBody

	buffering  atomic.Bool // body is buffered within the attempt
	unwanted   atomic.Bool // the response will not be used
	connecting atomic.Bool // net/http is waiting for a connection; recorded only for a hedge
}

func newBounds(ctx context.Context, body reading) *bounds {
	b := new(bounds)
	b.begin(ctx, body)
	return b
}

// begin prepares for an attempt that ends with ctx. body is the reading of the attempt's request
// body.
func (b *bounds) begin(ctx context.Context, body reading) {
	b.ctx.caller = ctx
	b.ctx.Context, b.cancel = context.WithCancelCause(ctx)
	b.reading, b.body.cancel = body, b.cancel
}

// beginLeashed is like begin, but the attempt ends with ctx only until letGo is called.
func (b *bounds) beginLeashed(ctx context.Context, body reading) (letGo func() bool) {
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	letGo = context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	b.ctx.caller, b.ctx.hedge = ctx, true
	b.ctx.Context = httptrace.WithClientTrace(own, &httptrace.ClientTrace{
		GetConn: func(string) { b.connecting.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { b.connecting.Store(false) },
	})
	b.cancel = func(cause error) {
		letGo()
		cancel(cause)
	}
	b.reading, b.body.cancel = body, b.cancel
	return letGo
}

// attemptContext is the context of an attempt. It has the deadline of the caller's context, which
// need not be its parent. While the AttemptTimeout runs, it has the deadline of the AttemptTimeout
// if that is earlier. So a limiter below can refuse an attempt that would have no time left, and
// a server can be given the deadline.
type attemptContext struct {
	context.Context
	caller context.Context
	hedge  bool

	limited atomic.Bool // the AttemptTimeout is running
	until   time.Time   // its end; does not change while the context is in use
}

func (c *attemptContext) Deadline() (time.Time, bool) {
	deadline, ok := c.caller.Deadline()
	if c.limited.Load() && (!ok || c.until.Before(deadline)) {
		return c.until, true
	}
	return deadline, ok
}

func (c *attemptContext) Value(key any) any {
	if c.hedge && key == (hedgeKey{}) {
		return true
	}
	return c.Context.Value(key)
}

// String keeps code that prints the context from reading its fields.
func (c *attemptContext) String() string { return "retryhttp.attempt" }

// roundTrip makes the attempt. It ends the attempt if the response header, or the buffered
// body, does not arrive within p.AttemptTimeout. It also ends the attempt if the response body
// stalls.
func (b *bounds) roundTrip(base http.RoundTripper, req *http.Request, p *Policy) (*http.Response, error) {
	b.request = *req.WithContext(&b.ctx)
	limit := startAttemptLimit(p.AttemptTimeout, b)
	returned := false
	defer func() {
		if !returned {
			limit.stop()
			b.cancel(nil)
		}
	}()
	if hasBody(req) && !sentAtOnce(req) {
		b.body.watch(&b.request)
	}
	resp, err := base.RoundTrip(&b.request)
	var read *buffered
	switch {
	case err != nil || resp == nil:
		defer b.cancel(nil)
		resp, err = nil, failure(resp, err)
	case resp.Body == nil:
		defer b.cancel(nil)
	default:
		b.body.wrap(resp, p.StallTimeout)
		b.buffering.Store(p.BufferBytes > 0) // before unwanted is read: see race.lose
		if p.BufferBytes > 0 && !b.unwanted.Load() {
			resp, read, err = buffer(req, resp, p.BufferBytes)
		}
	}
	returned = true
	if tooLate := limit.passed(&b.ctx); tooLate != nil {
		return tooLate.cut(resp, read, err, b.body.brokeOffBelow())
	}
	b.ctx.limited.Store(false)
	return resp, err
}

// end ends the attempt, and cuts the reading of the request's body. During a Read of that body,
// a base may not check the context until the Read returns.
func (b *bounds) end(cause error) {
	buffering := b.buffering.Load()
	b.cancel(cause)
	defer func() { _ = recover() }() // a body's Close may panic, and no caller can recover the panic in a timer's goroutine
	b.reading.cut()
	if buffering && !b.body.isOver() {
		freeRead(&b.body)
	}
}

// attemptLimit is the timer of Policy.AttemptTimeout. A nil attemptLimit is no limit.
type attemptLimit struct {
	timer *time.Timer
	err   *attemptTimeoutError
}

func startAttemptLimit(after time.Duration, b *bounds) *attemptLimit {
	if after <= 0 {
		return nil
	}
	b.ctx.until = time.Now().Add(after)
	b.ctx.limited.Store(true)
	l := &attemptLimit{err: &attemptTimeoutError{after: after}}
	l.timer = time.AfterFunc(after, func() {
		l.err.body = b.buffering.Load()
		b.end(l.err)
	})
	return l
}

func (l *attemptLimit) stop() {
	if l != nil {
		l.timer.Stop()
	}
}

// passed stops the timer. If the timer has ended the attempt, passed returns the attempt's error.
func (l *attemptLimit) passed(ctx context.Context) *attemptTimeoutError {
	if l == nil || l.timer.Stop() {
		return nil
	}
	<-ctx.Done() // the timer has fired, and its function cancels ctx
	if context.Cause(ctx) != error(l.err) {
		return nil
	}
	return l.err
}
