package retryhttp

import (
	"net/http"
	"strings"
	"time"

	"github.com/retryhttp/retryhttp/internal/durations"
	"github.com/retryhttp/retryhttp/internal/field"
)

// RetryAfter returns the delay that h validly requests. The delay is 0 if its moment has passed.
// It reads Retry-After-Ms, X-Ms-Retry-After-Ms, X-Amz-Retry-After (all in milliseconds) and
// Retry-After (RFC 9110, section 10.2.3): the first valid one counts, and the longest of its first
// 8 lines. Numbers are digits, with or without a fraction such as ".5", and saturate. A date is
// compared with a valid Date if there is no Age, or else with the clock.
func RetryAfter(h http.Header) (time.Duration, bool) {
	for _, name := range [...]string{"Retry-After-Ms", "X-Ms-Retry-After-Ms", "X-Amz-Retry-After"} {
		if d, ok := longest(h[name], func(v string) (time.Duration, bool) { return delay(v, time.Millisecond) }); ok {
			return d, true
		}
	}
	var now time.Time // read once, and only if there is a date
	return longest(h["Retry-After"], func(v string) (time.Duration, bool) {
		if d, ok := delay(v, time.Second); ok {
			return d, true
		}
		at, ok := field.HTTPDate(v)
		if !ok {
			return 0, false
		}
		if now.IsZero() {
			now = field.ServerNow(h)
		}
		return max(at.Sub(now), 0), true
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

// delay reads 1*DIGIT ["." 1*DIGIT] as a number of units, which must be a power of ten. RFC 9110
// allows no fraction, but some servers send one. Less than a nanosecond counts as a nanosecond,
// since a client must not return too soon.
func delay(v string, unit time.Duration) (time.Duration, bool) {
	whole, fraction, split := strings.Cut(v, ".")
	n, ok := field.Digits(whole)
	if !ok || split && !field.IsDigits(fraction) {
		return 0, false
	}
	return durations.Add(durations.Times(n, unit), fractionOf(unit, fraction)), true
}

// fractionOf returns the part of a unit that the digits after a point stand for.
func fractionOf(unit time.Duration, digits string) (part time.Duration) {
	for i := range len(digits) {
		if unit /= 10; unit == 0 {
			if strings.Trim(digits[i:], "0") != "" {
				part++
			}
			break
		}
		part += time.Duration(digits[i]-'0') * unit
	}
	return part
}

// spread returns how long to wait before a retry. The room must be at least asked + backoff.
//
// Clients that receive the same moment from a Retry-After must not return at the same moment. So
// asked is only a minimum. A client adds its backoff, or a random time of up to half of asked if
// the random time is longer. This spread is proportional to the time in which the server's queue
// of clients built up. Near the deadline, the random time is limited to the time that is left.
// The backoff is not cut.
func spread(asked, backoff, room time.Duration) time.Duration {
	if asked <= 0 {
		return backoff
	}
	return durations.Add(asked, max(backoff, durations.Uniform(0, min(asked/2, room-asked))))
}
