package retryhttp

import (
	"net/http"
	"time"

	"github.com/retryhttp/retryhttp/internal/neterr"
	"github.com/retryhttp/retryhttp/internal/outage"
)

// result is an attempt and how it is judged.
type result struct {
	Attempt
	class  Class
	judged bool           // Classify has answered while the attempt peeked
	inner  *Outcome       // a nested Transport's Outcome
	broken *http.Response // its body broke off while it was buffered; Response is nil then

	// These two fields outlive the Response, which must not be retained during a wait.
	responded bool
	status    int

	written  bool          // the request header is known to have been written
	brokeOff bool          // the body broke off, while it was buffered or after RoundTrip returned
	asked    time.Duration // also by a hedge that has failed; 0 or less: for no time
	mayClose bool          // the response may close its key
}

// answer returns the attempt's response, even if its body broke off.
func (r *result) answer() *http.Response {
	if r.broken != nil {
		return r.broken
	}
	return r.Response
}

// hear records how long the server asks the client to wait. Several decisions need it, and read is
// called once: a hostile header takes time to read, and the caller's own function may count. Most
// successes ask for nothing, and cost two lookups in the header.
func (r *result) hear(read func(Attempt) (time.Duration, bool)) {
	resp := r.answer()
	if resp == nil {
		return
	}
	r.mayClose = mayClose(resp)
	if r.class == Final && !r.mayClose {
		return
	}
	a := r.Attempt
	a.Response = resp
	if asked, ok := read(a); ok {
		r.asked = asked
	}
}

// askedFor returns how long the server asked the client to wait, or 0 if it did not ask. With a
// negative maxRetryAfter, nobody listens.
func (r *result) askedFor(maxRetryAfter time.Duration) time.Duration {
	if maxRetryAfter < 0 {
		return 0
	}
	return max(r.asked, 0)
}

// unprocessed reports whether the server provably did not process the attempt. If so, a
// request that is not idempotent may be sent again.
//
// After the header was written, an error proves nothing. A connection inside another
// connection may report a failed dial from any of its reads. A refused stream and a response
// are proof, because they come from the server itself.
func (r *result) unprocessed() bool {
	return r.class == Unprocessed && (r.Err == nil || !r.written || neterr.StreamRefused(r.Err))
}

// mayHaveTakenEffect reports whether the server may have carried out the request although the
// attempt failed. A nested Transport that has given up knows this itself.
func (r *result) mayHaveTakenEffect() bool {
	switch {
	case r.Number == 0, safeMethod(r.Request.Method), r.class == Unprocessed, refuses(r.status):
		return false
	case r.responded:
		return r.status >= 500
	case r.inner != nil && !is[*attemptTimeoutError](r.Err):
		return false
	}
	return resendable(r.Request) || !neterr.NeverSent(r.Err)
}

// succeeded reports whether the attempt counts as a success of its host.
func (r *result) succeeded() bool {
	return r.class == Final && r.Response != nil && r.inner == nil
}

// verdict returns what the attempt says about its host. A response below 500 is Retryable if a
// Classify polls until a result is ready, which says nothing about the host.
func (r *result) verdict(req *http.Request) outage.Verdict {
	switch {
	case r.succeeded():
		return outage.Up
	case r.inner != nil, r.class == Final, ended(req):
		return outage.Nothing
	}
	resp := r.answer() // Classify may have made a 503 of a 200 with an error in its body
	if resp != nil && (refuses(resp.StatusCode) || resp.StatusCode < 500 && r.broken == nil) {
		return outage.Nothing
	}
	return outage.Down
}

// closesByStatus reports whether a Retry-After on a response with this status closes its key.
func closesByStatus(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// mayClose reports whether resp may close its key.
func mayClose(resp *http.Response) bool {
	return closesByStatus(resp.StatusCode) || len(resp.Header["Ratelimit"]) > 0 || len(resp.Header["X-Ratelimit-Remaining"]) > 0
}

// closes returns how long the response closes its key, or 0.
func (r *result) closes(maxRetryAfter time.Duration) time.Duration {
	if !r.mayClose || maxRetryAfter < 0 {
		return 0
	}
	resp := r.answer()
	if closesByStatus(resp.StatusCode) && r.asked > 0 {
		return min(r.asked, maxRetryAfter)
	}
	switch reset, ok := exhausted(resp.Header); {
	case !ok:
		return 0
	case r.asked > 0:
		return min(r.asked, maxRetryAfter)
	case reset > maxRetryAfter:
		return 0 // a quota of a day may be of one kind of request only
	default:
		return reset
	}
}
