package retryhttp

import (
	"math"
	"net/http"
	"time"

	"github.com/retryhttp/retryhttp/internal/field"
	"github.com/retryhttp/retryhttp/internal/neterr"
	"github.com/retryhttp/retryhttp/internal/outage"
)

// result is an attempt and how it is judged.
type result struct {
	Attempt
	class  Class
	inner  *Outcome       // a nested Transport's Outcome
	broken *http.Response // its body broke off while it was buffered; Response is nil then
	status int            // of the Response, which must not be retained during a wait

	responded bool // there was a Response
	judged    bool // the class is known before judge: of a resumption, or from a peek
	written   bool // the request header is known to have been written
	brokeOff  bool // the body broke off, while it was buffered or after RoundTrip returned

	asked  time.Duration // how long the server asked for a wait, also by a failed hedge; or 0
	until  time.Duration // when this time is over, or the end of the attempt; read from core.now
	closes time.Duration // how long the response closes its key; or 0
}

// never is the end of a wait that is longer than MaxRetryAfter.
const never time.Duration = math.MaxInt64

// answer returns the attempt's response, even if its body broke off.
func (r *result) answer() *http.Response {
	if r.broken != nil {
		return r.broken
	}
	return r.Response
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
	case r.Number == 0, field.SafeMethod(r.Request.Method), r.class == Unprocessed, refuses(r.status):
		return false
	case r.responded:
		return r.status >= 500
	case r.inner != nil && !is[*attemptTimeoutError](r.Err):
		return false
	}
	return resendable(r.Request) || !neterr.NeverSent(r.Err)
}

// stands reports whether the attempt's response is the caller's.
func (r *result) stands() bool { return r.class == Final && r.Response != nil }

// succeeded reports whether the attempt counts as a success of its host. What a nested Transport has
// retried, or has given up, says nothing about the host.
func (r *result) succeeded() bool { return r.stands() && r.inner == nil }

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
