package retryhttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Outcome tells how a request ended, on the response ([OutcomeOf]) as on the
// error ([Error]).
type Outcome struct {
	// Attempts is how many attempts were made. It is 0 only for a request
	// whose context had ended before the first.
	Attempts int
	// Elapsed is the time from the first attempt's start to the end.
	Elapsed time.Duration
	// Waited is the part of Elapsed that was spent between attempts.
	Waited time.Duration
	// Stop is why no further attempt was made.
	Stop Stop
	// Ambiguous is true if an attempt before the last may have taken effect at
	// the server: the method is not safe (RFC 9110, section 9.2.1), and the
	// attempt ended in an error or a 5xx that does not prove the contrary. The
	// result may then be the echo of an attempt that worked, such as the 404
	// of a DELETE or the 412 of a conditional PUT. What net/http resends by
	// itself, as it does with what has an idempotency key, is not known.
	Ambiguous bool
}

// Stop is why no further attempt was made. It is fit for a log or the label of
// a metric. Where several reasons apply, the first of these counts: canceled
// (unless there is a final response), final, nested, not-idempotent, attempts,
// body, retry-after, deadline, budget.
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
	StopNested        Stop = "nested"         // a Transport underneath had already retried, or given up
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

// OutcomeOf returns how the request ended that resp answers. A response on
// which nothing was recorded, because the first attempt was final or because it
// came from elsewhere, has Attempts 1, StopFinal, and no times: [Policy.OnDone] is
// told those. OutcomeOf(nil) is the zero Outcome.
//
// The record is kept in resp.Request's context. A RoundTripper above the
// Transport that replaces resp.Request, or copies the response, hides it.
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

// String tells no more than that, for the struct has the request's header.
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

// Error is what [Transport.RoundTrip] returns when there is no response: the
// last attempt failed with an error, or the request's context ended. An
// http.Client wraps it in a *url.Error, where errors.As finds it; except that
// once http.Client.Timeout has run out, the Client mostly returns an error of its
// own in the place of the one that it got. [Policy.OnDone] is told either way.
type Error struct {
	Outcome
	// Err is the last attempt's error. If the context ended after an attempt
	// that had a response, it names that response's status; if it ended before
	// the first attempt, it is the context's cause. If there was no retry
	// because the body could not be had again, that error is joined to it.
	Err error

	canceled []error // on StopCanceled: the context's cause, and its Err
}

// Error describes the last failure and, if there was more than one attempt,
// how many there were, how long they took, and in words why there was no further
// one. It holds no more of a URL than scheme, host and path.
func (e *Error) Error() string {
	text := failureText(e.Err)
	if inner, ok := errors.AsType[*Error](e.Err); ok && e.Stop == StopNested && inner.Attempts == e.Attempts {
		return text // it has told the rest
	}
	if len(e.canceled) > 0 && !errors.Is(e.Err, e.canceled[0]) {
		text += ", then " + failureText(e.canceled[0])
	}
	if e.Attempts <= 1 {
		return text
	}
	return fmt.Sprintf("%s (gave up after %d attempts in %v: %s)",
		text, e.Attempts, e.Elapsed.Round(time.Millisecond), e.Stop.reason())
}

// Unwrap returns Err and, on StopCanceled, also the context's cause and its
// Err, so that errors.Is finds the last failure as well as what cut the retries
// short.
func (e *Error) Unwrap() []error {
	return append([]error{e.Err}, e.canceled...)
}

// Timeout reports whether a time limit ended the request: that of the last
// attempt, or the context's deadline. [net/url.Error.Timeout] asks it.
func (e *Error) Timeout() bool {
	for _, err := range e.Unwrap() {
		if t, ok := errors.AsType[interface {
			error
			Timeout() bool
		}](err); ok && t.Timeout() {
			return true
		}
	}
	return false
}

// statusError is the last failure of a request that was canceled while it
// waited to repeat an attempt that had a response. That response is gone.
type statusError int

func (e statusError) Error() string {
	return "the last response was " + statusText(int(e))
}

func statusText(status int) string {
	return strings.TrimSpace(strconv.Itoa(status) + " " + http.StatusText(status))
}
