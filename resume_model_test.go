package retryhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// reply is what a server sends in the model: some version of the object, or a status.
type reply struct {
	status      int
	first, last int // of its Content-Range, and of its bytes
	complete    int // of its Content-Range; 0 is *
	cut         int // how many of its bytes come
	end         error
	tag         string
	encoding    string
	length      bool // it has a Content-Length
	ranges      int  // how many Content-Range lines it has
	another     bool // its bytes are of another version
}

// replyOf makes a reply of 8 bytes of fuzz.
func replyOf(b []byte) reply {
	r := reply{
		status:   []int{206, 206, 206, 206, 200, 200, 503, 429, 404, 412, 416, 304, 500, 408, 201, 206}[b[0]%16],
		first:    int(b[1]) % (len(object) + 2),
		last:     len(object) - 1,
		complete: len(object),
		tag:      []string{`"v1"`, `"v1"`, `"v1"`, `"v1"`, `"v2"`, `W/"v1"`, "", `"v1`}[b[2]%8],
		encoding: []string{"", "", "", "gzip"}[b[3]%4],
		length:   b[4]&1 == 0,
		ranges:   1,
		end:      []error{io.EOF, &net.OpError{Op: "read", Err: errLost}}[b[4]>>1&1],
	}
	if b[4]>>2&7 == 0 {
		r.last = int(b[5]) % (len(object) + 2)
	}
	switch b[6] % 8 {
	case 0:
		r.complete = 0
	case 1:
		r.complete++
	case 2:
		r.ranges = 2
	case 3:
		r.ranges = 0
	}
	if r.status != 206 {
		r.first, r.last = 0, len(object)-1
		r.ranges = 0
		if b[6]%8 == 3 {
			r.ranges = 1
		}
	}
	r.another = r.tag != `"v1"` || r.encoding != ""
	r.cut = int(b[7]) % (len(object) + 1)
	if b[7] >= 200 {
		r.cut = len(object)
	}
	return r
}

// bytes are all that the reply would send if it did not break off.
func (r reply) bytes() string {
	text := object + "##"
	if r.another {
		text = strings.ToUpper(strings.Repeat("#", 10)+object[10:]) + "##"
	}
	if r.last < r.first {
		return ""
	}
	return text[r.first : r.last+1]
}

func (r reply) step(req *http.Request) (*http.Response, error) {
	header := []string{}
	if r.tag != "" {
		header = append(header, "Etag", r.tag)
	}
	if r.encoding != "" {
		header = append(header, "Content-Encoding", r.encoding)
	}
	complete := "*"
	if r.complete > 0 {
		complete = fmt.Sprint(r.complete)
	}
	for range r.ranges {
		header = append(header, "Content-Range", fmt.Sprintf("bytes %d-%d/%s", r.first, r.last, complete))
	}
	if r.length {
		header = append(header, "Content-Length", fmt.Sprint(len(r.bytes())))
	}
	text := r.bytes()
	return sends(r.status, text[:min(r.cut, len(text))], r.end, header...)(req)
}

// continues is R7 in plain words, for a request from offset on.
func (r reply) continues(offset int) bool {
	if r.tag != `"v1"` || r.encoding != "" {
		return false
	}
	switch r.status {
	case 206:
		return r.ranges == 1 && r.first <= offset && offset <= r.last && (r.complete == 0 || r.complete == len(object)) &&
			(r.complete == 0 || r.last < r.complete)
	case 200:
		return r.length && r.ranges == 0
	}
	return false
}

// modelOf returns what a download delivers that begins with the object cut after begin, and
// gets replies: how many bytes, whether all, and how many requests that takes.
func modelOf(begin, maxAttempts int, replies []reply) (delivered int, whole bool, requests int) {
	requests = 1
	for delivered = begin; delivered < len(object) && requests < maxAttempts; {
		r := replies[min(requests-1, len(replies)-1)]
		requests++
		failed := r.status >= 500 || r.status == 429 || r.status == 408
		if !failed && !r.continues(delivered) {
			return delivered, false, requests
		}
		if !failed {
			brought := min(r.first+min(r.cut, r.last-r.first+1), len(object))
			delivered = max(delivered, brought)
		}
	}
	return delivered, delivered == len(object), requests
}

// The model decides what is delivered, and by how many requests.
func FuzzResume(f *testing.F) {
	f.Add(byte(10), byte(3), []byte("\x00\x0a\x00\x00\x00\x00\x04\xff"))                                 // the rest
	f.Add(byte(10), byte(3), []byte("\x04\x00\x00\x00\x00\x00\x04\xff"))                                 // a 200 with all
	f.Add(byte(10), byte(9), []byte("\x06\x00\x00\x00\x00\x00\x04\xff\x00\x05\x00\x00\x02\x00\x04\x0c")) // a 503, then a part that breaks off
	f.Add(byte(10), byte(3), []byte("\x00\x0a\x04\x00\x00\x00\x04\xff"))                                 // another version
	f.Add(byte(0), byte(3), []byte("\x00\x00\x00\x00\x03\x00\x00\xff"))
	f.Add(byte(35), byte(3), []byte("\x00\x23\x00\x00\x03\x00\x00\xff"))
	f.Fuzz(func(t *testing.T, begin, attempts byte, data []byte) {
		var replies []reply
		for ; len(data) >= 8 && len(replies) < 16; data = data[8:] {
			replies = append(replies, replyOf(data))
		}
		if len(replies) == 0 {
			return
		}
		p := resumes
		p.MaxAttempts = 2 + int(attempts)%16
		p.Gate = &retryhttp.Gate{Hold: -1}
		cut := int(begin) % len(object)
		steps := []script.Step{cutAfter(cut)}
		for _, r := range replies {
			steps = append(steps, r.step)
		}
		base := script.New(steps...)
		got, err := download(t, base, p)

		delivered, whole, requests := modelOf(cut, p.MaxAttempts, replies)
		assert.Equal(t, object[:delivered], got)
		assert.Equal(t, requests, len(base.Requests()))
		if whole {
			require.NoError(t, err)
			return
		}
		var e *retryhttp.Error
		require.ErrorAs(t, err, &e)
		changed, refused := errors.Is(err, retryhttp.ErrChanged), errors.Is(err, retryhttp.ErrNotResumable)
		assert.Equal(t, e.Stop == retryhttp.StopFinal, changed != refused)
		assert.False(t, changed && refused)
	})
}

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
