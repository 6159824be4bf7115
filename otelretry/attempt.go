package otelretry

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"

	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/closing"
)

// otelhttp lies between beforeSpan and withinSpan, and an attempt passes through all
// three.

// attempt is what otelhttp hides of one from the other end of itself.
type attempt struct {
	trailer http.Header   // the request's; otelhttp copies it, and its body fills the one that it was made with
	body    io.ReadCloser // the response's, as the base returned it
	span    trace.Span    // nil: otelhttp made none
}

// beforeSpan has the first attempt's span be the parent, where there is none around
// the request.
type beforeSpan struct {
	next    http.RoundTripper
	metrics *metrics
}

func (b beforeSpan) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	op := operationOf(ctx)
	if op.returned {
		op.resumed = true
		b.metrics.recordResumption(&op.request)
	}
	op.attempt = attempt{trailer: req.Trailer}
	if !op.around.IsValid() && op.first.IsValid() {
		req = req.WithContext(trace.ContextWithSpanContext(ctx, op.first))
	}
	resp, err := b.next.RoundTrip(req)
	made := op.attempt
	op.attempt = attempt{} // or it would be kept through the wait for the next attempt
	switch {
	case err != nil || made.body == nil:
	case isConn(made.body):
		keepCloseWrite(resp, made.body)
	default:
		resp.Body = &body{resp.Body, closing.WhileRead(made.body), ctx, made.span}
	}
	return resp, err
}

// isConn reports whether body is a connection, as the body of a 101 is.
func isConn(body io.ReadCloser) bool {
	_, ok := body.(io.Writer)
	return ok
}

// body is a response's body above otelhttp, which itself does not mind being closed
// while it is read.
type body struct {
	io.ReadCloser
	closableWhileRead bool
	ctx               context.Context // of the attempt
	span              trace.Span      // nil: none
}

// Close may be how a stall ends a Read. Then the stall ends the span, whichever of the two
// gets there first.
func (b *body) Close() error {
	if stall := timeLimit(b.ctx); stall != nil && b.span != nil {
		endInError(b.span, stall)
	}
	return b.ReadCloser.Close()
}

// timeLimit returns the error of the Transport's time limit that has ended ctx, or nil. A
// deadline of the caller's ends ctx with another error.
func timeLimit(ctx context.Context) error {
	if cause := context.Cause(ctx); ctx.Err() == context.Canceled && errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

// ClosableWhileRead reports whether the base's body may be closed while it is read. So
// the drain of a response that stalls can free its connection.
func (b *body) ClosableWhileRead() bool { return b.closableWhileRead }

// withinSpan finds the attempt's span.
type withinSpan struct{ next http.RoundTripper }

func (w withinSpan) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	op, span := operationOf(ctx), trace.SpanFromContext(ctx)
	made := op.describe(span, retryhttp.AttemptNumber(ctx))
	if op.attempt.trailer != nil {
		req = req.WithContext(ctx)
		req.Trailer = op.attempt.trailer
	}
	returned := false
	defer func() {
		if !returned && made {
			span.End() // the base panics, and otelhttp would not end it
		}
	}()
	resp, err := w.next.RoundTrip(req)
	returned = true
	if err != nil && made {
		endInError(span, err)
	}
	if err != nil || resp == nil || resp.Body == nil {
		return resp, err
	}
	op.attempt.body = resp.Body
	if made {
		op.attempt.span = span
		resp.Body = inSpan(ctx, resp.Body, span)
	}
	return resp, nil
}

// endInError ends span before otelhttp sets its status to err's own text, which may
// quote a header or a query. Nothing changes a span that has ended.
func endInError(span trace.Span, err error) {
	span.SetAttributes(semconv.ErrorType(err))
	span.SetStatus(codes.Error, (&retryhttp.Error{Err: err}).Error())
	span.End()
}

// spanBody ends the attempt's span where the response's body fails.
type spanBody struct {
	io.ReadCloser
	ctx  context.Context // of the attempt
	span trace.Span
}

// spanConn is a spanBody that can be written to.
type spanConn struct {
	*spanBody
	io.Writer
}

func inSpan(ctx context.Context, body io.ReadCloser, span trace.Span) io.ReadCloser {
	b := &spanBody{body, ctx, span}
	if w, ok := body.(io.Writer); ok {
		return &spanConn{b, w}
	}
	return b
}

func (c *spanConn) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	if err != nil {
		endInError(c.span, err)
	}
	return n, err
}

func (b *spanBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		endInError(b.span, cmp.Or(timeLimit(b.ctx), err)) // over HTTP/2, err would be "context canceled"
	}
	return n, err
}

type closeWriter interface{ CloseWrite() error }

// conn is the body of a 101, which is a connection, and can be closed by halves as it
// could before otelhttp wrapped it.
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
