package retryhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
)

var errNoResponse = errors.New("the base RoundTripper returned neither a response nor an error")

// roundTrip sends req through base and returns either a response or an error,
// also where base breaks that rule. A positive timeout bounds the time until
// the response header; body is what reads the request's body.
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
func roundTripWithin(base http.RoundTripper, req *http.Request, timeout time.Duration, reading reading) (*http.Response, error) {
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
	if isEmpty(resp.Body) {
		body.end() // nobody needs to close it
	}
	body.ReadCloser, resp.Body = resp.Body, body
	if w, ok := body.ReadCloser.(io.Writer); ok {
		resp.Body = &attemptConn{body, w}
	}
	return resp, nil
}

// innerError returns an error with the Outcome of a Transport underneath that
// has retried in the attempt that was too long for the one above, which must not
// retry as well. It does not wrap what that Transport returned, for whose context
// the timeout was the cause: the two would wrap each other.
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

var errStillRetrying = errors.New("a Transport underneath was still retrying")

// attemptTimeoutError is the error of an attempt that took longer than
// Policy.AttemptTimeout. It implements net.Error.
type attemptTimeoutError struct {
	after time.Duration
	inner error // of a Transport underneath; nil: none
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

// headerTrace notes whether an attempt's header was written. A nil one notes
// nothing.
type headerTrace struct{ wrote atomic.Bool }

func (t *headerTrace) attach(req *http.Request) *http.Request {
	if t == nil {
		return req
	}
	return req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		WroteHeaders: func() { t.wrote.Store(true) },
	}))
}

func (t *headerTrace) written() bool { return t != nil && t.wrote.Load() }
