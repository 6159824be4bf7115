package retryhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// object is what the servers of these tests have.
const object = "0123456789abcdefghijklmnopqrstuvwxyz"

var errLost = errors.New("connection lost")

// piece is a response body that brings text and then err.
type piece struct {
	text   string
	err    error
	closes atomic.Int32
}

func (p *piece) Read(b []byte) (int, error) {
	if p.closes.Load() > 0 {
		return 0, errors.New("read of a closed body")
	}
	if p.text == "" {
		return 0, p.err
	}
	n := copy(b, p.text)
	p.text = p.text[n:]
	return n, nil
}

func (p *piece) Close() error {
	p.closes.Add(1)
	return nil
}

// sends answers with a body that brings text and then err. header alternates names and
// values; a Content-Length becomes the response's.
func sends(code int, text string, err error, header ...string) script.Step {
	return func(req *http.Request) (*http.Response, error) {
		resp := script.Response(req, code, header...)
		resp.Body = &piece{text: text, err: err}
		if length := resp.Header.Get("Content-Length"); length != "" {
			n, err := strconv.ParseInt(length, 10, 64)
			if err != nil {
				return nil, err
			}
			resp.ContentLength = n
		}
		return resp, nil
	}
}

// cutAfter answers with the whole object, of which n bytes come.
func cutAfter(n int, header ...string) script.Step {
	header = append([]string{"Content-Length", strconv.Itoa(len(object)), "Etag", `"v1"`}, header...)
	return sends(200, object[:n], errLost, header...)
}

// rest answers with a 206 of the object from first on.
func rest(first int, header ...string) script.Step {
	return restUntil(first, len(object), io.EOF, header...)
}

// restUntil answers with a 206 from first on, of which the bytes until last come, and then
// err.
func restUntil(first, until int, err error, header ...string) script.Step {
	header = append([]string{
		"Content-Length", strconv.Itoa(len(object) - first),
		"Content-Range", rangeFrom(first),
		"Etag", `"v1"`,
	}, header...)
	return sends(206, object[first:until], err, header...)
}

func rangeFrom(first int) string { return rangeOf(int64(first), int64(len(object))) }

func rangeOf(first, size int64) string { return fmt.Sprintf("bytes %d-%d/%d", first, size-1, size) }

// zeros is a Reader of zeros without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func (z zeros) ReadAt(p []byte, _ int64) (int, error) { return z.Read(p) }

// stalledWriter sends left bytes, and then nothing.
type stalledWriter struct {
	http.ResponseWriter
	left    int
	request context.Context
}

func (w *stalledWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p[:min(len(p), w.left)])
	w.left -= n
	if n < len(p) {
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		<-w.request.Done()
		return n, w.request.Err()
	}
	return n, err
}

// resumes is a Policy that resumes without waiting, as often as it can.
var resumes = retryhttp.Policy{Resume: true, Backoff: retryhttp.Constant(0), Budget: retryhttp.Unlimited{}}

func download(t *testing.T, base http.RoundTripper, p retryhttp.Policy) (string, error) {
	t.Helper()
	return readAll(t, base, p, get(t, t.Context()))
}

func readAll(t *testing.T, base http.RoundTripper, p retryhttp.Policy, req *http.Request) (string, error) {
	t.Helper()
	resp, err := retryhttp.New(base, p).RoundTrip(req)
	require.NoError(t, err)
	got, err := io.ReadAll(resp.Body)
	assert.NoError(t, resp.Body.Close())
	return string(got), err
}

// ranges are the Range headers of the requests that base got.
func ranges(base *script.Transport) (ranges []string) {
	for _, req := range base.Requests() {
		ranges = append(ranges, req.Header.Get("Range"))
	}
	return ranges
}
