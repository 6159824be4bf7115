package representation

import (
	"net/http"

	"github.com/retryhttp/retryhttp/internal/field"
)

// Continuation describes how to read the body of an answer: skip its first bytes, and read until
// a position in the representation.
type Continuation struct{ Skip, Until int64 }

// ContinuedBy returns how resp, the answer to a Request from offset on, continues the
// representation, or why it does not.
func (r *Representation) ContinuedBy(resp *http.Response, offset int64) (Continuation, error) {
	status := resp.StatusCode
	switch {
	case status == http.StatusPreconditionFailed, status == http.StatusRequestedRangeNotSatisfiable:
		return Continuation{}, changed(ErrChanged.Error() + ": the answer was " + field.Status(status))
	case status != http.StatusOK && status != http.StatusPartialContent:
		return Continuation{}, unfit("the last response was " + field.Status(status))
	case resp.Uncompressed || encodingOf(resp.Header) != r.encoding:
		// An encoding has a validator and a length of its own.
		return Continuation{}, unfit("the answer has another Content-Encoding")
	}
	if why := r.validate(resp); why != nil {
		return Continuation{}, why
	}
	if status == http.StatusOK {
		return r.continuedByWhole(resp, offset)
	}
	return r.continuedByPart(resp, offset)
}

// validate returns why resp is not known to have this version. Proof of another version comes
// before a lack of proof.
func (r *Representation) validate(resp *http.Response) error {
	h := resp.Header
	tag, date := strongTag(h), field.OnlyLine(h, "Last-Modified")
	switch {
	case r.tag != "" && tag != "" && tag != r.tag:
		return changed("the answer has another ETag")
	case r.tag == "" && date != "" && date != r.date:
		return changed("the answer has another Last-Modified")
	case r.differsInLength(resp):
		return changed("the answer is of another length")
	case r.tag != "" && tag == "":
		return unfit("the answer has no strong ETag")
	case r.tag == "" && (date == "" || len(h["Etag"]) > 0):
		return unfit("the answer has no Last-Modified, or an ETag")
	}
	return nil
}

// differsInLength reports whether resp states a complete length that is not this one's.
func (r *Representation) differsInLength(resp *http.Response) bool {
	part, ok := field.ContentRange(resp.Header)
	complete := part.Complete
	if resp.StatusCode == http.StatusOK {
		complete, ok = resp.ContentLength, len(resp.Header["Content-Range"]) == 0
	}
	return ok && complete >= 0 && (complete < r.End || r.complete >= 0 && complete != r.complete)
}

// continuedByWhole is ContinuedBy for a 200, from a server that ignores Range. A date alone is
// not enough: a server also answers 200 if its representation has changed.
func (r *Representation) continuedByWhole(resp *http.Response, offset int64) (Continuation, error) {
	switch {
	case len(resp.Header["Content-Range"]) > 0:
		return Continuation{}, unfit("the answer has a Content-Range, and status 200")
	case r.tag == "":
		return Continuation{}, unfit("the answer has status 200, and no strong ETag was known")
	case r.complete < 0 || resp.ContentLength < 0:
		return Continuation{}, unfit("the answer has status 200, and its length is unknown")
	}
	return Continuation{Skip: offset, Until: r.End}, nil
}

// continuedByPart is ContinuedBy for a 206. The part may begin before offset (RFC 9110, section
// 15.3.7), because caches send whole blocks. If the part ends early, the body breaks off there.
func (r *Representation) continuedByPart(resp *http.Response, offset int64) (Continuation, error) {
	part, ok := field.ContentRange(resp.Header)
	switch {
	case !ok || hasSeveralRanges(resp.Header):
		return Continuation{}, unfit("the answer has no valid Content-Range")
	case part.First > offset || part.Last < offset || !fits(resp, part):
		return Continuation{}, unfit("the answer has another range")
	}
	return Continuation{Skip: offset - part.First, Until: min(part.Last+1, r.End)}, nil
}
