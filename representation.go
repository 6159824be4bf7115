package retryhttp

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// representation identifies what a response body is a part of, and how its other parts are
// recognized (RFC 9110, sections 8.8, 13.1 and 15.3.7). If the RFC leaves a choice, this code
// makes the safe choice: bytes of another version must never reach the caller.
type representation struct {
	tag      string // strong ETag; "" if the date counts
	date     string // Last-Modified
	encoding string // Content-Encoding
	begin    int64  // where the body starts
	end      int64  // where the body ends
	complete int64  // the complete length; -1 if it is unknown
}

// clockSkew is how much older than the response a Last-Modified must be to be a strong validator.
// RFC 9110 does not specify the time. RFC 7232, section 2.2.2, specifies a minute.
const clockSkew = time.Minute

// settled is how much older than the response a Last-Modified must be, so that no later change has
// the same Last-Modified. Both times are whole seconds, and the clocks of one server may differ by
// one tick.
const settled = 2 * time.Second

// representationOf returns the representation that resp's body is a part of. It also reports
// whether the rest of the body may be requested if the body breaks off.
func representationOf(req *http.Request, resp *http.Response) (r representation, ok bool) {
	h := resp.Header
	if req.Method != http.MethodGet && req.Method != "" || hasBody(req) || resp.Uncompressed || refusesRanges(h) {
		return r, false
	}
	switch resp.StatusCode {
	case http.StatusOK:
		if len(h["Content-Range"]) > 0 || resp.ContentLength <= 0 {
			return r, false
		}
		r.end, r.complete = resp.ContentLength, resp.ContentLength
	case http.StatusPartialContent:
		part, valid := contentRange(h)
		if !valid || !has(req.Header, "Range") || hasSeveralRanges(h) || !fits(resp, part) {
			return r, false
		}
		r.begin, r.end, r.complete = part.first, part.last+1, part.complete
	default:
		return r, false
	}
	r.encoding = encodingOf(h)
	if len(h["Etag"]) > 0 {
		r.tag = strongTag(h)
		return r, r.tag != "" && !mayShareTag(h)
	}
	r.date = strongDate(h)
	return r, r.date != ""
}

// request returns a copy of req that asks for the bytes of this representation, and no other,
// from offset on. It sends two conditions, because a server may evaluate only one of them.
func (r *representation) request(req *http.Request, offset int64) *http.Request {
	conditions := http.Header{
		"Range":    {"bytes=" + strconv.FormatInt(offset, 10) + "-" + strconv.FormatInt(r.end-1, 10)},
		"If-Range": {r.tag + r.date}, // either the tag or the date is empty
	}
	if r.tag != "" {
		conditions["If-Match"] = []string{r.tag}
	} else {
		conditions["If-Unmodified-Since"] = []string{r.date}
	}
	if !has(req.Header, "Accept-Encoding") {
		conditions["Accept-Encoding"] = []string{"identity"} // some servers ignore Range if they may compress
	}
	next := req.WithContext(req.Context())
	next.Header = make(http.Header, len(req.Header)+len(conditions))
	maps.Copy(next.Header, req.Header)
	maps.DeleteFunc(next.Header, func(name string, _ []string) bool {
		return len(conditions[http.CanonicalHeaderKey(name)]) > 0
	})
	maps.Copy(next.Header, conditions)
	return next
}

// continuation describes how to read the body of an answer: skip its first bytes, and read until
// a position in the representation.
type continuation struct{ skip, until int64 }

// These are the reasons why an answer does not continue a body. None of them quotes what the
// server sent.
var (
	errOtherTag      = errors.New("the answer has another ETag, or a weak one, or none")
	errOtherDate     = errors.New("the answer has another Last-Modified, or an ETag")
	errOtherEncoding = errors.New("the answer has another Content-Encoding")
	errOtherLength   = errors.New("the answer is of another length")
	errOtherRange    = errors.New("the answer has another range")
	errNoRange       = errors.New("the answer has no valid Content-Range")
	errRangeOf200    = errors.New("the answer has a Content-Range, and status 200")
	errNotRanged     = errors.New("the answer has status 200, and no strong ETag was known")
)

