package otelretry

import (
	"context"
	"net/http"
	"sync/atomic"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/retryhttp/retryhttp"
)

// operation is what the attempts of one request have in common with each other, and
// with the attempts of the requests that redirected to it. It is the context in which they are made, and the
// request that has it. It is written to by the goroutine of the RoundTrip alone, and after
// that by a Read that resumes the response's body, except for followed. What is atomic is
// read by others, too: code that has its context may make requests while it goes on.
type operation struct {
	context.Context
	request http.Request

	resends int               // what a first attempt counts as, more than 0 after a redirect
	number  int               // of the first attempt, which may itself be part of another request's
	around  trace.SpanContext // in which the request is made

	handed   atomic.Pointer[handover] // at the end, if the response's request is not the caller's
	followed atomic.Bool              // its redirect has been

	first, last trace.SpanContext // attempts so far
	attempt     attempt           // under way
	returned    bool              // the RoundTrip has: other attempts resume the response's body
	resumed     bool              // by an attempt that the gauges do not show yet
}

// handover is how an operation ended. The request to which it redirects goes on from there,
// whatever is done with the body meanwhile.
type handover struct {
	request     *http.Request // the response's
	resends     int           // what the first attempt after a redirect counts as
	first, last trace.SpanContext
}

type operationKey struct{}

func (op *operation) Value(key any) any {
	if key == (operationKey{}) {
		return op
	}
	return op.Context.Value(key)
}

// String says no more than that, for the struct has the request's header.
func (op *operation) String() string { return "otelretry.operation" }

func operationOf(ctx context.Context) *operation {
	op, _ := ctx.Value(operationKey{}).(*operation)
	return op
}

func begin(req *http.Request) *operation {
	ctx := req.Context()
	if before := operationOf(ctx); before != nil && before.handedOver(ctx) {
		ctx = before.Context // or a chain of requests would keep every response alive
	}
	op := &operation{Context: ctx, number: retryhttp.AttemptNumber(ctx), around: trace.SpanContextFromContext(ctx)}
	op.request = *req.WithContext(op)
	if req.Header == nil {
		op.request.Header = make(http.Header) // otelhttp would write to nil
	}
	if before := redirecting(req); before != nil {
		op.resends = before.resends
		op.first, op.last = before.first, before.last
	}
	return op
}

// handedOver reports whether ctx is the context of the response's request.
func (op *operation) handedOver(ctx context.Context) bool {
	end := op.handed.Load()
	return end != nil && end.request.Context() == ctx
}

// redirecting returns the end of the operation whose response has an http.Client make
// req, or nil. That client goes on once; a caller that sends req again makes a new request
// of it.
func redirecting(req *http.Request) *handover {
	if req.Response == nil || req.Response.Request == nil {
		return nil
	}
	before := operationOf(req.Response.Request.Context())
	if before == nil {
		return nil
	}
	end := before.handed.Load()
	if end == nil || end.request != req.Response.Request || !before.followed.CompareAndSwap(false, true) {
		return nil
	}
	return end
}

// end notes with which request the response to the caller's request came.
func (op *operation) end(resp *http.Response, caller *http.Request) {
	if resp.Request == &op.request && !isRedirect(resp.StatusCode) {
		resp.Request = caller
	} else {
		op.handed.Store(&handover{resp.Request, op.resends + retryhttp.OutcomeOf(resp).Attempts, op.first, op.last})
	}
	op.returned = true
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

// describe sets the attributes and the link of an attempt's span, and reports
// whether span is that. If otelhttp made none, because of a filter, span is the one
// around the request or the first attempt's, and is left alone.
func (op *operation) describe(span trace.Span, number int) bool {
	at := span.SpanContext()
	if at.SpanID() == op.around.SpanID() || at.SpanID() == op.first.SpanID() {
		return false
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
	return true
}
