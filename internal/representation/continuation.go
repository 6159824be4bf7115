package representation

import (
	"net/http"

	"github.com/retryhttp/retryhttp/internal/field"
)

// Continue makes the Reader read the body of resp, the answer to a Request, or returns why resp does not
// continue the representation. The part may begin before the offset (RFC 9110, section 15.3.7), because
// caches send whole blocks. If the part ends early, the body breaks off there.
func (r *Reader) Continue(resp *http.Response) error {
	status := resp.StatusCode
	switch {
	case status == http.StatusPreconditionFailed, status == http.StatusRequestedRangeNotSatisfiable:
		return changed(ErrChanged.Error() + ": the answer was " + field.Status(status))
	case status != http.StatusOK && status != http.StatusPartialContent:
		return unfit("the last response was " + field.Status(status))
	case resp.Uncompressed || encodingOf(resp.Header) != r.encoding:
		// An encoding has a validator and a length of its own.
		return unfit("the answer has another Content-Encoding")
	}
	part, ok := partOf(resp)
	if why := r.validate(resp.Header, part, ok); why != nil {
		return why
	}
	switch whole := status == http.StatusOK; { // from a server that ignores Range
	case whole && !ok:
		return unfit("the answer has a Content-Range, and status 200")
	case whole && r.tag == "": // a server also answers 200 if its representation has changed
		return unfit("the answer has status 200, and no strong ETag was known")
	case whole && (r.complete < 0 || part.Complete < 0):
		return unfit("the answer has status 200, and its length is unknown")
	case !ok:
		return unfit("the answer has no valid Content-Range")
	case part.First > r.Offset || part.Last < r.Offset || !whole && !fits(resp, part):
		return unfit("the answer has another range")
	}
	r.skip, r.until, r.Brought = r.Offset-part.First, min(part.Last+1, r.end), 0
	return nil
}

// validate returns why an answer is not known to have this version. Proof of another version comes
// before a lack of proof. The part does not count unless ok is true.
func (r *Reader) validate(h http.Header, part field.ByteRange, ok bool) error {
	tag, date := strongTag(h), field.OnlyLine(h, "Last-Modified")
	switch {
	case r.tag != "" && tag != "" && tag != r.tag:
		return changed("the answer has another ETag")
	case r.tag == "" && date != "" && date != r.date:
		return changed("the answer has another Last-Modified")
	case ok && part.Complete >= 0 && (part.Complete < r.end || r.complete >= 0 && part.Complete != r.complete):
		return changed("the answer is of another length")
	case r.tag != "" && tag == "":
		return unfit("the answer has no strong ETag")
	case r.tag == "" && (date == "" || len(h["Etag"]) > 0):
		return unfit("the answer has no Last-Modified, or an ETag")
	}
	return nil
}
