package retryhttp

import (
	"context"
	"net/http"
	"time"
)

// Outcome is how a request ended. See [OutcomeOf] and [Error]. It may gain fields.
type Outcome struct {
	Attempts     int           // attempts made; 0 if the context had ended before the first
	Elapsed      time.Duration // from start to end, including a hold before the first attempt
	Waited       time.Duration // the part of Elapsed in which no attempt was under way
	Held         time.Duration // the part of Waited in which a Gate held the request
	Hedges       int           // attempts that were sent beside another, by [Policy.Hedge]
	HedgeWon     bool          // the response is a hedge's
	HedgeRefused bool          // a hedge was due, and the Budget refused it
	Stop         Stop          // why no further attempt was made
	Ambiguous    bool          // an unsafe attempt may have taken effect, and its response is lost
}

// Stop is why no further attempt was made, fit for a metric's label. If several apply, the first
// of them in this list is reported. A Final response is [StopFinal], even if the context has ended.
// Other values may be added.
type Stop string

const (
	StopCanceled      Stop = "canceled"       // the context ended, or the request's Cancel did
	StopFinal         Stop = "final"          // the last result was classified as Final
	StopNested        Stop = "nested"         // a nested Transport had retried, or given up
	StopNotIdempotent Stop = "not-idempotent" // it may have taken effect, and is unsafe to repeat
	StopAttempts      Stop = "attempts"       // MaxAttempts were made
	StopBody          Stop = "body"           // the body could not be sent again
	StopRetryAfter    Stop = "retry-after"    // the server asked for more than MaxRetryAfter
	StopDeadline      Stop = "deadline"       // MaxElapsed or the deadline left no room to wait
	StopBudget        Stop = "budget"         // the Budget was spent, for a backoff at least
)

// OutcomeOf returns how the request of resp ended. A Final first attempt that was not held has
// Attempts 1, StopFinal and no times. OutcomeOf(nil) is zero.
func OutcomeOf(resp *http.Response) Outcome {
	if resp == nil {
		return Outcome{}
	}
	if rec, ok := recordOf(resp); ok {
		return rec.outcome
	}
	return Outcome{Attempts: 1, Stop: StopFinal}
}

// record is a caller's context with an Outcome, together with the copy of the caller's request
// that has this context. It is one object instead of two.
type record struct {
	context.Context
	outcome  Outcome
	request  http.Request
	response *http.Response // the response that the outcome belongs to
}

type recordKey struct{}

func (rec *record) Value(key any) any {
	if key == (recordKey{}) {
		return rec
	}
	return rec.Context.Value(key)
}

// String keeps the request's headers out of logs that print the context.
func (rec *record) String() string { return "retryhttp.outcome" }

// attachOutcome makes resp.Request a copy of req that carries o.
func attachOutcome(resp *http.Response, req *http.Request, o Outcome) {
	ctx := req.Context()
	if earlier, ok := ctx.(*record); ok {
		ctx = earlier.Context // otherwise a chain of requests would keep every response alive
	}
	rec := &record{Context: ctx, outcome: o, response: resp}
	rec.request = *req.WithContext(rec)
	resp.Request = &rec.request
}

// recordOf returns the record of resp. It compares the response because contexts are inherited. A
// later request may be the request of an earlier response, or may use its context. Such a request
// has the earlier record in its context, but has an outcome of its own.
func recordOf(resp *http.Response) (*record, bool) {
	if resp.Request == nil {
		return nil, false
	}
	rec, ok := resp.Request.Context().Value(recordKey{}).(*record)
	return rec, ok && rec.response == resp
}
