package otelretry

import (
	"context"
	"net/http"
	"sync/atomic"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/retryhttp/retryhttp"
)

// operation is what the attempts of one request have in common, and those of the
// requests that redirected to it. It is the context in which they are made, and the
// request that has it. It is written to by the goroutine of the RoundTrip alone, and
// not after that, but for followed.
type operation struct {
	context.Context
	caller  *http.Request // what request is a copy of
	request http.Request
	resends int               // what a first attempt counts as: more than 0 after a redirect
	number  int               // of the first attempt, which may itself be part of another request's
	around  trace.SpanContext // in which the request is made
	handed  context.Context   // that of the response's request; set once, at the end

	followed atomic.Bool // its redirect has been

	first, last trace.SpanContext // attempts so far
	attempt     attempt           // under way
}

type operationKey struct{}

func (op *operation) Value(key any) any {
	if key == (operationKey{}) {
		return op
	}
	return op.Context.Value(key)
}

func operationOf(ctx context.Context) *operation {
	op, _ := ctx.Value(operationKey{}).(*operation)
	return op
}

func begin(req *http.Request) *operation {
	ctx := req.Context()
	if before := operationOf(ctx); before != nil && before.handed == ctx {
		ctx = before.Context // or a chain of requests would keep every response alive
	}
	op := &operation{Context: ctx, caller: req, number: retryhttp.AttemptNumber(ctx), around: trace.SpanContextFromContext(ctx)}
	op.request = *req.WithContext(op)
	if req.Header == nil {
		op.request.Header = make(http.Header) // otelhttp would write to nil
	}
	if before := redirecting(req); before != nil {
		op.resends = before.resends + retryhttp.OutcomeOf(req.Response).Attempts
		op.first, op.last = before.first, before.last
	}
	return op
}

// redirecting returns the operation of the request whose response has an http.Client
// make req, or nil. That client goes on once; whoever sends req again makes a new
// request of it.
func redirecting(req *http.Request) *operation {
	if req.Response == nil || req.Response.Request == nil {
		return nil
	}
	ctx := req.Response.Request.Context()
	before := operationOf(ctx)
	if before == nil || before.handed != ctx {
		return nil
	}
	if !before.followed.CompareAndSwap(false, true) {
		return nil
	}
	return before
}

// end notes in which context the response came, which may be the caller's own, and
// lets go of what that context would keep alive.
func (op *operation) end(resp *http.Response) {
	if resp.Request == &op.request && !isRedirect(resp.StatusCode) {
		resp.Request = op.caller
	} else {
		op.handed = resp.Request.Context()
	}
	op.caller, op.attempt = nil, attempt{}
}

// isRedirect reports whether an http.Client goes on to another request.
func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// describe tells an attempt's span what it is of. Where otelhttp makes none, because
// of a filter, span is that around the request, and is left alone.
func (op *operation) describe(span trace.Span, number int) {
	at := span.SpanContext()
	if at.SpanID() == op.around.SpanID() {
		return
	}
	if resends := op.resends + number - op.number; resends > 0 {
		span.SetAttributes(semconv.HTTPRequestResendCount(resends))
	}
	if op.last.IsValid() {
		span.AddLink(trace.Link{SpanContext: op.last})
	}
	op.last = at
	if !op.first.IsValid() {
		op.first = at
	}
}
