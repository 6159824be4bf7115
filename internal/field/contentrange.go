package field

import (
	"net/http"
	"strings"
)

// ByteRange is a Content-Range (RFC 9110, section 14.4). The positions First and Last are both
// included in the range. Complete is the length of the representation, or -1 if it is unknown.
type ByteRange struct{ First, Last, Complete int64 }

// ContentRange returns the range in h, and whether h has exactly one range, in bytes. A number
// that overflows is invalid: it must not be mistaken for another number.
func ContentRange(h http.Header) (r ByteRange, ok bool) {
	unit, value, _ := strings.Cut(OnlyLine(h, "Content-Range"), " ")
	span, complete, _ := strings.Cut(value, "/")
	first, last, _ := strings.Cut(span, "-")
	var validFirst, validLast bool
	r.First, validFirst = position(first)
	r.Last, validLast = position(last)
	if !strings.EqualFold(unit, "bytes") || !validFirst || !validLast || r.Last < r.First {
		return ByteRange{}, false
	}
	if complete == "*" {
		r.Complete = -1
		return r, true
	}
	if r.Complete, ok = position(complete); !ok || r.Complete <= r.Last {
		return ByteRange{}, false
	}
	return r, true
}

// Length returns the number of bytes in the range.
func (r ByteRange) Length() int64 { return r.Last - r.First + 1 }

// position parses 1*DIGIT below 2^62, so that the sum of two positions does not overflow.
func position(v string) (int64, bool) {
	n, ok := Digits(v)
	return n, ok && n < 1<<62
}
