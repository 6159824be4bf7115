package retryhttp

import (
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/retryhttp/retryhttp/internal/closing"
	"github.com/retryhttp/retryhttp/internal/representation"
	"github.com/retryhttp/retryhttp/internal/respbody"
)

// These are the reasons why [Policy.Resume] did not continue a body that broke off. The error of
// the Read matches one of them, and the error that broke the body.
//
// ErrChanged means that the server has another version than the one that the caller has begun to
// read. The server answered 412 or 416, or sent another validator or another length. Start the
// download again.
//
// ErrNotResumable means that the server does not let the download be continued. The first response
// did not qualify, because it had no validator, no known length, or was decompressed. Or the answer
// had another status, another encoding, no validator, or a range that does not fit. If the first
// response did not qualify, no attempt was made to continue, and the error of the Read is no *Error.
//
// The error matches neither if the retries ended, such as with [StopAttempts]. It also matches
// neither if the caller rules out resumption, by a POST or by MaxAttempts 1.
var (
	ErrChanged      = errors.New("the file has changed")
	ErrNotResumable = errors.New("the download cannot be resumed")
)

// refusedError is the error that a caller gets for a Refusal.
type refusedError struct{ *representation.Refusal }

func (e refusedError) Error() string {
	switch {
	case e.Status != 0 && e.Changed:
		return ErrChanged.Error() + ": the answer was " + statusText(e.Status)
	case e.Status != 0:
		return statusError(e.Status).Error()
	}
	return e.Text
}

// Unwrap returns ErrChanged or ErrNotResumable.
func (e refusedError) Unwrap() error {
	if e.Changed {
		return ErrChanged
	}
	return ErrNotResumable
}

// unresumable is the body of a response that the server does not let be resumed. If it breaks off,
// its error says why. It is not an *Error: nothing was tried, so a Transport above may retry.
type unresumable struct {
	why    error
	left   int64 // number of bytes that are missing; negative if the length is unknown
	failed error // the error that every further Read returns

	mu     sync.Mutex // guards what Close looks at
	body   io.ReadCloser
	origin origin
	closed bool
}

func (u *unresumable) Read(p []byte) (int, error) {
	if u.failed != nil {
		return 0, u.failed
	}
	n, err := u.body.Read(p)
	u.left -= int64(n)
	if err != nil && u.isBreak(err) {
		err = &brokenError{err, u.why}
		u.failed = err
		u.report(err)
	}
	return n, err
}

// isBreak reports whether the caller still wants bytes, and bytes are missing. From here on, the
// body uses copies of the caller's request: see download.begin.
func (u *unresumable) isBreak(err error) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err == io.EOF || u.left == 0 || u.closed || ended(u.origin.req) || is[*Error](err) {
		return false
	}
	u.origin.own(u.origin.req.Context())
	return true
}

func (u *unresumable) report(err error) {
	o := &u.origin
	o.policy.reportBroken(o.req, &Attempt{Number: o.number, Request: o.sent, Err: err}, Outcome{
		Attempts: o.made,
		Elapsed:  o.core.now() - o.start,
		Waited:   o.waited,
		Held:     o.timeInGates,
		Stop:     StopFinal,
	})
}

func (u *unresumable) Close() error {
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	return u.body.Close()
}

// ClosableWhileRead reports whether the body may be closed while it is read.
func (u *unresumable) ClosableWhileRead() bool { return closing.WhileRead(u.body) }

// wantsResumption reports whether the caller's request, which has no body, and the kind of its
// response, can be a download. Nobody needs the body of a redirect.
func wantsResumption(req *http.Request, resp *http.Response) bool {
	return (req.Method == http.MethodGet || req.Method == "") &&
		resp.StatusCode != http.StatusSwitchingProtocols && !respbody.IsRedirect(resp) && !respbody.IsEmpty(resp.Body)
}
