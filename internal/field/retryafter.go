package field

import (
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/retryhttp/retryhttp/internal/durations"
)

// RetryAfter returns the delay that h validly requests: the first valid field counts, and the longest of its
// first lines. The delay is 0 if its moment has passed.
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
		at, ok := HTTPDate(v) // at is long ago if v is invalid
		return max(at.Sub(ServerNow(h)), 0), ok
	})
}

// longest returns the greatest valid value among a field's lines. RFC 9110 allows only one line,
// and does not say what several lines mean. The longest delay never brings a client back too
// soon.
func longest(lines []string, parse func(string) (time.Duration, bool)) (longest time.Duration, found bool) {
	for _, line := range FirstLines(lines) {
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
	if !IsDigits(whole) || split && !IsDigits(fraction) {
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
