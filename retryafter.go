package retryhttp

import (
	"net/http"
	"time"

	"github.com/retryhttp/retryhttp/internal/durations"
	"github.com/retryhttp/retryhttp/internal/field"
)

// RetryAfter returns the delay that h validly requests. The delay is 0 if its moment has passed.
// It reads Retry-After-Ms, X-Ms-Retry-After-Ms, X-Amz-Retry-After (all in milliseconds) and
// Retry-After (RFC 9110, section 10.2.3): the first valid one counts, and the longest of its first
// 8 lines. Numbers are digits, with or without a fraction as in "1.5", and saturate. A date is
// compared with a valid Date if there is no Age, or else with the clock.
func RetryAfter(h http.Header) (time.Duration, bool) { return field.RetryAfter(h) }

// headersRetryAfter is the default for Policy.RetryAfter.
func headersRetryAfter(a Attempt) (time.Duration, bool) {
	return RetryAfter(a.Response.Header)
}

// spread returns how long to wait before a retry. The room must be at least asked + backoff.
//
// Clients that receive the same moment from a Retry-After must not return at the same moment. So
// asked is only a minimum. A client adds its backoff, or a random time of up to half of asked if
// the random time is longer. This spread is proportional to the time in which the server's queue
// of clients built up. Near the deadline, the random time is limited to the time that is left.
// The backoff is not cut.
func spread(asked, backoff, room time.Duration) time.Duration {
	return durations.Add(asked, max(backoff, durations.Uniform(0, min(asked/2, room-asked))))
}

// RateLimit reads a rate limit from a response's header. remaining is how many requests are left, and
// reset is the time until there are more. A reset of 0 means that this time is unknown or over. ok is
// false if h has no valid limit, or an Age, which a response from a cache has.
//
// RateLimit reads the field RateLimit (draft-ietf-httpapi-ratelimit-headers-11), of which the limit with
// the least remaining counts. Without a valid field, it reads X-RateLimit-Remaining and X-RateLimit-Reset. It
// reads at most 8 lines of each, and no RateLimit of more than 16 KiB.
func RateLimit(h http.Header) (remaining int64, reset time.Duration, ok bool) {
	return field.RateLimit(h)
}
