package otelretry

import (
	"context"
	"net/http"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"

	"github.com/retryhttp/retryhttp"
)

// operation is what the attempts of one request have in common with each other, and
// with the attempts of the requests that redirected to it. It is the context in which they
// are made, and the request that has it. It is written to by the goroutine of the RoundTrip
// alone, and after that by a Read that resumes the response's body. Three fields are atomic,
// and some are behind a mutex: a hedge goes on beside these, and code that has the context
// of the operation may make requests meanwhile.
type operation struct {
	context.Context
	request http.Request

	resends int               // what a first attempt counts as, more than 0 after a redirect
	number  int               // of the first attempt, which may itself be part of another request's
	around  trace.SpanContext // in which the request is made

	handed   atomic.Pointer[handover] // at the end, if the response's request is not the caller's
	followed atomic.Bool              // its redirect has been
	firstWon atomic.Bool              // the response is not a hedge's

	returned bool // the RoundTrip has: other attempts resume the response's body
	resumed  bool // by an attempt that the gauges do not show yet

	spans spans
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
		op.spans.first, op.spans.last = before.first, before.last
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
	outcome := retryhttp.OutcomeOf(resp)
	op.firstWon.Store(!outcome.HedgeWon)
	first, last := op.spans.end(outcome.HedgeWon)
	if resp.Request == &op.request && !isRedirect(resp.StatusCode) {
		resp.Request = caller
	} else {
		op.handed.Store(&handover{resp.Request, op.resends + outcome.Attempts, first, last})
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
