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
	r = ByteRange{position(first), position(last), position(complete)}
	if !strings.EqualFold(unit, "bytes") || r.First < 0 || r.Last < r.First || complete != "*" && r.Complete <= r.Last {
		return ByteRange{}, false
	}
	return r, true
}

// Length returns the number of bytes in the range.
func (r ByteRange) Length() int64 { return r.Last - r.First + 1 }

// position parses 1*DIGIT below 2^62, so that the sum of two positions does not overflow, or returns -1.
func position(v string) int64 {
	if n, ok := Digits(v); ok && n < 1<<62 {
		return n
	}
	return -1
}
