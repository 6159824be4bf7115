package retryhttp

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// bounds is an attempt that another goroutine may end: for a time limit, for a stall of its
// response's body, or because another attempt has won.
//
// A context with a deadline would not do: it cannot be disarmed, and would cut the body that
// is being read. The context must live as long as the body, which therefore has to be
// wrapped.
type bounds struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	request http.Request // the copy that has ctx
	reading reading
	body    attemptBody

	buffering  atomic.Bool // body is being buffered
	unwanted   atomic.Bool // nobody will look at the response
	connecting atomic.Bool // net/http waits for a connection; noted for a hedge only
}

func newBounds(ctx context.Context, body reading) *bounds {
	b := new(bounds)
	b.begin(ctx, body)
	return b
}

// begin prepares for an attempt that ends with ctx, and whose request's body is read by body.
func (b *bounds) begin(ctx context.Context, body reading) {
	b.ctx, b.cancel = context.WithCancelCause(ctx)
	b.reading, b.body.cancel = body, b.cancel
}

// beginLeashed is like begin. The attempt ends with ctx only until letGo is called.
func (b *bounds) beginLeashed(ctx context.Context, body reading) (letGo func() bool) {
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	letGo = context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	b.ctx = leashed{httptrace.WithClientTrace(own, &httptrace.ClientTrace{
		GetConn: func(string) { b.connecting.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { b.connecting.Store(false) },
	}), ctx}
	b.cancel = func(cause error) {
		letGo()
		cancel(cause)
	}
	b.reading, b.body.cancel = body, b.cancel
	return letGo
}

// leashed is a hedge's context. It has the deadline of another one, which ends it.
type leashed struct {
	context.Context
	leash context.Context
}

func (l leashed) Deadline() (time.Time, bool) { return l.leash.Deadline() }

// Hedge lets tracing recognize the attempt.
func (leashed) Hedge() bool { return true }

// roundTrip ends the attempt if its response header, or its buffered body, does not come
// within p.AttemptTimeout, and if its response body stalls.
func (b *bounds) roundTrip(base http.RoundTripper, req *http.Request, p *Policy) (*http.Response, error) {
	b.request = *req.WithContext(b.ctx)
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
		b.buffering.Store(p.BufferBytes > 0) // before a look at unwanted: see race.lose
		if p.BufferBytes > 0 && !b.unwanted.Load() {
			read, err = buffer(req, resp, p.BufferBytes)
		}
	}
	returned = true
	if tooLate := limit.passed(b.ctx); tooLate != nil {
		return tooLate.cut(resp, read, err)
	}
	return resp, err
}

// end ends the attempt. It cuts the reading, too. A base that is in a Read of the request's
// body may look at the context only when the Read returns.
func (b *bounds) end(cause error) {
	buffering := b.buffering.Load()
	b.cancel(cause)
	defer func() { _ = recover() }() // by the Close of a body: nobody could recover it in a timer's goroutine
	b.reading.cut()
	if buffering && !b.body.isOver() {
		freeRead(&b.body)
	}
}

// attemptLimit is the timer of Policy.AttemptTimeout. A nil one is no limit.
type attemptLimit struct {
	timer *time.Timer
	err   *attemptTimeoutError
}

func startAttemptLimit(after time.Duration, b *bounds) *attemptLimit {
	if after <= 0 {
		return nil
	}
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

// passed stops the timer. It returns the error of an attempt that it has ended.
func (l *attemptLimit) passed(ctx context.Context) *attemptTimeoutError {
	if l == nil || l.timer.Stop() {
		return nil
	}
	<-ctx.Done() // the timer's function runs, and is about to cancel
	if context.Cause(ctx) != error(l.err) {
		return nil
	}
	return l.err
}
