package representation

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// These are the reasons of refusals.
var (
	notADownload  = unfit("the response is neither a 200 without a Content-Range, nor the range that was asked for")
	decompressed  = unfit("the response was decompressed")
	noRanges      = unfit("the server accepts no ranges")
	noEnd         = unfit("the response has no Content-Length")
	noValidator   = unfit("the response has neither a strong ETag, nor an old Last-Modified alone")
	justChanged   = unfit("the file had just changed, and another change may keep its ETag")
	otherTag      = changed("the answer has another ETag")
	otherDate     = changed("the answer has another Last-Modified")
	otherLength   = changed("the answer is of another length")
	noTag         = unfit("the answer has no strong ETag")
	noDate        = unfit("the answer has no Last-Modified, or an ETag")
	otherEncoding = unfit("the answer has another Content-Encoding")
	unknownLength = unfit("the answer has status 200, and its length is unknown")
	otherRange    = unfit("the answer has another range")
	noRange       = unfit("the answer has no valid Content-Range")
	rangeOf200    = unfit("the answer has a Content-Range, and status 200")
	notRanged     = unfit("the answer has status 200, and no strong ETag was known")
)

const (
	now     = "Sun, 22 Nov 2026 10:00:00 GMT"
	longAgo = "Sun, 22 Nov 2026 09:00:00 GMT"
	justNow = "Sun, 22 Nov 2026 09:59:59 GMT"
)

// response returns a response whose header alternates names and values. Its ContentLength is the
// Content-Length, or -1.
func response(status int, header ...string) *http.Response {
	resp := &http.Response{StatusCode: status, Header: http.Header{}, ContentLength: -1}
	for i := 0; i < len(header); i += 2 {
		resp.Header.Add(header[i], header[i+1])
	}
	if n, err := strconv.ParseInt(resp.Header.Get("Content-Length"), 10, 64); err == nil {
		resp.ContentLength = n
	}
	return resp
}

func request(header ...string) *http.Request {
	return &http.Request{Header: response(0, header...).Header}
}

func TestRecognize(t *testing.T) {
	plain, ranged := request(), request("Range", "bytes=10-")
	part := []string{"Content-Range", "bytes 10-19/36", "Etag", `"v1"`}
	uncompressed := response(200, "Etag", `"v1"`)
	uncompressed.Uncompressed = true
	for name, c := range map[string]struct {
		req  *http.Request
		resp *http.Response
		want Reader
		why  error
	}{
		"all, by tag": {plain, response(200, "Content-Length", "36", "Etag", `"v1"`),
			Reader{end: 36, complete: 36, tag: `"v1"`}, nil},
		"all, by tag, at no time": {
			plain, response(200, "Content-Length", "36", "Etag", `"v1"`, "Date", time.Time{}.Format(http.TimeFormat)),
			Reader{end: 36, complete: 36, tag: `"v1"`}, nil},
		"all, by date": {plain, response(200, "Content-Length", "36", "Last-Modified", longAgo, "Date", now),
			Reader{end: 36, complete: 36, date: longAgo}, nil},
		"a part, encoded": {ranged, response(206, append(part, "Content-Encoding", "br")...),
			Reader{Offset: 10, end: 20, complete: 36, tag: `"v1"`, encoding: "br"}, nil},

		"decompressed":         {plain, uncompressed, Reader{}, decompressed},
		"no ranges":            {plain, response(200, "Accept-Ranges", "x, None"), Reader{}, noRanges},
		"404":                  {plain, response(404), Reader{}, notADownload},
		"a range of a 200":     {plain, response(200, part...), Reader{}, notADownload},
		"a range of a 203":     {ranged, response(203, part...), Reader{}, notADownload},
		"a range, not asked":   {plain, response(206, part...), Reader{}, notADownload},
		"a range, badly sized": {ranged, response(206, append(part, "Content-Length", "9")...), Reader{}, notADownload},
		"no length":            {plain, response(200, "Etag", `"v1"`), Reader{}, noEnd},
	} {
		got, why := recognize(c.req, c.resp)
		assert.Equal(t, c.why, why, name)
		assert.Equal(t, c.want, got, name)
	}
	for name, c := range map[string]struct {
		header []string
		why    error
	}{
		"nothing":                   {nil, noValidator},
		"a weak tag":                {[]string{"Etag", `W/"v1"`}, noValidator},
		"a tag without an end":      {[]string{"Etag", `"v1`}, noValidator},
		"a tag without a start":     {[]string{"Etag", `v1"`}, noValidator},
		"a tag with a quote":        {[]string{"Etag", `"v"1"`}, noValidator},
		"a tag with a space":        {[]string{"Etag", `"v 1"`}, noValidator},
		"a tag with a control":      {[]string{"Etag", "\"v1\x7f\""}, noValidator},
		"an empty tag":              {[]string{"Etag", `""`}, noValidator},
		"a weak tag, and date":      {[]string{"Etag", `W/"v1"`, "Last-Modified", longAgo, "Date", now}, noValidator},
		"a young date":              {[]string{"Last-Modified", justNow, "Date", now}, noValidator},
		"a date of its own":         {[]string{"Last-Modified", longAgo}, noValidator},
		"a date of the year 0":      {[]string{"Last-Modified", "Sat, 01 Jan 0000 00:00:00 GMT"}, noValidator},
		"a weak tag of this second": {[]string{"Etag", `W/"v1"`, "Last-Modified", justNow, "Date", now}, noValidator},
		"a tag of this second":      {[]string{"Etag", `"v1"`, "Last-Modified", justNow, "Date", now}, justChanged},
	} {
		_, why := recognize(plain, response(200, append(c.header, "Content-Length", "36")...))
		assert.Equal(t, c.why, why, name)
	}
}

