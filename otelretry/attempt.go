package otelretry

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/retryhttp/retryhttp"
)

// An attempt passes through beforeSpan, otelhttp and withinSpan, in this order.

// attempt holds the state of an attempt that otelhttp does not pass on between beforeSpan and
// withinSpan. It is the context of the attempt, and the request that has this context.
type attempt struct {
	context.Context
	request http.Request // has the trailer that the body fills; otelhttp passes on a copy

	op     *operation
	number int
	hedge  bool
	parent trace.SpanContext // the parent of the attempt's span

	body io.ReadCloser // the response's body, as the base returned it
	err  error         // the base's error
	span trace.Span    // nil if otelhttp made no span
}

type attemptKey struct{}

func (a *attempt) Value(key any) any {
	if key == (attemptKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// String keeps the request's headers out of logs that print the context.
func (a *attempt) String() string { return "otelretry.attempt" }

func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

func newAttempt(req *http.Request) *attempt {
	ctx := req.Context()
	made := retryhttp.AttemptOf(ctx)
	op := operationOf(ctx)
	// Below a hedge, nothing is hedged, and each context says Hedge.
	a := &attempt{op: op, number: made.Number, hedge: made.Hedge && !op.inHedge}
	a.Context = a.op.surround(ctx, a)
	a.parent = trace.SpanContextFromContext(a.Context)
	a.request = *req.WithContext(a)
	return a
}

// describe sets the attributes and the link of the attempt's span. If a filter keeps otelhttp
// from making a span, span is the parent, and stays unchanged.
func (a *attempt) describe(span trace.Span) {
	at := span.SpanContext()
	if at.SpanID() == a.parent.SpanID() {
		at = trace.SpanContext{}
	}
	previous := a.op.spans.add(a, at)
	if !at.IsValid() {
		return
	}
	a.span = span
	if resends := a.op.resends + a.number - a.op.number; resends > 0 {
		span.SetAttributes(semconv.HTTPRequestResendCount(resends))
	}
	if a.hedge {
		span.SetAttributes(hedgeKey.Bool(true))
	}
	if previous.IsValid() {
		span.AddLink(trace.Link{SpanContext: previous})
	}
	a.sayHeld(span)
}

// sayHeld adds an event to span if a Gate has held the request since the previous attempt. A hedge
// is never held, and runs beside the attempt that changes the operation.
func (a *attempt) sayHeld(span trace.Span) {
	if a.hedge {
		return
	}
	made, above := retryhttp.AttemptOf(a), retryhttp.AttemptOf(a.op.Context)
	if a.number == a.op.number && made.Held == above.Held {
		return // a Transport above has held the request, and may have said so
	}
	a.op.sayHeld(span, made.Held, made.InLine)
}

// sayDetour records on the attempt's span whether the attempt took a detour.
func (a *attempt) sayDetour() {
	if !retryhttp.AttemptOf(a).Detour {
		return
	}
	a.op.waits.metrics.recordDetour(&a.op.request)
	if a.span != nil {
		a.span.SetAttributes(detourKey.Bool(true))
	}
}

// superseded reports whether another attempt has won. A hedge that has lost may be left to
// finish, and its context does not end in that case.
func (a *attempt) superseded() bool {
	return errors.Is(context.Cause(a), retryhttp.ErrSuperseded) || a.hedge && a.op.firstWon.Load()
}

// over records on the attempt's span, which is about to end, whether another attempt has won.
func (a *attempt) over() {
	if a.span != nil && a.superseded() {
		a.span.SetAttributes(supersededKey.Bool(true))
	}
}

// fail ends the attempt's span before otelhttp sets its status to err's own text, which may
// quote a header or a query. A span that has ended does not change. If another attempt has
// won, err is not recorded as a failure.
func (a *attempt) fail(err error) {
	if a.span == nil {
		return
	}
	if a.over(); !a.superseded() {
		a.span.SetAttributes(errorType(a.labeled(err)))
		a.span.SetStatus(codes.Error, (&retryhttp.Error{Err: err}).Error())
	}
	a.span.End()
}

// timeLimit returns the error of the Transport's time limit if that limit ended the attempt,
// or nil. A caller's deadline ends the attempt with another error.
func (a *attempt) timeLimit() error {
	if cause := context.Cause(a); a.Err() == context.Canceled && errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

// labeled returns the error that otelhttp shows in its metric for err. If another attempt has won,
// or the caller has canceled the request, this is one label, whatever the base has returned.
func (a *attempt) labeled(err error) error {
	switch {
	case errors.Is(context.Cause(a), retryhttp.ErrSuperseded):
		return retryhttp.ErrSuperseded
	case a.op.Err() != nil, a.Err() != nil && a.timeLimit() == nil: // or has closed the body
		return cancellation(a.op)
	}
	return err
}

// sayHeld adds an event to span if a Gate has held the request since the previous event. The part
// in line is known only if an attempt followed.
func (op *operation) sayHeld(span trace.Span, total, inLine time.Duration) {
	held := total - op.toldHeld
	if held <= 0 {
		return
	}
	if inLine < op.toldInLine {
		op.toldInLine = 0 // a body is resumed, for which the time in line counts anew
	}
	attrs := []attribute.KeyValue{heldKey.Float64(held.Seconds())}
	if lined := inLine - op.toldInLine; lined > 0 {
		attrs = append(attrs, inLineKey.Float64(lined.Seconds()))
	}
	op.toldHeld, op.toldInLine = total, inLine
	span.AddEvent("retryhttp.held", trace.WithAttributes(attrs...))
}

// These attributes of spans and their events are this package's own. Durations are in seconds.
const (
	heldKey       = attribute.Key("retryhttp.held.duration")
	inLineKey     = attribute.Key("retryhttp.held.in_line")
	hedgeKey      = attribute.Key("retryhttp.hedge")
	supersededKey = attribute.Key("retryhttp.superseded")
	detourKey     = attribute.Key("retryhttp.detour")
)

// beforeSpan makes the first attempt's span the parent of the others, if there is no span
// around the request.
type beforeSpan struct {
	next    http.RoundTripper
	metrics *metrics
}

func (b beforeSpan) RoundTrip(req *http.Request) (*http.Response, error) {
	made := newAttempt(req)
	if op := made.op; !made.hedge && op.returned {
		op.resumed = true
		b.metrics.recordResumption(&op.request)
	}
	made.op.waits.beginAttempt()
	resp, err := b.next.RoundTrip(&made.request)
	made.op.waits.endAttempt(resp, err)
	if made.err != nil {
		return resp, made.err
	}
	switch {
	case made.body == nil:
	case isConn(made.body):
		keepCloseWrite(resp, made.body)
	default:
		resp.Body = &body{resp.Body, made}
	}
	return resp, err
}

// isConn reports whether body is a connection, as the body of a 101 is.
func isConn(body io.ReadCloser) bool {
	_, ok := body.(io.Writer)
	return ok
}

// body is a response's body above otelhttp, whose own body may be closed while it is read.
type body struct {
	io.ReadCloser
	attempt *attempt
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && !b.attempt.superseded() {
		b.attempt.op.waits.breakOff()
	}
	return n, err
}

// Close may be called by a stall, to end a Read. Then the stall ends the span, whether Close
// or the Read gets there first.
func (b *body) Close() error {
	if stall := b.attempt.timeLimit(); stall != nil {
		b.attempt.fail(stall)
	}
	b.attempt.over()
	return b.ReadCloser.Close()
}

// ClosableAs returns the base's body: b may be closed while it is read if that body may be. If
// so, draining a response that stalls can free its connection. retryhttp finds the method by its
// name, in its package internal/closing.
func (b *body) ClosableAs() io.ReadCloser { return b.attempt.body }

// withinSpan finds the attempt's span.
type withinSpan struct{ next http.RoundTripper }

func (w withinSpan) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	made := attemptOf(ctx)
	made.describe(trace.SpanFromContext(ctx))
	// The body fills this map. otelhttp has passed on a copy of the request, with a copy of the map.
	req.Trailer = made.request.Trailer
	returned := false
	defer func() {
		if !returned && made.span != nil {
			made.over()
			made.span.End() // the base panicked, and otelhttp would not end the span
		}
	}()
	resp, err := w.next.RoundTrip(req)
	returned = true
	made.sayDetour()
	if err != nil {
		made.fail(err)
		made.err = err
		err = made.labeled(err)
	}
	if err != nil || resp == nil || resp.Body == nil {
		return resp, err
	}
	made.body = resp.Body
	if made.span != nil {
		resp.Body = inSpan(made, resp.Body)
	}
	return resp, nil
}

// spanBody ends the attempt's span if the response's body fails.
type spanBody struct {
	io.ReadCloser
	attempt *attempt
}

// spanConn is a spanBody that can be written to.
type spanConn struct {
	*spanBody
	io.Writer
}

func inSpan(made *attempt, body io.ReadCloser) io.ReadCloser {
	b := &spanBody{body, made}
	if w, ok := body.(io.Writer); ok {
		return &spanConn{b, w}
	}
	return b
}

func (c *spanConn) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	if err != nil {
		c.attempt.fail(err)
	}
	return n, err
}

func (b *spanBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == io.EOF:
		b.attempt.over() // otelhttp ends the span
	case err != nil:
		// Over HTTP/2, err would be "context canceled".
		b.attempt.fail(cmp.Or(b.attempt.timeLimit(), err))
	}
	return n, err
}

type closeWriter interface{ CloseWrite() error }

// conn is the body of a 101, which is a connection. It restores the CloseWrite method, which
// otelhttp's wrapper hides.
type conn struct {
	io.ReadWriteCloser
	closeWriter
}

func keepCloseWrite(resp *http.Response, original io.ReadCloser) {
	wrapped, isConn := resp.Body.(io.ReadWriteCloser)
	half, canHalf := original.(closeWriter)
	if isConn && canHalf {
		resp.Body = conn{wrapped, half}
	}
}
