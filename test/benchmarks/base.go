package benchmarks

import (
	"io"
	"net/http"
	"strings"
	"sync"
)

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// succeed is a base in memory. It reads the request's body, as the network
// would, and answers with as little as there can be.
func succeed(req *http.Request) (*http.Response, error) {
	if err := swallow(req); err != nil {
		return nil, err
	}
	return answer(req, http.StatusOK, http.NoBody), nil
}

// failTwice returns a base in memory that answers 503, with a body to drain, to
// two of three attempts. It is not for concurrent use.
func failTwice(body func() io.ReadCloser) http.RoundTripper {
	n := 0
	return roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		if err := swallow(req); err != nil {
			return nil, err
		}
		n++
		if n%3 == 0 {
			return answer(req, http.StatusOK, http.NoBody), nil
		}
		return answer(req, http.StatusServiceUnavailable, body()), nil
	})
}

type shortBody struct{ strings.Reader }

func (*shortBody) Close() error { return nil }

func newShortBody() io.ReadCloser { return &shortBody{*strings.NewReader("try again later")} }

func newNopCloser() io.ReadCloser { return io.NopCloser(strings.NewReader("try again later")) }

var noHeader = http.Header{}

func answer(req *http.Request, status int, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: status, Header: noHeader, Body: body, ContentLength: -1, Request: req}
}

var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// swallow reads and closes the request's body without allocating.
func swallow(req *http.Request) error {
	if req.Body == nil {
		return nil
	}
	defer req.Body.Close()
	return discard(io.Discard, req.Body)
}

// discard copies r to w with a buffer from a pool, even where r or w has a
// quicker way, which not every wrapper shows.
func discard(w io.Writer, r io.Reader) error {
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	_, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, buf[:])
	return err
}
