package otelretry

import (
	"context"
	"net/http"
	"sync"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/retryhttp/retryhttp"
)

// operation is what the attempts of one request have in common, those after a
// redirect included. It is the context in which they are made, and the request that
// has it.
type operation struct {
	context.Context
	request http.Request
	resends int               // what a first attempt counts as: more than 0 after a redirect
	number  int               // of the first attempt, which may itself be part of another request's
	around  trace.SpanContext // in which the request is made

	mu          sync.Mutex
	first, last trace.Span // attempts so far
}

type operationKey struct{}

func (op *operation) Value(key any) any {
	if key == (operationKey{}) {
		return op
	}
	return op.Context.Value(key)
}

func begin(req *http.Request) *operation {
	ctx := req.Context()
	op := &operation{Context: ctx, number: retryhttp.AttemptNumber(ctx), around: trace.SpanContextFromContext(ctx)}
	op.request = *req.WithContext(op)
	if req.Header == nil {
		op.request.Header = make(http.Header) // otelhttp would write to nil
	}
	if redirect := req.Response; redirect != nil && redirect.Request != nil {
		if before, ok := operationOf(redirect.Request.Context()); ok {
			op.resends = before.resends + retryhttp.OutcomeOf(redirect).Attempts
			op.first, op.last = before.spans()
		}
	}
	return op
}

func operationOf(ctx context.Context) (*operation, bool) {
	op, ok := ctx.Value(operationKey{}).(*operation)
	return op, ok
}

func (op *operation) spans() (first, last trace.Span) {
	op.mu.Lock()
	defer op.mu.Unlock()
	return op.first, op.last
}

// add makes span the last attempt's, and returns that of the attempt before, or nil.
func (op *operation) add(span trace.Span) (before trace.Span) {
	op.mu.Lock()
	defer op.mu.Unlock()
	before, op.last = op.last, span
	if op.first == nil {
		op.first = span
	}
	return before
}

// beforeSpan lies between the retries and otelhttp. Where there is no span around
// the request it has the first attempt's be the parent. The span itself and not
// only its context, for otelhttp takes its tracer from there.
type beforeSpan struct{ next http.RoundTripper }

func (b beforeSpan) RoundTrip(req *http.Request) (*http.Response, error) {
	if op, ok := operationOf(req.Context()); ok && !op.around.IsValid() {
		if first, _ := op.spans(); first != nil {
			req = req.WithContext(trace.ContextWithSpan(req.Context(), first))
		}
	}
	return b.next.RoundTrip(req)
}

// withinSpan lies beneath otelhttp, and tells its span what it is of.
type withinSpan struct{ next http.RoundTripper }

func (w withinSpan) RoundTrip(req *http.Request) (*http.Response, error) {
	if op, ok := operationOf(req.Context()); ok {
		op.describe(trace.SpanFromContext(req.Context()), retryhttp.AttemptNumber(req.Context()))
	}
	return w.next.RoundTrip(req)
}

// describe leaves a span alone that is not the attempt's: where otelhttp makes none,
// because of a filter, it finds that around the request, or none.
func (op *operation) describe(span trace.Span, attempt int) {
	if span.SpanContext().SpanID() == op.around.SpanID() {
		return
	}
	before := op.add(span)
	if resends := op.resends + attempt - op.number; resends > 0 {
		span.SetAttributes(semconv.HTTPRequestResendCount(resends))
	}
	if before != nil {
		span.AddLink(trace.Link{SpanContext: before.SpanContext()})
	}
}
