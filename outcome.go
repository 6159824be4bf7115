package retryhttp

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/retryhttp/retryhttp/internal/replay"
)

// Outcome is how a request ended. See [OutcomeOf] and [Error].
type Outcome struct {
	Attempts  int           // attempts made; 0 if the context had ended before the first
	Elapsed   time.Duration // from the start to the end, with the time for which a first attempt was held
	Waited    time.Duration // the part of Elapsed in which no attempt was under way
	Held      time.Duration // the part of Waited in which a Gate held the request
	Hedges    int           // attempts that were sent beside another, by [Policy.Hedge]
	HedgeWon  bool          // the response is a hedge's
	Stop      Stop          // why no further attempt was made
	Ambiguous bool          // an attempt before the last may have taken effect: a DELETE's 404 may be its echo
}

// Stop is why no further attempt was made, fit for a metric's label. If several apply, the first
// counts of canceled (unless the response is final), final, nested, not-idempotent, attempts, body,
// retry-after, deadline, budget.
type Stop string

const (
	StopFinal         Stop = "final"          // the last result was classified as Final
	StopNotIdempotent Stop = "not-idempotent" // the request may have taken effect and is not safe to repeat
	StopBody          Stop = "body"           // the body could not be sent again
	StopAttempts      Stop = "attempts"       // MaxAttempts were made
	StopDeadline      Stop = "deadline"       // MaxElapsed or the context's deadline left no room for the wait
	StopRetryAfter    Stop = "retry-after"    // the server asked for a longer wait than MaxRetryAfter
	StopBudget        Stop = "budget"         // the Budget was spent
	StopCanceled      Stop = "canceled"       // the request's context ended, or its Cancel was closed
	StopNested        Stop = "nested"         // a nested Transport had already retried, or given up
)

// reason says in words why there was no further attempt.
func (s Stop) reason() string {
	switch s {
	case StopFinal:
		return "a retry would not help"
	case StopNotIdempotent:
		return "the request is not safe to repeat"
	case StopBody:
		return "the body cannot be sent again"
	case StopAttempts:
		return "attempt limit"
	case StopDeadline:
		return "no time left to wait"
	case StopRetryAfter:
		return "the server asked for a longer wait"
	case StopBudget:
		return "retry budget spent"
	case StopCanceled:
		return "canceled"
	case StopNested:
		return "a Transport below has given up"
	}
	return cmp.Or(string(s), "no reason was recorded")
}

// OutcomeOf returns how the request ended that produced resp: Attempts 1 and StopFinal if nothing
// was recorded. OutcomeOf(nil) is zero.
func OutcomeOf(resp *http.Response) Outcome {
	if resp == nil {
		return Outcome{}
	}
	if rec, ok := recordOf(resp); ok {
		return rec.outcome
	}
	return Outcome{Attempts: 1, Stop: StopFinal}
}

// record is a caller's context with an Outcome, and the copy of the caller's
// request that carries it: one object instead of two.
type record struct {
	context.Context
	outcome  Outcome
	request  http.Request
	response *http.Response // whose outcome it is
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
		ctx = earlier.Context // or a chain of requests would keep every response alive
	}
	rec := &record{Context: ctx, outcome: o, response: resp}
	rec.request = *req.WithContext(rec)
	resp.Request = &rec.request
}

// recordOf returns what was recorded on resp. It compares the response because
// contexts are inherited: a request that is made with the context of a response's
// request, or that is that request, has the record in its context, and an outcome
// of its own.
func recordOf(resp *http.Response) (*record, bool) {
	if resp.Request == nil {
		return nil, false
	}
	rec, ok := resp.Request.Context().Value(recordKey{}).(*record)
	return rec, ok && rec.response == resp
}

// innerOutcome returns what a nested Transport recorded, or nil if there is none or
// it neither retried nor gave up.
func innerOutcome(a *Attempt) *Outcome {
	if a.Err != nil {
		e, ok := errors.AsType[*Error](a.Err)
		if !ok || fromElsewhere(e, a) {
			return nil
		}
		return &e.Outcome
	}
	if a.Response.Request == a.Request {
		return nil
	}
	return innerOutcomeOf(a.Response)
}

// innerOutcomeOf returns what a nested Transport recorded on resp, or nil.
func innerOutcomeOf(resp *http.Response) *Outcome {
	if rec, ok := recordOf(resp); ok {
		return &rec.outcome
	}
	return nil
}

// fromElsewhere reports whether an Error in a's error belongs to another request:
// one that failed and so ended this one's context, or one that this one's body
// is read from.
func fromElsewhere(e *Error, a *Attempt) bool {
	return errors.Is(context.Cause(a.Request.Context()), e) ||
		is[*replay.ReadError](a.Err) || is[*replay.BodyError](a.Err)
}

// including adds what a nested Transport recorded.
func (o Outcome) including(inner *Outcome) Outcome {
	if inner != nil {
		o.Attempts += max(inner.Attempts, 1) - 1 // 0 if its context had ended
		o.Waited += inner.Waited
		o.Held += inner.Held
		o.Hedges += inner.Hedges
		o.HedgeWon = o.HedgeWon || inner.HedgeWon
		o.Ambiguous = o.Ambiguous || inner.Ambiguous
	}
	return o
}
