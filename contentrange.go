package retryhttp

import (
	"net/http"
	"strings"
)

// byteRange is a Content-Range (RFC 9110, section 14.4): the bytes from first to last, both
// included, of complete, which is -1 if it is unknown.
type byteRange struct{ first, last, complete int64 }

// contentRange returns the range that h states, and whether it states exactly one, in
// bytes. A number that overflows is invalid: it must not pass for another one.
func contentRange(h http.Header) (r byteRange, ok bool) {
	lines := h["Content-Range"]
	if len(lines) != 1 {
		return r, false
	}
	unit, value, _ := strings.Cut(strings.Trim(lines[0], " \t"), " ")
	span, complete, _ := strings.Cut(value, "/")
	first, last, _ := strings.Cut(span, "-")
	var validFirst, validLast bool
	r.first, validFirst = position(first)
	r.last, validLast = position(last)
	if !strings.EqualFold(unit, "bytes") || !validFirst || !validLast || r.last < r.first {
		return byteRange{}, false
	}
	if complete == "*" {
		r.complete = -1
		return r, true
	}
	if r.complete, ok = position(complete); !ok || r.complete <= r.last {
		return byteRange{}, false
	}
	return r, true
}

// length is how many bytes the range has.
func (r byteRange) length() int64 { return r.last - r.first + 1 }

// position reads 1*DIGIT below 2^62, so that sums of two do not overflow.
func position(v string) (int64, bool) {
	n, ok := digits(v)
	return n, ok && n < 1<<62
}
