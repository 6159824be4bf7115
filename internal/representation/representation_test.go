package representation

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// These are the reasons of refusals.
var (
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

func TestOf(t *testing.T) {
	plain, ranged := request(), request("Range", "bytes=10-")
	part := []string{"Content-Range", "bytes 10-19/36", "Etag", `"v1"`}
	uncompressed := response(200, "Etag", `"v1"`)
	uncompressed.Uncompressed = true
	for name, c := range map[string]struct {
		req  *http.Request
		resp *http.Response
		want Representation
		why  error
	}{
		"all, by tag": {plain, response(200, "Content-Length", "36", "Etag", `"v1"`),
			Representation{End: 36, complete: 36, tag: `"v1"`}, nil},
		"all, by date": {plain, response(200, "Content-Length", "36", "Last-Modified", longAgo, "Date", now),
			Representation{End: 36, complete: 36, date: longAgo}, nil},
		"a part, encoded": {ranged, response(206, append(part, "Content-Encoding", "br")...),
			Representation{Begin: 10, End: 20, complete: 36, tag: `"v1"`, encoding: "br"}, nil},

		"decompressed":         {plain, uncompressed, Representation{}, decompressed},
		"no ranges":            {plain, response(200, "Accept-Ranges", "x, None"), Representation{}, noRanges},
		"404":                  {plain, response(404), Representation{}, notADownload},
		"a range of a 200":     {plain, response(200, part...), Representation{}, notADownload},
		"a range, not asked":   {plain, response(206, part...), Representation{}, notADownload},
		"a range, badly sized": {ranged, response(206, append(part, "Content-Length", "9")...), Representation{}, notADownload},
		"no length":            {plain, response(200, "Etag", `"v1"`), Representation{}, noEnd},
	} {
		got, why := Of(c.req, c.resp)
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
		_, why := Of(plain, response(200, append(c.header, "Content-Length", "36")...))
		assert.Equal(t, c.why, why, name)
	}
}

// If there are several reasons, the first of them in this order counts.
func TestContinuedBy(t *testing.T) {
	byTag, why := Of(request(), response(200, "Content-Length", "36", "Etag", `"v1"`))
	require.Nil(t, why)
	byDate, why := Of(request(), response(200, "Content-Length", "36", "Last-Modified", longAgo, "Date", now))
	require.Nil(t, why)
	ofUnknownLength, why := Of(request("Range", "bytes=5-"), response(206, "Content-Range", "bytes 5-35/*", "Etag", `"v1"`))
	require.Nil(t, why)
	const rest = "bytes 10-35/36"
	decompressed := response(206, "Content-Range", rest, "Etag", `"v1"`)
	decompressed.Uncompressed = true
	for name, c := range map[string]struct {
		whole Representation
		resp  *http.Response
		want  Continuation
		why   error
	}{
		"the rest":                      {byTag, response(206, "Content-Range", rest, "Etag", `"v1"`), Continuation{0, 36}, nil},
		"whole block":                   {byTag, response(206, "Content-Range", "bytes 8-15/*", "Etag", `"v1"`), Continuation{2, 16}, nil},
		"all":                           {byTag, response(200, "Content-Length", "36", "Etag", `"v1"`), Continuation{10, 36}, nil},
		"by date":                       {byDate, response(206, "Content-Range", rest, "Last-Modified", longAgo), Continuation{0, 36}, nil},
		"of a length that is known now": {ofUnknownLength, response(206, "Content-Range", rest, "Etag", `"v1"`), Continuation{0, 36}, nil},

		"412": {byTag, response(412), Continuation{}, changed("the file has changed: the answer was 412 Precondition Failed")},
		"416": {byTag, response(416), Continuation{}, changed("the file has changed: the answer was 416 Requested Range Not Satisfiable")},
		"404": {byTag, response(404), Continuation{}, unfit("the last response was 404 Not Found")},
		"503": {byTag, response(503), Continuation{}, unfit("the last response was 503 Service Unavailable")},

		"another encoding": {byTag, response(206, "Content-Encoding", "br", "Etag", `"v2"`), Continuation{}, otherEncoding},
		"decompressed":     {byTag, decompressed, Continuation{}, otherEncoding},
		"another tag":      {byTag, response(206, "Content-Range", "bytes 0-1/2", "Etag", `"v2"`), Continuation{}, otherTag},
		"another date":     {byDate, response(206, "Content-Range", "bytes 0-1/2", "Last-Modified", now), Continuation{}, otherDate},
		"another length":   {byTag, response(206, "Content-Range", "bytes 10-36/37"), Continuation{}, otherLength},
		"too short":        {ofUnknownLength, response(206, "Content-Range", "bytes 10-34/35", "Etag", `"v1"`), Continuation{}, otherLength},
		"a weak tag":       {byTag, response(206, "Etag", `W/"v1"`), Continuation{}, noTag},
		"no date":          {byDate, response(206), Continuation{}, noDate},
		"a date and a tag": {byDate, response(206, "Last-Modified", longAgo, "Etag", `"v1"`), Continuation{}, noDate},

		"a range of a 200":       {byTag, response(200, "Content-Range", rest, "Etag", `"v1"`), Continuation{}, rangeOf200},
		"all, by date":           {byDate, response(200, "Last-Modified", longAgo), Continuation{}, notRanged},
		"all, unknown length":    {byTag, response(200, "Etag", `"v1"`), Continuation{}, unknownLength},
		"all, no longer unknown": {ofUnknownLength, response(200, "Content-Length", "36", "Etag", `"v1"`), Continuation{}, unknownLength},
		"no range":               {byTag, response(206, "Etag", `"v1"`), Continuation{}, noRange},
		"a range further on":     {byTag, response(206, "Content-Range", "bytes 11-35/36", "Etag", `"v1"`), Continuation{}, otherRange},
		"a range, badly sized":   {byTag, response(206, "Content-Range", rest, "Content-Length", "9", "Etag", `"v1"`), Continuation{}, otherRange},
	} {
		got, why := c.whole.ContinuedBy(c.resp, 10)
		assert.Equal(t, c.why, why, name)
		assert.Equal(t, c.want, got, name)
	}
}

// A range that is missing is not the range of the first byte.
func TestContinuedByAtTheStartNeedsARange(t *testing.T) {
	r, why := Of(request(), response(200, "Content-Length", "36", "Etag", `"v1"`))
	require.Nil(t, why)
	_, why = r.ContinuedBy(response(206, "Etag", `"v1"`), 0)
	assert.Equal(t, noRange, why)
}

// The case of a field's name does not matter: the caller's conditions would contradict these.
func TestRequestReplacesTheCallersConditions(t *testing.T) {
	r, why := Of(request(), response(200, "Content-Length", "36", "Etag", `"v1"`))
	require.Nil(t, why)
	req := &http.Request{Header: http.Header{"if-range": {"x"}, "Range": {"bytes=0-"}, "accept-encoding": {"br"}, "X": {"y"}}}
	before := req.Header.Clone()
	assert.Equal(t, http.Header{
		"Range": {"bytes=10-35"}, "If-Range": {`"v1"`}, "If-Match": {`"v1"`}, "accept-encoding": {"br"}, "X": {"y"},
	}, r.Request(req, 10).Header)
	assert.Equal(t, before, req.Header)
}
