package retryhttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/retryhttp/retryhttp/internal/field"
	"github.com/retryhttp/retryhttp/internal/redact"
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
	StopCanceled      Stop = "canceled"       // the context ended, or Request.Cancel was closed
	StopFinal         Stop = "final"          // the last result was classified as Final
	StopNested        Stop = "nested"         // a nested Transport had retried, or given up
	StopNotIdempotent Stop = "not-idempotent" // it is unsafe to repeat: see Policy.Idempotent
	StopAttempts      Stop = "attempts"       // MaxAttempts were made
	StopBody          Stop = "body"           // the body could not be sent again
	StopRetryAfter    Stop = "retry-after"    // the server asked for more than MaxRetryAfter
	StopDeadline      Stop = "deadline"       // MaxElapsed or the deadline left no room to wait
	StopBudget        Stop = "budget"         // the Budget refused the retry
)

// OutcomeOf returns how the request of resp ended. A Final first attempt that was not held has
// Attempts 1, StopFinal and no times: [Policy.OnDone] has them. So has a response that no Transport has
// returned, or whose Request was replaced above the Transport. OutcomeOf(nil) is zero.
func OutcomeOf(resp *http.Response) Outcome {
	if resp == nil {
		return Outcome{}
	}
	if o := recordOf(resp); o != nil {
		return *o
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

// recordOf returns the Outcome that a Transport recorded on resp, or nil. It compares the response
// because contexts are inherited. A later request may be the request of an earlier response, or may use
// its context. Such a request has the earlier record in its context, but has an outcome of its own.
func recordOf(resp *http.Response) *Outcome {
	if resp.Request == nil {
		return nil
	}
	rec, ok := resp.Request.Context().Value(recordKey{}).(*record)
	if !ok || rec.response != resp {
		return nil
	}
	return &rec.outcome
}

// Error is what [Transport.RoundTrip] returns without a response, and a Read when [Policy.Resume]
// gives up. It is a net.Error. An http.Client adds the URL, in a *url.Error.
type Error struct {
	Outcome

	// Err is the last attempt's error, or the error of the Read. If the context ended before the first
	// attempt, it is the context's cause.
	Err error

	canceled []error // on StopCanceled: the context's cause, and its Err
}

// Error returns the text of the base's error. After several attempts, their number, their time and the
// Stop precede it. The base's text comes last, because programs such as connect-go read codes from it.
// Nothing is left out except userinfo, queries and fragments of URLs, and what net/http quotes from a peer.
// Stop, and the Logger, say why there was no retry.
func (e *Error) Error() string {
	text := textOf(e.Err)
	if inner, ok := errors.AsType[*Error](e.Err); ok && e.Stop == StopNested && inner.Attempts == e.Attempts {
		return text // the inner text has the rest
	}
	unmended, _ := e.Err.(*unmendedError)
	switch {
	case e.Attempts > 1:
		return fmt.Sprintf("gave up after %d attempts in %v (%s): %s", e.Attempts, e.Elapsed.Round(time.Millisecond), e.why(), text)
	case unmended != nil:
		return textOf(unmended.failed)
	case e.endedLater() && is[statusError](e.Err):
		return textOf(e.canceled[0]) + ": " + text // no error of the base has a text to keep
	}
	return text
}

// why returns the Stop, and the cause of a cancellation that Err does not name.
func (e *Error) why() string {
	why := cmp.Or(string(e.Stop), "no reason was recorded")
	if e.endedLater() {
		why += ": " + textOf(e.canceled[0])
	}
	return why
}

// endedLater reports whether the context has ended after the last attempt.
func (e *Error) endedLater() bool {
	return len(e.canceled) > 0 && !errors.Is(e.Err, e.canceled[0])
}

// Unwrap returns Err and, on [StopCanceled], the context's cause and its Err.
func (e *Error) Unwrap() []error {
	return append([]error{e.Err}, e.canceled...)
}

// Timeout reports whether Err, or the end of the context, was a timeout.
func (e *Error) Timeout() bool {
	return slices.ContainsFunc(e.Unwrap(), isTimeout)
}

// Temporary reports whether Err, or the end of the context, says that it is temporary. It does not
// say whether a retry helps: see [Classify]. (*url.Error).Temporary asks for it.
func (e *Error) Temporary() bool {
	return slices.ContainsFunc(e.Unwrap(), isTemporary)
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && t.Timeout()
}

func isTemporary(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](err)
	return ok && t.Temporary()
}

func newError(err error, o Outcome, req *http.Request) *Error {
	e := &Error{Outcome: o, Err: err}
	if o.Stop == StopCanceled {
		e.canceled = endOf(req)
	}
	return e
}

var errCancelClosed = errors.New("the request's Cancel channel was closed")

// noticeTime is how long a context may take to notice that its deadline has passed.
const noticeTime = time.Millisecond

// endOf returns why req has ended: the context's cause, and the context's Err.
func endOf(req *http.Request) []error {
	ctx := req.Context()
	passed := deadlinePassed(ctx)
	if passed { // only the context knows the cause
		timer := time.NewTimer(noticeTime)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	switch {
	case ctx.Err() != nil:
		return []error{context.Cause(ctx), ctx.Err()}
	case passed:
		return []error{context.DeadlineExceeded}
	}
	return []error{errCancelClosed}
}

// statusError is the last failure of a request that was canceled while it waited for another
// attempt. The failure was a response, which is gone.
type statusError int

func (e statusError) Error() string {
	return "the last response was " + field.Status(int(e))
}

// unmendedError is the error of an attempt, or of a response's body, and why nothing has mended it. It
// implements net.Error. Its text ends with the text of what failed, as the text of an Error does.
type unmendedError struct {
	what        string // did not mend it
	why, failed error
}

func (e *unmendedError) Error() string {
	return e.what + ": " + e.why.Error() + ": " + e.failed.Error()
}

func (e *unmendedError) Unwrap() []error { return []error{e.failed, e.why} }
func (e *unmendedError) Timeout() bool   { return slices.ContainsFunc(e.Unwrap(), isTimeout) }
func (e *unmendedError) Temporary() bool { return slices.ContainsFunc(e.Unwrap(), isTemporary) }

// textOf returns err's text without secrets.
func textOf(err error) string {
	if err == nil {
		return "no error was recorded" // the Error was not made by this package
	}
	return redact.Error(err)
}
