package retryhttp

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/retryhttp/retryhttp/internal/durations"
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
		at, ok := httpDate(v)
		if !ok {
			return 0, false
		}
		if now.IsZero() {
			now = serverNow(h)
		}
		return max(at.Sub(now), 0), true
	})
}

// longest returns the greatest valid value among a field's lines. RFC 9110 allows only one line,
// and does not say what several lines mean. The longest delay never brings a client back too
// soon.
func longest(lines []string, parse func(string) (time.Duration, bool)) (longest time.Duration, found bool) {
	for _, line := range firstLines(lines) {
		if d, ok := parse(strings.Trim(line, " \t")); ok {
			longest, found = max(longest, d), true
		}
	}
	return longest, found
}

// mostLines is the number of lines that are read of a field which should have only one. A header
// may have hundreds of thousands of lines, and no context interrupts the parsing of a header.
const mostLines = 8

func firstLines(lines []string) []string { return lines[:min(len(lines), mostLines)] }

// delay reads 1*DIGIT ["." 1*DIGIT] as a number of units, which must be a power of ten. RFC 9110
// allows no fraction, but some servers send one. Less than a nanosecond counts as a nanosecond,
// since a client must not return too soon.
func delay(v string, unit time.Duration) (time.Duration, bool) {
	whole, fraction, split := strings.Cut(v, ".")
	n, ok := digits(whole)
	if !ok || split && !isDigits(fraction) {
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

// digits reads 1*DIGIT. strconv alone is too permissive: it accepts a sign, and ParseFloat
// accepts Inf, NaN, hexadecimal numbers and underscores.
func digits(v string) (int64, bool) {
	if !isDigits(v) {
		return 0, false
	}
	n, _ := strconv.ParseInt(v, 10, 64) // saturates if v is out of range; no other error is possible
	return n, true
}

// isDigits reports whether v is 1*DIGIT.
func isDigits(v string) bool { return v != "" && strings.Trim(v, "0123456789") == "" }

// httpDate reads an HTTP-date by its grammar, which is case-sensitive. [http.ParseTime] is more
// permissive: it accepts names in any case, fractions of a second, signs, and any time zone. Like
// http.ParseTime, httpDate does not check that the day of the week is correct. The grammar allows
// a leap second, which counts as the previous second.
func httpDate(v string) (time.Time, bool) {
	if len(v) > len("Wednesday, 31-Dec-99 23:59:59 GMT") {
		return time.Time{}, false // early: a failing Parse copies all of v
	}
	v = strings.Replace(v, "23:59:60", "23:59:59", 1)
	forms := [...]string{
		http.TimeFormat,                  // IMF-fixdate
		"Monday, 02-Jan-06 15:04:05 GMT", // RFC 850
		"Mon Jan _2 15:04:05 2006",       // asctime with a day that is padded with a space
		"Mon Jan 02 15:04:05 2006",       // asctime with a day that is padded with a zero
	}
	for _, form := range forms {
		t, err := time.Parse(form, v)
		if err != nil {
			continue
		}
		day, rest, _ := strings.Cut(v, " ")
		var buf [len("Wednesday, 31-Dec-99 23:59:59 GMT")]byte
		_, exact, _ := bytes.Cut(t.AppendFormat(buf[:0], form), []byte(" "))
		if rest == string(exact) && day == strings.ToUpper(day[:1])+strings.ToLower(day[1:]) {
			return t, true
		}
	}
	return time.Time{}, false
}

// serverNow returns the moment that a date in the response's header is compared with.
func serverNow(h http.Header) time.Time {
	if len(h["Age"]) == 0 {
		if date, ok := httpDate(strings.Trim(h.Get("Date"), " \t")); ok {
			return date
		}
	}
	return time.Now()
}
