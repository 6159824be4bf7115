package retryhttp

import (
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/retryhttp/retryhttp/internal/durations"
	"github.com/retryhttp/retryhttp/internal/field"
)

// RetryAfter returns the delay that h validly requests. The delay is 0 if its moment has passed.
// It reads Retry-After-Ms, X-Ms-Retry-After-Ms, X-Amz-Retry-After (all in milliseconds) and
// Retry-After (RFC 9110, section 10.2.3): the first valid one counts, and the longest of its first
// 8 lines. Numbers are digits, with or without a fraction as in "1.5", and saturate. A date is
// compared with a valid Date if there is no Age, or else with the clock.
func RetryAfter(h http.Header) (time.Duration, bool) {
	for _, name := range [...]string{"Retry-After-Ms", "X-Ms-Retry-After-Ms", "X-Amz-Retry-After"} {
		if d, ok := longest(h[name], func(v string) (time.Duration, bool) { return delay(v, "ms", 6) }); ok {
			return d, true
		}
	}
	return longest(h["Retry-After"], func(v string) (time.Duration, bool) {
		if d, ok := delay(v, "s", 9); ok {
			return d, true
		}
		at, ok := field.HTTPDate(v)
		if !ok {
			return 0, false
		}
		return max(at.Sub(field.ServerNow(h)), 0), true
	})
}

// headersRetryAfter is the default for Policy.RetryAfter.
func headersRetryAfter(a Attempt) (time.Duration, bool) {
	return RetryAfter(a.Response.Header)
}

// longest returns the greatest valid value among a field's lines. RFC 9110 allows only one line,
// and does not say what several lines mean. The longest delay never brings a client back too
// soon.
func longest(lines []string, parse func(string) (time.Duration, bool)) (longest time.Duration, found bool) {
	for _, line := range field.FirstLines(lines) {
		if d, ok := parse(strings.Trim(line, " \t")); ok {
			longest, found = max(longest, d), true
		}
	}
	return longest, found
}

// delay reads 1*DIGIT ["." 1*DIGIT] as a number of units, of which so many places of a fraction are
// nanoseconds. RFC 9110 allows no fraction, but some servers send one. Less than a nanosecond counts as a
// nanosecond, since a client must not return too soon.
func delay(v, unit string, places int) (time.Duration, bool) {
	whole, fraction, split := strings.Cut(v, ".")
	if !field.IsDigits(whole) || split && !field.IsDigits(fraction) {
		return 0, false
	}
	fraction = strings.TrimRight(fraction, "0")
	exact := fraction[:min(len(fraction), places)]
	d, err := time.ParseDuration(whole + "." + exact + unit)
	switch {
	case err != nil: // it is out of range
		return math.MaxInt64, true
	case exact != fraction:
		return durations.Add(d, 1), true
	}
	return d, true
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
	if len(h["Age"]) > 0 {
		return 0, 0, false
	}
	if r, t, ok := field.TightestLimit(strings.Join(field.FirstLines(h["Ratelimit"]), ",")); ok {
		return r, durations.Times(t, time.Second), true
	}
	if remaining, ok = least(h["X-Ratelimit-Remaining"]); !ok {
		return 0, 0, false
	}
	if lines := h["X-Ratelimit-Reset"]; len(lines) > 0 {
		if reset, ok = latestReset(lines, h); !ok {
			return 0, 0, false
		}
	}
	return remaining, reset, true
}

// exhausted returns the reset of a limit of which nothing remains. RateLimit alone would be
// enough. But some servers report limits on every response, and most report that something
// remains. exhausted detects this case in less than a microsecond.
func exhausted(h http.Header) (reset time.Duration, ok bool) {
	n, valid := least(h["X-Ratelimit-Remaining"])
	if (!valid || n > 0) && !slices.ContainsFunc(field.FirstLines(h["Ratelimit"]), mayHaveNone) {
		return 0, false
	}
	remaining, reset, ok := RateLimit(h)
	return reset, ok && remaining == 0
}

// mayHaveNone reports whether a line of RateLimit may hold an r of 0. A zero can also be written
// as 00 or -0.
func mayHaveNone(line string) bool {
	return strings.Contains(line, "r=0") || strings.Contains(line, "r=-0")
}

// least returns the smallest valid number among a field's lines.
func least(lines []string) (least int64, found bool) {
	for _, line := range field.FirstLines(lines) {
		if n, ok := field.Digits(strings.Trim(line, " \t")); ok && (!found || n < least) {
			least, found = n, true
		}
	}
	return least, found
}

// latestReset returns the latest reset among the lines of X-RateLimit-Reset. No standard defines
// what the number means, but its size reveals the meaning. A delay of 5*10^8 seconds would be 16
// years, and as a Unix time it is 1985: before the year 2000, in which the clock of a
// testing/synctest bubble begins. 10^12 seconds after 1970 is the year 33658.
func latestReset(lines []string, h http.Header) (time.Duration, bool) {
	return longest(lines, func(v string) (time.Duration, bool) {
		n, ok := field.Digits(v) // n is 0 if v is invalid
		if n < 5e8 {
			return durations.Times(n, time.Second), ok
		}
		at := time.UnixMilli(n)
		if n < 1e12 {
			at = time.Unix(n, 0)
		}
		return max(at.Sub(field.ServerNow(h)), 0), true
	})
}
