package representation

import (
	"net/http"
	"strings"
	"time"

	"github.com/retryhttp/retryhttp/internal/field"
)

// clockSkew is how much older than the response a Last-Modified must be to be a strong validator.
// RFC 9110 does not specify the time. RFC 7232, section 2.2.2, specifies a minute.
const clockSkew = time.Minute

// settled is how much older than the response a Last-Modified must be, so that no later change has
// the same Last-Modified. Both times are whole seconds, and the clocks of one server may differ by
// one tick.
const settled = 2 * time.Second

// strongTag returns the strong ETag of h, or "". The grammar allows an empty tag, but such a tag
// does not count: a server that does not know its versions sends it.
func strongTag(h http.Header) string {
	tag := field.OnlyLine(h, "Etag")
	forbidden := func(c rune) bool { return c <= ' ' || c == '"' || c == 0x7f }
	if len(tag) <= len(`""`) || tag[0] != '"' || tag[len(tag)-1] != '"' ||
		strings.ContainsFunc(tag[1:len(tag)-1], forbidden) {
		return ""
	}
	return tag
}

// strongDate returns the Last-Modified of h if it is a strong validator, or "".
func strongDate(h http.Header) string {
	line := field.OnlyLine(h, "Last-Modified")
	modified, ok := field.HTTPDate(line)
	date, dated := field.HTTPDate(field.OnlyLine(h, "Date"))
	if !ok || !dated || date.Sub(modified) < clockSkew {
		return ""
	}
	return line
}

// mayShareTag reports whether h's tag may also be the tag of a later version. Some servers, such as
// nginx, make a tag of the length and of the second in which the file was changed. In that second,
// another change keeps the tag. A response without a valid Date is measured against the clock.
func mayShareTag(h http.Header) bool {
	modified, ok := field.HTTPDate(field.OnlyLine(h, "Last-Modified"))
	if !ok {
		return false
	}
	date, dated := field.HTTPDate(field.OnlyLine(h, "Date"))
	if !dated {
		date = time.Now()
	}
	return date.Sub(modified) < settled
}
