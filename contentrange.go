package retryhttp

import (
	"net/http"
	"strings"
)

// byteRange is a Content-Range (RFC 9110, section 14.4). The positions first and last are both
// included in the range. complete is the length of the representation, or -1 if it is unknown.
type byteRange struct{ first, last, complete int64 }

// contentRange returns the range in h, and whether h has exactly one range, in bytes. A number
// that overflows is invalid: it must not be mistaken for another number.
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

// length returns the number of bytes in the range.
func (r byteRange) length() int64 { return r.last - r.first + 1 }

// position parses 1*DIGIT below 2^62, so that the sum of two positions does not overflow.
func position(v string) (int64, bool) {
	n, ok := digits(v)
	return n, ok && n < 1<<62
}
