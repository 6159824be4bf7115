package retryhttp

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/retryhttp/retryhttp/internal/neterr"
	"github.com/retryhttp/retryhttp/internal/replay"
)

// Class is a fact about one attempt. An unknown value counts as Final. Other values may be added.
type Class int

const (
	Final       Class = iota // the result stands: a success, or a failure that a retry cannot mend
	Retryable                // another attempt may succeed
	Unprocessed              // like Retryable, and the server provably did not process it
	Undecided                // with [Policy.PeekBytes]: await one more event; elsewhere Final
)

// String returns "final", "retryable", "unprocessed" or "undecided".
func (c Class) String() string {
	if names := [...]string{"final", "retryable", "unprocessed", "undecided"}; 0 <= c && int(c) < len(names) {
		return names[c]
	}
	return "Class(" + strconv.Itoa(int(c)) + ")"
}

// Classify is the default for [Policy.Classify]. Call it from your own for all other cases.
// Status 408 and 5xx are Retryable. A 429 is Unprocessed, because it is a refusal. Any other status is
// Final.
//
// An error is Final if a retry would fail the same way:
//   - the request's context has ended, its Cancel was closed, or the error was marked by [Permanent];
//   - one side refused the other in the TLS handshake, the host does not exist, or the request is invalid;
//   - the answer came without TLS, or in another version of HTTP;
//   - the request's body returned an error, and there is no GetBody, or the error is an *http.MaxBytesError.
//
// An error is Unprocessed if it proves that no byte was written, or that the server refused the
// stream. Any other error is Retryable.
func Classify(a Attempt) Class {
	switch {
	case a.Err != nil:
		return classifyError(a.Request, a.Err)
	case a.Response != nil:
		return classifyStatus(a.Response.StatusCode)
	}
	return Final
}

func classifyStatus(status int) Class {
	switch {
	case status == http.StatusTooManyRequests:
		return Unprocessed // a refusal
	case status == http.StatusRequestTimeout, status >= 500 && status <= 599:
		return Retryable
	}
	return Final
}

// refuses reports whether status means that the server is healthy, and has not begun to process
// the request. Either the request took too long to arrive, or there were too many requests.
func refuses(status int) bool {
	return status == http.StatusRequestTimeout || status == http.StatusTooManyRequests
}

func classifyError(req *http.Request, err error) Class {
	switch {
	case req != nil && ended(req):
		return Final // the caller no longer waits
	case is[*permanentError](err):
		return Final
	case neterr.CanceledBelow(err):
		return Final // the caller no longer waits, and has said so in a way of its own
	case is[*http.MaxBytesError](err):
		return Final // the body is just as long in a retry
	case is[*replay.ReadError](err):
		return Final // the body cannot be read, and there is no GetBody to make another body
	case is[*replay.BodyError](err):
		return Retryable // GetBody may make a body that can be read
	case neterr.Untrusted(err), neterr.WrongProtocol(err), neterr.InvalidRequest(err), neterr.HostNotFound(err):
		return Final
	case neterr.StreamRefused(err):
		return Unprocessed
	case neterr.NeverSent(err) && !resendable(req):
		return Unprocessed
	}
	return Retryable // conservatively: the server may have seen it
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// Permanent marks err as Final, for a RoundTripper below a Transport, such as a breaker or a
// token source. It unwraps to err, with its text. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// ended reports whether req's caller has stopped waiting. A deadline counts as soon as it has
// passed, even if the context has not noticed. http.Client.Timeout closes Request.Cancel, which
// ends an attempt, and the context notices only afterwards.
func ended(req *http.Request) bool {
	if req.Context().Err() != nil || deadlinePassed(req.Context()) {
		return true
	}
	//lint:ignore SA1019 some still use it, and http.Client.Timeout does
	cancel := req.Cancel
	select {
	case <-cancel:
		return true
	default:
		return false
	}
}

func deadlinePassed(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}
