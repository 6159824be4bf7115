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
	"testing/synctest"

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
	r.cut = int(b[7]) % (len(object) + 1)
	if b[7] >= 200 {
		r.cut = len(object)
	}
	return r
}

// isAnother reports whether the bytes are of another version.
func (r reply) isAnother() bool { return r.tag != `"v1"` || r.encoding != "" }

// bytes are all that the reply would send if it did not break off.
func (r reply) bytes() string {
	text := object + "##"
	if r.isAnother() {
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

// continues says whether the reply continues the object from offset on.
func (r reply) continues(offset int) bool {
	switch {
	case r.isAnother():
		return false
	case r.status == 206:
		fits := r.complete == 0 || r.complete == len(object) && r.last < len(object)
		return r.ranges == 1 && r.first <= offset && offset <= r.last && fits
	}
	return r.status == 200 && r.length && r.ranges == 0
}

// modelOf returns what a download delivers that begins with the object cut after begin, and
// gets replies: how many bytes, whether all, and the Range of each request.
func modelOf(begin, maxAttempts int, replies []reply) (delivered int, whole bool, asked []string) {
	asked = []string{""}
	for delivered = begin; delivered < len(object) && len(asked) < maxAttempts; {
		r := replies[min(len(asked), len(replies))-1]
		asked = append(asked, fmt.Sprintf("bytes=%d-35", delivered))
		failed := r.status >= 500 || r.status == 429 || r.status == 408
		if !failed && !r.continues(delivered) {
			return delivered, false, asked
		}
		if !failed {
			brought := min(r.first+min(r.cut, r.last-r.first+1), len(object))
			delivered = max(delivered, brought)
		}
	}
	return delivered, delivered == len(object), asked
}

// sipping reads a byte at a time, and asks for none before each.
type sipping struct {
	t *testing.T
	io.Reader
}

func (s sipping) Read(p []byte) (int, error) {
	if n, err := s.Reader.Read(p[:0]); n > 0 || err != nil {
		return n, err
	}
	n, err := s.Reader.Read(p[:1])
	assert.True(s.t, n > 0 || err != nil, "a Read with room brings something")
	return n, err
}

// closely is a base that requires each of its bodies to be closed before the next request.
type closely struct {
	*script.Transport
	t     *testing.T
	given []*piece
}

func (c *closely) RoundTrip(req *http.Request) (*http.Response, error) {
	c.requireClosed()
	resp, err := c.Transport.RoundTrip(req)
	c.given = append(c.given, resp.Body.(*piece))
	return resp, err
}

func (c *closely) requireClosed() {
	for i, p := range c.given {
		assert.EqualValues(c.t, 1, p.closes.Load(), "the body of attempt %d", i+1)
	}
}

// The model decides what is delivered, what is asked for, and which tokens that takes. In a bubble, a Close takes
// no time.
func FuzzResume(f *testing.F) {
	// The rest, a 200 with all, a 503 and then a part that breaks off, another version, and more than the rest.
	f.Add([]byte("\x0a\x03\x00\x0a\x00\x00\x00\x00\x04\xff"))
	f.Add([]byte("\x0a\x03\x04\x00\x00\x00\x00\x00\x04\xff"))
	f.Add([]byte("\x0a\x09\x06\x00\x00\x00\x00\x00\x04\xff\x00\x05\x00\x00\x02\x00\x04\x0c"))
	f.Add([]byte("\x0a\x03\x00\x0a\x04\x00\x00\x00\x04\xff"))
	f.Add([]byte("\x0a\x03\x00\x0a\x00\x00\x00\x25\x00\xff"))
	addRandom(f, 2000, 10, 50)
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) >= 10 {
			synctest.Test(t, func(t *testing.T) { compareDownloads(t, data) })
		}
	})
}

// compareDownloads makes a download with the product and with the model.
func compareDownloads(t *testing.T, data []byte) {
	cut, sips, maxAttempts := int(data[0])%len(object), data[1]&1 == 0, 2+int(data[1]>>1)%16
	method, buffer := []string{"GET", ""}[data[1]>>5&1], int64(data[1]>>6&1)*30 // no resumption is buffered
	var replies []reply
	steps := []script.Step{cutAfter(cut, "Accept-Ranges", "bytes")}
	for data = data[2:]; len(data) >= 8; data = data[8:] {
		r := replyOf(data)
		replies, steps = append(replies, r), append(steps, r.step)
	}
	p := resumes
	p.MaxAttempts, p.BufferBytes = maxAttempts, buffer
	p.OnRetry = func(a retryhttp.Attempt) { assert.Nil(t, a.Body) }
	p.Gate = &retryhttp.Gate{Hold: -1}
	budget := &countingBudget{}
	p.Budget = budget
	base := &closely{Transport: script.New(steps...), t: t}
	req := get(t, t.Context())
	req.Method = method
	resp := responseTo(t, base, p, req)
	var body io.Reader = resp.Body
	if sips {
		body = sipping{t, body}
	}
	got, err := io.ReadAll(body)
	for i, sent := range base.Requests() {
		assert.Equal(t, i+1, retryhttp.AttemptOf(sent.Context()).Number)
		assert.Equal(t, i > 0, sent.Context().Err() != nil, "the context of a resumption has ended")
	}
	require.NoError(t, resp.Body.Close())
	base.requireClosed()

	delivered, whole, asked := modelOf(cut, maxAttempts, replies)
	assert.Equal(t, object[:delivered], string(got))
	assert.Equal(t, asked, ranges(base.Transport))
	assert.Equal(t, len(asked)-1, budget.withdrawn)
	assert.Zero(t, budget.refunded)
	if whole {
		require.NoError(t, err)
		assert.Equal(t, 2, budget.deposit, "the response, and the end of the resumption")
		return
	}
	assert.Equal(t, 1, budget.deposit)
	e := errorOf(t, err)
	changed, refused := errors.Is(err, retryhttp.ErrChanged), errors.Is(err, retryhttp.ErrNotResumable)
	assert.Equal(t, e.Stop == retryhttp.StopFinal, changed != refused)
	assert.False(t, changed && refused)
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
	resp := responseTo(t, base, p, req)
	got, err := io.ReadAll(resp.Body)
	assert.NoError(t, resp.Body.Close())
	return string(got), err
}

// opened returns a response whose body the caller reads.
func opened(t *testing.T, base http.RoundTripper, p retryhttp.Policy) *http.Response {
	t.Helper()
	return responseTo(t, base, p, get(t, t.Context()))
}

// responseTo is opened for any request.
func responseTo(t *testing.T, base http.RoundTripper, p retryhttp.Policy, req *http.Request) *http.Response {
	t.Helper()
	resp, err := retryhttp.New(base, p).RoundTrip(req)
	require.NoError(t, err)
	return resp
}

// edited answers as step does, and edits the response.
func edited(step script.Step, edit func(*http.Response)) script.Step {
	return func(req *http.Request) (*http.Response, error) {
		resp, err := step(req)
		edit(resp)
		return resp, err
	}
}

// untilItEnds answers nothing until its attempt ends.
func untilItEnds(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// ranges are the Range headers of the requests that base got.
func ranges(base *script.Transport) (ranges []string) {
	for _, req := range base.Requests() {
		ranges = append(ranges, req.Header.Get("Range"))
	}
	return ranges
}
