package otelretry

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/retryhttp/retryhttp"
)

// operation is the state that the attempts of one request share with each other, and with the
// attempts of the requests that redirected to it. It is the context of these attempts, and the
// request that has this context. Only the goroutine of RoundTrip writes to it; after
// RoundTrip, a Read that resumes the response's body does. Four fields are atomic, and some
// are behind a mutex. A hedge may still run beside these goroutines, and code that has the
// operation's context may make requests meanwhile.
type operation struct {
	context.Context
	request http.Request

	resends int               // resend_count of the first attempt; above 0 after a redirect
	number  int               // of the first attempt, which another request's attempt may include
	inHedge bool              // a hedge of another request includes the operation
	around  trace.SpanContext // the span around the request

	handed   atomic.Pointer[handover] // set at the end if the response has another request
	followed atomic.Bool              // the redirect has been followed
	firstWon atomic.Bool              // the response is not a hedge's
	counted  atomic.Bool              // in the metrics, unless RoundTrip has returned

	returned bool // RoundTrip has returned; other attempts resume the response's body
	resumed  bool // an attempt that the gauges do not show yet has resumed the body

	spans spans
	waits waits

	toldHeld, toldInLine time.Duration // how long it was held, as the events of its spans say
}

// handover is the end of an operation. A request to which the operation redirects continues
// from there, whatever happens to the body meanwhile.
type handover struct {
	request     *http.Request // the response's request
	resends     int           // resend_count of the first attempt after a redirect
	first, last trace.SpanContext
}

type operationKey struct{}

func (op *operation) Value(key any) any {
	if key == (operationKey{}) {
		return op
	}
	return op.Context.Value(key)
}

// String keeps the request's headers out of logs that print the context.
func (op *operation) String() string { return "otelretry.operation" }

func operationOf(ctx context.Context) *operation {
	op, _ := ctx.Value(operationKey{}).(*operation)
	return op
}

func begin(req *http.Request, m *metrics) *operation {
	ctx := req.Context()
	if before := operationOf(ctx); before != nil && before.handedOver(ctx) {
		ctx = before.Context // otherwise a chain of requests would keep every response alive
	}
	above := retryhttp.AttemptOf(ctx)
	op := &operation{
		Context: ctx, number: above.Number, inHedge: above.Hedge, around: trace.SpanContextFromContext(ctx),
	}
	op.request = *req.WithContext(op)
	op.waits.metrics, op.waits.req = m, &op.request
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

// redirecting returns the end of the operation whose response makes an http.Client send req,
// or nil. The client follows a redirect once: a caller that sends req again makes a new
// request.
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

// end records how the operation ended. A response to op's own request gets the caller's
// request back, unless the response is a redirect.
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

// leave ends the operation when RoundTrip returns, and also when it panics.
func (op *operation) leave() {
	op.waits.end()
	if !op.counted.Load() {
		op.waits.metrics.recordPanic(&op.request)
	}
}

// isRedirect reports whether an http.Client continues with another request.
func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}