// continuedBy returns how resp continues the representation at offset, or why it does not.
func (r *representation) continuedBy(resp *http.Response, offset int64) (continuation, error) {
	h := resp.Header
	var how continuation
	var err error
	switch resp.StatusCode {
	case http.StatusOK:
		how, err = r.continuedByWhole(resp, offset)
	case http.StatusPartialContent:
		how, err = r.continuedByPart(resp, offset)
	default:
		return continuation{}, statusError(resp.StatusCode)
	}
	switch {
	case err != nil:
		return continuation{}, err
	case resp.Uncompressed || encodingOf(h) != r.encoding:
		return continuation{}, errOtherEncoding
	case r.tag != "" && strongTag(h) != r.tag:
		return continuation{}, errOtherTag
	case r.tag == "" && (len(h["Etag"]) > 0 || onlyLine(h, "Last-Modified") != r.date):
		return continuation{}, errOtherDate
	}
	return how, nil
}

// continuedByWhole is continuedBy for a 200, from a server that ignores Range. A date alone is
// not enough: a server also answers 200 if its representation has changed.
func (r *representation) continuedByWhole(resp *http.Response, offset int64) (continuation, error) {
	switch {
	case len(resp.Header["Content-Range"]) > 0:
		return continuation{}, errRangeOf200
	case r.tag == "":
		return continuation{}, errNotRanged
	case r.complete < 0 || resp.ContentLength != r.complete:
		return continuation{}, errOtherLength
	}
	return continuation{skip: offset, until: r.end}, nil
}

// continuedByPart is continuedBy for a 206. The part may begin before offset (RFC 9110, section
// 15.3.7), because caches send whole blocks. If the part ends early, the body breaks off there.
func (r *representation) continuedByPart(resp *http.Response, offset int64) (continuation, error) {
	part, ok := contentRange(resp.Header)
	switch {
	case !ok || hasSeveralRanges(resp.Header):
		return continuation{}, errNoRange
	case part.complete >= 0 && (part.complete < r.end || r.complete >= 0 && part.complete != r.complete):
		return continuation{}, errOtherLength
	case part.first > offset || part.last < offset || !fits(resp, part):
		return continuation{}, errOtherRange
	}
	return continuation{skip: offset - part.first, until: min(part.last+1, r.end)}, nil
}

// fits reports whether resp's body is as long as its range, if resp states a length.
func fits(resp *http.Response, part byteRange) bool {
	return resp.ContentLength < 0 || resp.ContentLength == part.length()
}

// refusesRanges reports whether h says that the server serves no ranges.
func refusesRanges(h http.Header) bool {
	for _, line := range h["Accept-Ranges"] {
		for unit := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.Trim(unit, " \t"), "none") {
				return true
			}
		}
	}
	return false
}

func hasSeveralRanges(h http.Header) bool { return mediaType(h) == "multipart/byteranges" }

func encodingOf(h http.Header) string { return strings.Join(h["Content-Encoding"], ",") }

// strongTag returns the strong ETag of h, or "". The grammar allows an empty tag, but such a tag
// does not count: a server that does not know its versions sends it.
func strongTag(h http.Header) string {
	tag := onlyLine(h, "Etag")
	if len(tag) <= len(`""`) || tag[0] != '"' || tag[len(tag)-1] != '"' {
		return ""
	}
	for _, c := range []byte(tag[1 : len(tag)-1]) {
		if c <= ' ' || c == '"' || c == 0x7f {
			return ""
		}
	}
	return tag
}

// strongDate returns the Last-Modified of h if it is a strong validator, or "".
func strongDate(h http.Header) string {
	line := onlyLine(h, "Last-Modified")
	if line == "" {
		return "" // early: a date that fails to parse costs an allocation
	}
	modified, ok := httpDate(line)
	date, dated := httpDate(onlyLine(h, "Date"))
	if !ok || !dated || date.Sub(modified) < clockSkew {
		return ""
	}
	return line
}

// mayShareTag reports whether h's tag may also be the tag of a later version. Some servers, such as
// nginx, make a tag of the length and of the second in which the file was changed. In that second,
// another change keeps the tag. A response without a valid Date is measured against the clock.
func mayShareTag(h http.Header) bool {
	line := onlyLine(h, "Last-Modified")
	if line == "" {
		return false
	}
	modified, ok := httpDate(line)
	if !ok {
		return false
	}
	date, dated := httpDate(onlyLine(h, "Date"))
	if !dated {
		date = time.Now()
	}
	return date.Sub(modified) < settled
}

// onlyLine returns the value of a field that has exactly one line, or "".
func onlyLine(h http.Header, name string) string {
	if lines := h[name]; len(lines) == 1 {
		return strings.Trim(lines[0], " \t")
	}
	return ""
}

// has reports whether h has a field with a value other than "". The case of the name does not
// matter.
func has(h http.Header, name string) bool {
	for n, lines := range h {
		if strings.EqualFold(n, name) && slices.ContainsFunc(lines, func(v string) bool { return v != "" }) {
			return true
		}
	}
	return false
}
