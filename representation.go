package retryhttp

import (
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/retryhttp/retryhttp/internal/field"
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

// These are the reasons why a first response cannot be resumed.
var (
	errNotADownload = notResumable("the response is neither a 200 without a Content-Range, nor the range that was asked for")
	errDecompressed = notResumable("the response was decompressed")
	errRefused      = notResumable("the server accepts no ranges")
	errNoEnd        = notResumable("the response has no Content-Length")
	errNoValidator  = notResumable("the response has neither a strong ETag, nor an old Last-Modified alone")
	errJustChanged  = notResumable("the file had just changed, and another change may keep its ETag")
)

// representationOf returns the representation that resp's body is a part of, or why the rest of
// the body may not be requested if the body breaks off.
func representationOf(req *http.Request, resp *http.Response) (r representation, why error) {
	h := resp.Header
	switch {
	case resp.Uncompressed:
		return r, errDecompressed
	case refusesRanges(h):
		return r, errRefused
	}
	switch resp.StatusCode {
	case http.StatusOK:
		if len(h["Content-Range"]) > 0 {
			return r, errNotADownload
		}
		if resp.ContentLength <= 0 {
			return r, errNoEnd
		}
		r.end, r.complete = resp.ContentLength, resp.ContentLength
	case http.StatusPartialContent:
		part, valid := field.ContentRange(h)
		if !valid || !field.Has(req.Header, "Range") || hasSeveralRanges(h) || !fits(resp, part) {
			return r, errNotADownload
		}
		r.begin, r.end, r.complete = part.First, part.Last+1, part.Complete
	default:
		return r, errNotADownload
	}
	r.encoding = encodingOf(h)
	if len(h["Etag"]) == 0 {
		r.date = strongDate(h)
	} else if r.tag = strongTag(h); r.tag != "" && mayShareTag(h) {
		return r, errJustChanged
	}
	if r.tag == "" && r.date == "" {
		return r, errNoValidator
	}
	return r, nil
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
	if !field.Has(req.Header, "Accept-Encoding") {
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

// These are the reasons why an answer does not continue a body.
var (
	errOtherTag      = changed("the answer has another ETag")
	errOtherDate     = changed("the answer has another Last-Modified")
	errOtherLength   = changed("the answer is of another length")
	errNoTag         = notResumable("the answer has no strong ETag")
	errNoDate        = notResumable("the answer has no Last-Modified, or an ETag")
	errOtherEncoding = notResumable("the answer has another Content-Encoding")
	errUnknownLength = notResumable("the answer has status 200, and its length is unknown")
	errOtherRange    = notResumable("the answer has another range")
	errNoRange       = notResumable("the answer has no valid Content-Range")
	errRangeOf200    = notResumable("the answer has a Content-Range, and status 200")
	errNotRanged     = notResumable("the answer has status 200, and no strong ETag was known")
)

// continuedBy returns how resp continues the representation at offset, or why it does not.
func (r *representation) continuedBy(resp *http.Response, offset int64) (continuation, error) {
	status := resp.StatusCode
	switch {
	case status == http.StatusPreconditionFailed, status == http.StatusRequestedRangeNotSatisfiable:
		return continuation{}, changed(statusError(status).Error())
	case classifyStatus(status) == Retryable:
		return continuation{}, statusError(status) // another attempt may continue the body
	case status != http.StatusOK && status != http.StatusPartialContent:
		return continuation{}, notResumable(statusError(status).Error())
	case resp.Uncompressed || encodingOf(resp.Header) != r.encoding:
		return continuation{}, errOtherEncoding // with a validator and a length of its own
	}
	if err := r.validate(resp); err != nil {
		return continuation{}, err
	}
	if status == http.StatusOK {
		return r.continuedByWhole(resp, offset)
	}
	return r.continuedByPart(resp, offset)
}

// validate returns why resp is not known to have this version. Proof of another version comes
// before a lack of proof.
func (r *representation) validate(resp *http.Response) error {
	h := resp.Header
	tag, date := strongTag(h), field.OnlyLine(h, "Last-Modified")
	switch {
	case r.tag != "" && tag != "" && tag != r.tag:
		return errOtherTag
	case r.tag == "" && date != "" && date != r.date:
		return errOtherDate
	case r.differsInLength(resp):
		return errOtherLength
	case r.tag != "" && tag == "":
		return errNoTag
	case r.tag == "" && (date == "" || len(h["Etag"]) > 0):
		return errNoDate
	}
	return nil
}

// differsInLength reports whether resp states a complete length that is not this one's.
func (r *representation) differsInLength(resp *http.Response) bool {
	part, ok := field.ContentRange(resp.Header)
	complete := part.Complete
	switch {
	case resp.StatusCode == http.StatusOK:
		complete, ok = resp.ContentLength, len(resp.Header["Content-Range"]) == 0
	case hasSeveralRanges(resp.Header):
		return false
	}
	return ok && complete >= 0 && (complete < r.end || r.complete >= 0 && complete != r.complete)
}

// continuedByWhole is continuedBy for a 200, from a server that ignores Range. A date alone is
// not enough: a server also answers 200 if its representation has changed.
func (r *representation) continuedByWhole(resp *http.Response, offset int64) (continuation, error) {
	switch {
	case len(resp.Header["Content-Range"]) > 0:
		return continuation{}, errRangeOf200
	case r.tag == "":
		return continuation{}, errNotRanged
	case r.complete < 0 || resp.ContentLength < 0:
		return continuation{}, errUnknownLength
	}
	return continuation{skip: offset, until: r.end}, nil
}

// continuedByPart is continuedBy for a 206. The part may begin before offset (RFC 9110, section
// 15.3.7), because caches send whole blocks. If the part ends early, the body breaks off there.
func (r *representation) continuedByPart(resp *http.Response, offset int64) (continuation, error) {
	part, ok := field.ContentRange(resp.Header)
	switch {
	case !ok || hasSeveralRanges(resp.Header):
		return continuation{}, errNoRange
	case part.First > offset || part.Last < offset || !fits(resp, part):
		return continuation{}, errOtherRange
	}
	return continuation{skip: offset - part.First, until: min(part.Last+1, r.end)}, nil
}

// fits reports whether resp's body is as long as its range, if resp states a length.
func fits(resp *http.Response, part field.ByteRange) bool {
	return resp.ContentLength < 0 || resp.ContentLength == part.Length()
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

func hasSeveralRanges(h http.Header) bool { return field.MediaType(h) == "multipart/byteranges" }

func encodingOf(h http.Header) string { return strings.Join(h["Content-Encoding"], ",") }

// strongTag returns the strong ETag of h, or "". The grammar allows an empty tag, but such a tag
// does not count: a server that does not know its versions sends it.
func strongTag(h http.Header) string {
	tag := field.OnlyLine(h, "Etag")
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
	line := field.OnlyLine(h, "Last-Modified")
	if line == "" {
		return "" // early: a date that fails to parse costs an allocation
	}
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
	line := field.OnlyLine(h, "Last-Modified")
	if line == "" {
		return false
	}
	modified, ok := field.HTTPDate(line)
	if !ok {
		return false
	}
	date, dated := field.HTTPDate(field.OnlyLine(h, "Date"))
	if !dated {
		date = time.Now()
	}
	return date.Sub(modified) < settled
}
