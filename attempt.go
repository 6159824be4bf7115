package retryhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
)

// Attempt describes one attempt and how it went.
type Attempt struct {
	Number int // 1 for the first; 0 in OnDone if the context had ended before it
	// Request is as it was sent, but with the caller's context. It must not be changed.
	Request *http.Request
	// Response is nil if Err is not. Only OnRetry may read from its body, and nobody
	// may close it.
	Response *http.Response
	Err      error         // nil if Response is not
	Elapsed  time.Duration // until the response header or the error
	Wait     time.Duration // before the next attempt; 0 in Classify
}

// AttemptNumber returns which attempt ctx belongs to, for RoundTrippers below a
// Transport: 1 for the first and for any other context, 2 for the first retry. Nested
// Transports count on, and so does a request made with the context of another.
func AttemptNumber(ctx context.Context) int {
	if n, ok := ctx.Value(numberKey{}).(*numbered); ok {
		return n.number
	}
	return 1
}

// numbered is the context of an attempt, and the copy of the request that has it: one
// object instead of two. A first attempt does without.
type numbered struct {
	context.Context
	number  int
	request http.Request
}

type numberKey struct{}

func (n *numbered) Value(key any) any {
	if key == (numberKey{}) {
		return n
	}
	return n.Context.Value(key)
}

// String keeps the request's headers out of logs that print the context.
func (n *numbered) String() string { return "retryhttp.attempt" }

// copyForAttempt returns a copy of req for the attempt with a number. The base may
// use what it got until the response's body has been closed, and after an error for
// as long as it likes.
func copyForAttempt(req *http.Request, number int) *http.Request {
	ctx := req.Context()
	if number == 1 {
		return req.WithContext(ctx)
	}
	n := &numbered{Context: ctx, number: AttemptNumber(ctx) + number - 1}
	n.request = *req.WithContext(n)
	return &n.request
}

var errNoResponse = errors.New("the base RoundTripper returned neither a response nor an error")

// roundTrip sends req through base and returns either a response or an error, even
// if base breaks that rule. A positive timeout bounds the time until the response
// header; body reads the request's body.
func roundTrip(base http.RoundTripper, req *http.Request, timeout time.Duration, body reading) (*http.Response, error) {
	var resp *http.Response
	var err error
	if timeout > 0 {
		resp, err = roundTripWithin(base, req, timeout, body)
	} else {
		resp, err = base.RoundTrip(req)
	}
	if err != nil {
		closeResponse(resp)
		return nil, err
	}
	if resp == nil {
		return nil, errNoResponse
	}
	return resp, nil
}

// roundTripWithin ends an attempt whose response header does not come in time.
//
// A context with a deadline would not do: it cannot be disarmed, and would cut
// the body that is being read. So a timer cancels, and is stopped at the
// header. The context itself must live as long as the body, which therefore
// has to be wrapped. The reading is cut because a base may be in a Read of the
// request's body, and not look at the context before that returns.
func roundTripWithin(
	base http.RoundTripper, req *http.Request, timeout time.Duration, reading reading,
) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	tooLate := &attemptTimeoutError{after: timeout}
	timer := time.AfterFunc(timeout, func() {
		cancel(tooLate)
		reading.cut()
	})
	returned := false
	defer func() {
		if !returned {
			timer.Stop()
			cancel(nil)
		}
	}()
	body, attempt := &attemptBody{cancel: cancel}, req.WithContext(ctx)
	if hasBody(req) && !sentAtOnce(req) {
		body.watch(attempt)
	}
	resp, err := base.RoundTrip(attempt)
	returned = true
	if !timer.Stop() {
		<-ctx.Done() // the timer's function runs, and is about to cancel
		if context.Cause(ctx) == error(tooLate) {
			tooLate.inner = innerError(resp, err)
			closeResponse(resp) // it came, but its body has been cut
			return nil, tooLate
		}
	}
	if err != nil || resp == nil || resp.Body == nil {
		cancel(nil)
		return resp, err
	}
	body.wrap(resp)
	return resp, nil
}

// innerError returns an *Error that carries the Outcome of a nested Transport, so
// that the outer Transport does not retry after an attempt timeout. It does not wrap
// the nested error, whose cause is the timeout itself.
func innerError(resp *http.Response, err error) error {
	if e, ok := errors.AsType[*Error](err); ok && e.Attempts > 1 {
		return &Error{Outcome: e.Outcome, Err: errStillRetrying}
	}
	if resp != nil {
		if rec, ok := recordOf(resp); ok && rec.outcome.Attempts > 1 {
			return &Error{Outcome: rec.outcome, Err: errStillRetrying}
		}
	}
	return nil
}

var errStillRetrying = errors.New("a nested Transport was still retrying")

// attemptTimeoutError is the error of an attempt that took longer than
// Policy.AttemptTimeout. It implements net.Error.
type attemptTimeoutError struct {
	after time.Duration
	inner error // of a nested Transport; nil: none
}

func (e *attemptTimeoutError) Error() string {
	return fmt.Sprintf("no response header within %v", e.after)
}
func (e *attemptTimeoutError) Unwrap() error        { return e.inner }
func (e *attemptTimeoutError) Timeout() bool        { return true }
func (e *attemptTimeoutError) Temporary() bool      { return true }
func (e *attemptTimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// closeResponse closes the body of a response that nobody will get.
func closeResponse(resp *http.Response) {
	if resp != nil && resp.Body != nil && resp.Body != http.NoBody {
		closing.Soon(resp.Body)
	}
}

// headerTrace notes whether an attempt's header was written. A nil one has noted
// nothing.
type headerTrace struct{ wrote atomic.Bool }

func (t *headerTrace) attach(req *http.Request) *http.Request {
	return req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		WroteHeaders: func() { t.wrote.Store(true) },
	}))
}

func (t *headerTrace) written() bool { return t != nil && t.wrote.Load() }
