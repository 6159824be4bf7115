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
	"github.com/retryhttp/retryhttp/internal/neterr"
)

// Attempt describes one attempt and how it went. It must not be changed.
type Attempt struct {
	Number   int            // 1 for the first; 0 in OnDone if the context had ended before it
	Request  *http.Request  // as it was sent, but with the caller's context
	Response *http.Response // nil if Err is not; only OnRetry may read from its body
	Err      error          // nil if Response is not
	Elapsed  time.Duration  // until the response header, the end of a buffered body, or the error
	Wait     time.Duration  // before the next attempt; 0 in Classify
	Body     []byte         // the whole response body, if [Policy.BufferBytes] had it read; otherwise nil
	Hedge    bool           // sent beside another attempt, by [Policy.Hedge]
	Offset   int64          // where in the whole file the body broke off, if [Policy.Resume] continues it; otherwise 0
}

// AttemptNumber returns the number of the attempt that ctx belongs to, for RoundTrippers
// below a Transport. It is 1 for any other context.
func AttemptNumber(ctx context.Context) int {
	if n, ok := ctx.Value(numberKey{}).(*numbered); ok {
		return n.number
	}
	return 1
}

// AttemptHedge reports whether ctx belongs to a hedge, for RoundTrippers below a Transport.
func AttemptHedge(ctx context.Context) bool {
	return ctx.Value(hedgeKey{}) != nil
}

type hedgeKey struct{}

// numbered is both the context of an attempt and the copy of the request that carries it: one
// object instead of two. A first attempt needs no such object.
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

// copyForAttempt returns a copy of req for the attempt with the given number. The base may use
// its request until the response's body is closed. After an error, the base may use the request
// without a time limit.
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

// roundTrip sends req through base within p's limits, and buffers the response's body if p
// requires it. It returns either a response or an error, even if base breaks that rule. It
// returns both if the body broke off while it was buffered. body is the reading of the
// request's body. b is nil unless another attempt may end this attempt.
func roundTrip(base http.RoundTripper, req *http.Request, p *Policy, body reading, b *bounds) (*http.Response, error) {
	if b == nil && (p.AttemptTimeout > 0 || p.StallTimeout > 0) {
		b = newBounds(req.Context(), body)
	}
	if b != nil {
		return b.roundTrip(base, req, p)
	}
	resp, err := base.RoundTrip(req)
	if err != nil || resp == nil {
		return nil, failure(resp, err)
	}
	if p.BufferBytes > 0 {
		resp, _, err = buffer(req, resp, p.BufferBytes)
	}
	return resp, err
}

// failure returns the error for a base that returned anything other than a response alone.
func failure(resp *http.Response, err error) error {
	if err == nil {
		return errNoResponse
	}
	closing.Response(resp)
	return neterr.Named(err)
}

// innerError returns an *Error that carries the Outcome of a nested Transport, so
// that the outer Transport does not retry after an attempt timeout. It does not wrap
// the nested error, whose cause is the timeout itself.
func innerError(resp *http.Response, err error) *Error {
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
	body  bool   // the header arrived in time
	inner *Error // the Outcome of a nested Transport that has made several attempts, or nil
}

// cut returns what is left of an attempt after the timeout: a complete body, the beginning of a
// body, or nothing. A body without a length may be incomplete even if it ends cleanly, because
// the timeout itself may be the cause of the end. below reports that a body broke off in a nested
// Transport.
func (e *attemptTimeoutError) cut(resp *http.Response, read *buffered, err error, below bool) (*http.Response, error) {
	if read != nil && err == nil && read.complete {
		return resp, nil
	}
	// This is a copy, because the base may be reading e, the cause of the attempt's context.
	ended := &attemptTimeoutError{after: e.after, body: e.body || below, inner: innerError(resp, err)}
	if read != nil {
		read.breakOff(ended)
		return resp, ended
	}
	closing.Response(resp)
	return nil, ended
}

func (e *attemptTimeoutError) Error() string {
	missing := "response header"
	switch {
	case e.body:
		missing = "whole response body"
	case e.inner != nil:
		missing = "response" // headers may have come, of responses that were retried
	}
	text := fmt.Sprintf("no %s within %v", missing, e.after)
	if e.inner != nil {
		text += fmt.Sprintf(", in %d attempts of a nested Transport", e.inner.Attempts)
	}
	return text
}

func (e *attemptTimeoutError) Unwrap() error {
	if e.inner == nil {
		return nil
	}
	return e.inner
}

func (e *attemptTimeoutError) Timeout() bool        { return true }
func (e *attemptTimeoutError) Temporary() bool      { return true }
func (e *attemptTimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// headerTrace records whether an attempt's header was written. A nil headerTrace has recorded
// nothing.
type headerTrace struct{ wrote atomic.Bool }

func (t *headerTrace) attach(req *http.Request) *http.Request {
	return req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		WroteHeaders: func() { t.wrote.Store(true) },
	}))
}

func (t *headerTrace) written() bool { return t != nil && t.wrote.Load() }