// continuation is how the body of an answer is read.
type continuation struct{ skip, until int64 }

// If there are several reasons, the first of them in this order counts.
func TestContinue(t *testing.T) {
	byTag, why := recognize(request(), response(200, "Content-Length", "36", "Etag", `"v1"`))
	require.Nil(t, why)
	byDate, why := recognize(request(), response(200, "Content-Length", "36", "Last-Modified", longAgo, "Date", now))
	require.Nil(t, why)
	ofUnknownLength, why := recognize(request("Range", "bytes=5-"), response(206, "Content-Range", "bytes 5-35/*", "Etag", `"v1"`))
	require.Nil(t, why)
	const rest = "bytes 10-35/36"
	decompressed := response(206, "Content-Range", rest, "Etag", `"v1"`)
	decompressed.Uncompressed = true
	for name, c := range map[string]struct {
		whole Reader
		resp  *http.Response
		want  continuation
		why   error
	}{
		"the rest":    {byTag, response(206, "Content-Range", rest, "Etag", `"v1"`), continuation{0, 36}, nil},
		"whole block": {byTag, response(206, "Content-Range", "bytes 8-15/*", "Etag", `"v1"`), continuation{2, 16}, nil},
		"all":         {byTag, response(200, "Content-Length", "36", "Etag", `"v1"`), continuation{10, 36}, nil},
		"all, of a file of parts": {byTag, response(200, "Content-Length", "36", "Etag", `"v1"`, "Content-Type", "multipart/byteranges"),
			continuation{10, 36}, nil},
		"by date":                       {byDate, response(206, "Content-Range", rest, "Last-Modified", longAgo), continuation{0, 36}, nil},
		"of a length that is known now": {ofUnknownLength, response(206, "Content-Range", rest, "Etag", `"v1"`), continuation{0, 36}, nil},

		"412": {byTag, response(412), continuation{}, changed("the file has changed: the answer was 412 Precondition Failed")},
		"416": {byTag, response(416), continuation{}, changed("the file has changed: the answer was 416 Requested Range Not Satisfiable")},
		"404": {byTag, response(404), continuation{}, unfit("the last response was 404 Not Found")},
		"503": {byTag, response(503), continuation{}, unfit("the last response was 503 Service Unavailable")},

		"another encoding": {byTag, response(206, "Content-Encoding", "br", "Etag", `"v2"`), continuation{}, otherEncoding},
		"decompressed":     {byTag, decompressed, continuation{}, otherEncoding},
		"another tag":      {byTag, response(206, "Content-Range", "bytes 0-1/2", "Etag", `"v2"`), continuation{}, otherTag},
		"another date":     {byDate, response(206, "Content-Range", "bytes 0-1/2", "Last-Modified", now), continuation{}, otherDate},
		"another length":   {byTag, response(206, "Content-Range", "bytes 10-36/37"), continuation{}, otherLength},
		"too short":        {ofUnknownLength, response(206, "Content-Range", "bytes 10-34/35", "Etag", `"v1"`), continuation{}, otherLength},
		"a weak tag":       {byTag, response(206, "Etag", `W/"v1"`), continuation{}, noTag},
		"no date":          {byDate, response(206), continuation{}, noDate},
		"a date and a tag": {byDate, response(206, "Last-Modified", longAgo, "Etag", `"v1"`), continuation{}, noDate},

		"a range of a 200":       {byTag, response(200, "Content-Range", rest, "Etag", `"v1"`), continuation{}, rangeOf200},
		"all, by date":           {byDate, response(200, "Last-Modified", longAgo), continuation{}, notRanged},
		"all, unknown length":    {byTag, response(200, "Etag", `"v1"`), continuation{}, unknownLength},
		"all, no longer unknown": {ofUnknownLength, response(200, "Content-Length", "36", "Etag", `"v1"`), continuation{}, unknownLength},
		"no range":               {byTag, response(206, "Etag", `"v1"`), continuation{}, noRange},
		"a range further on":     {byTag, response(206, "Content-Range", "bytes 11-35/36", "Etag", `"v1"`), continuation{}, otherRange},
		"a range, badly sized":   {byTag, response(206, "Content-Range", rest, "Content-Length", "9", "Etag", `"v1"`), continuation{}, otherRange},
	} {
		r := c.whole
		r.Offset = 10
		assert.Equal(t, c.why, r.Continue(c.resp), name)
		assert.Equal(t, c.want, continuation{r.skip, r.until}, name)
	}
}

// A range that is missing is not the range of the first byte.
func TestContinueAtTheStartNeedsARange(t *testing.T) {
	r, why := recognize(request(), response(200, "Content-Length", "36", "Etag", `"v1"`))
	require.Nil(t, why)
	assert.Equal(t, noRange, r.Continue(response(206, "Etag", `"v1"`)))
}

// The case of a field's name does not matter: the caller's conditions would contradict these.
func TestRequestReplacesTheCallersConditions(t *testing.T) {
	r, why := recognize(request(), response(200, "Content-Length", "36", "Etag", `"v1"`))
	require.Nil(t, why)
	req := &http.Request{Header: http.Header{"if-range": {"x"}, "Range": {"bytes=0-"}, "accept-encoding": {"br"}, "X": {"y"}}}
	before := req.Header.Clone()
	r.Offset = 10
	assert.Equal(t, http.Header{
		"Range": {"bytes=10-35"}, "If-Range": {`"v1"`}, "If-Match": {`"v1"`}, "accept-encoding": {"br"}, "X": {"y"},
	}, r.Request(req).Header)
	assert.Equal(t, before, req.Header)
}
