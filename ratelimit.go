package retryhttp

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/retryhttp/retryhttp/internal/durations"
	"github.com/retryhttp/retryhttp/internal/field"
	"github.com/retryhttp/retryhttp/internal/sfv"
)

// RateLimit reads a rate limit from a response's header. remaining is how many requests are left, and
// reset is the time until there are more. A reset of 0 means that this time is unknown or over. ok is
// false if h has no valid limit, or an Age, which a response from a cache has.
//
// RateLimit reads the field RateLimit (draft-ietf-httpapi-ratelimit-headers-11), of which the limit with
// the least remaining counts. Without this field, it reads X-RateLimit-Remaining and X-RateLimit-Reset. It
// reads at most 8 lines of each.
func RateLimit(h http.Header) (remaining int64, reset time.Duration, ok bool) {
	// Most responses have neither field, and should pay only for these look-ups.
	limits, left := h["Ratelimit"], h["X-Ratelimit-Remaining"]
	if len(limits) == 0 && len(left) == 0 || len(h["Age"]) > 0 {
		return 0, 0, false
	}
	if remaining, reset, ok = tightest(sfv.List(strings.Join(field.FirstLines(limits), ","))); ok {
		return remaining, reset, true
	}
	if remaining, ok = least(left); !ok {
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

// tightest returns the limit with the least remaining. If several limits have equally little,
// tightest returns the limit with the longest reset.
func tightest(limits sfv.List) (remaining int64, reset time.Duration, ok bool) {
	for item, valid := range limits.Items {
		r, _ := item.Param("r")
		t, timed := item.Param("t")
		if !valid || item.Kind != sfv.String || !isCount(r) || timed && !isCount(t) {
			return 0, 0, false
		}
		resets := durations.Times(t.Int, time.Second)
		if !ok || r.Int < remaining || r.Int == remaining && resets > reset {
			remaining, reset, ok = r.Int, resets, true
		}
	}
	return remaining, reset, ok
}

func isCount(v sfv.Value) bool { return v.Kind == sfv.Integer && v.Int >= 0 }

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
// what the number means, but its size reveals the meaning. A delay of 10^9 seconds would be 31
// years. 10^12 seconds after 1970 is the year 33658.
func latestReset(lines []string, h http.Header) (time.Duration, bool) {
	var now time.Time // read once, and only if there is a Unix time
	return longest(lines, func(v string) (time.Duration, bool) {
		n, ok := field.Digits(v) // n is 0 if v is invalid
		if n < 1e9 {
			return durations.Times(n, time.Second), ok
		}
		at := time.UnixMilli(n)
		if n < 1e12 {
			at = time.Unix(n, 0)
		}
		if now.IsZero() {
			now = field.ServerNow(h)
		}
		return max(at.Sub(now), 0), true
	})
}
