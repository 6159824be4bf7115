// Package representation recognizes the parts of a representation, so that a download that broke
// off can be continued (RFC 9110, sections 8.8, 13.1 and 15.3.7). If the RFC leaves a choice, this
// package makes the safe choice: bytes of another version must never reach the caller.
package representation

import (
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/retryhttp/retryhttp/internal/field"
)

// A refusal matches one of these errors, and has a text of its own, which does not quote the server.
var (
	ErrChanged      = errors.New("the file has changed")
	ErrNotResumable = errors.New("the download cannot be resumed")
)

type (
	changed string // the server has another version
	unfit   string // the server does not let the body be continued
)

func (text changed) Error() string { return string(text) }
func (text unfit) Error() string   { return string(text) }
func (changed) Unwrap() error      { return ErrChanged }
func (unfit) Unwrap() error        { return ErrNotResumable }

// recognize returns a Reader of what resp's body is a part of, or why the rest of the body may not
// be requested if the body breaks off.
func recognize(req *http.Request, resp *http.Response) (r Reader, why error) {
	h, status := resp.Header, resp.StatusCode
	part, ok := partOf(resp)
	switch {
	case resp.Uncompressed:
		return r, unfit("the response was decompressed")
	case refusesRanges(h):
		return r, unfit("the server accepts no ranges")
	case !ok, status != http.StatusOK &&
		!(status == http.StatusPartialContent && field.Has(req.Header, "Range") && fits(resp, part)):
		return r, unfit("the response is neither a 200 without a Content-Range, nor the range that was asked for")
	case part.Last < part.First:
		return r, unfit("the response has no Content-Length")
	}
	r.Offset, r.end, r.complete, r.encoding = part.First, part.Last+1, part.Complete, encodingOf(h)
	if len(h["Etag"]) == 0 {
		r.date = strongDate(h)
	} else if r.tag = strongTag(h); r.tag != "" && mayShareTag(h) {
		return r, unfit("the file had just changed, and another change may keep its ETag")
	}
	if r.tag == "" && r.date == "" {
		return r, unfit("the response has neither a strong ETag, nor an old Last-Modified alone")
	}
	return r, nil
}

// Request returns a copy of req that asks for the missing bytes of this representation, and no other.
// It sends two conditions, because a server may evaluate only one of them.
func (r *Reader) Request(req *http.Request) *http.Request {
	conditions := http.Header{
		"Range":    {"bytes=" + strconv.FormatInt(r.Offset, 10) + "-" + strconv.FormatInt(r.end-1, 10)},
		"If-Range": {r.tag + r.date}, // either the tag or the date is empty
	}
	if r.tag != "" {
		conditions["If-Match"] = []string{r.tag}
	} else {
		conditions["If-Unmodified-Since"] = []string{r.date}
	}
	if !field.Has(req.Header, "Accept-Encoding") {
		// Some servers ignore Range if they may compress.
		conditions["Accept-Encoding"] = []string{"identity"}
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

// partOf returns which part of its representation resp has, and whether it says that clearly. A 200 has
// all: if its length is unknown, the part ends before it begins.
func partOf(resp *http.Response) (part field.ByteRange, ok bool) {
	if resp.StatusCode == http.StatusOK {
		all := field.ByteRange{Last: resp.ContentLength - 1, Complete: resp.ContentLength}
		return all, len(resp.Header["Content-Range"]) == 0
	}
	return field.ContentRange(resp.Header)
}

// fits reports whether the body of a 206 is this part alone, and is as long if resp states a length.
func fits(resp *http.Response, part field.ByteRange) bool {
	return field.MediaType(resp.Header) != "multipart/byteranges" &&
		(resp.ContentLength < 0 || resp.ContentLength == part.Length())
}

// refusesRanges reports whether h says that the server serves no ranges.
func refusesRanges(h http.Header) bool {
	for unit := range strings.SplitSeq(strings.Join(h["Accept-Ranges"], ","), ",") {
		if strings.EqualFold(strings.Trim(unit, " \t"), "none") {
			return true
		}
	}
	return false
}

func encodingOf(h http.Header) string { return strings.Join(h["Content-Encoding"], ",") }
