package retryhttp

import (
	"io"
	"math"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/retryhttp/retryhttp/internal/closing"
	"github.com/retryhttp/retryhttp/internal/field"
)

// These are sizes of a buffer. firstBuffer is enough for most JSON. A server may declare any
// length, and send nothing: a declared length allocates firstDeclared before a byte has come, and
// at most grownDeclared once those are full.
const (
	firstBuffer   = 4 << 10
	firstDeclared = 32 << 10
	grownDeclared = 64 << 20
)

// buffer reads resp's body if it may be buffered, and returns the response that counts afterward,
// with its new body. The new body begins with the bytes that were read. The error is not nil if
// the body broke off before its end and before limit.
func buffer(req *http.Request, resp *http.Response, limit int64) (*http.Response, *buffered, error) {
	limit = min(limit, math.MaxInt-1)
	if resp.Body == nil || resp.ContentLength > limit || !mayBuffer(req, resp) {
		return resp, nil, nil
	}
	b := &buffered{rest: resp.Body}
	filled := false
	defer func() {
		if !filled {
			closing.Response(resp) // a Read panicked
		}
	}()
	declared := declaredLength(resp)
	if classifyStatus(resp.StatusCode) == Retryable {
		resp = b.fillForAMoment(resp, declared, limit)
	} else {
		b.fill(declared, limit, nil)
	}
	filled = true
	resp.Body = b
	if b.err == nil {
		return resp, b, nil // the caller reads the rest from the server
	}
	switch came := int64(len(b.data)); {
	case came == declared && came > 0 && isConnectionsEnd(b.rest, b.err):
		b.err, b.complete = io.EOF, true
	case came < declared && resp.ContentLength < 0 && b.err == io.EOF:
		b.err = io.ErrUnexpectedEOF // no other code compares a body with its Content-Range
	}
	if b.err != io.EOF {
		b.breakOff(b.err)
		return resp, b, b.err
	}
	b.whole = int64(len(b.data)) <= limit
	if closing.WhileRead(b.rest) && (!hasBody(req) || sentAtOnce(req)) {
		_ = b.rest.Close() // Close waits for an upload, and ends it over HTTP/2, but no upload is left
		b.rest = nil
	}
	return resp, b, nil
}

// declaredLength returns the length that resp's body should have, or -1 if it is unknown.
func declaredLength(resp *http.Response) int64 {
	if resp.Uncompressed {
		return -1
	}
	if resp.ContentLength < 0 && resp.StatusCode == http.StatusPartialContent {
		if part, ok := field.ContentRange(resp.Header); ok {
			return part.Length()
		}
	}
	return resp.ContentLength
}

// mayBuffer reports whether resp has a body, and its reader does not expect it piece by piece.
// Nobody needs the body of a redirect: http.Client follows its Location.
func mayBuffer(req *http.Request, resp *http.Response) bool {
	switch req.Method {
	case http.MethodHead, http.MethodConnect:
		return false
	}
	switch resp.StatusCode {
	case http.StatusSwitchingProtocols, http.StatusNoContent, http.StatusNotModified:
		return false
	}
	return !isRedirect(resp) && !isStream(resp.Header)
}

func isRedirect(resp *http.Response) bool {
	return resp.StatusCode >= 300 && resp.StatusCode <= 399 && resp.Header.Get("Location") != ""
}

// isStream reports whether a body with this header may continue while its reader listens.
func isStream(h http.Header) bool {
	media := field.MediaType(h)
	switch media {
	case "text/event-stream", "multipart/x-mixed-replace", "application/vnd.amazon.eventstream",
		"application/vnd.docker.raw-stream", "application/vnd.docker.multiplexed-stream":
		return true
	case "multipart/mixed":
		if _, incremental := mediaParameter(h, "deferSpec"); incremental { // GraphQL
			return true
		}
	}
	if stream, _ := mediaParameter(h, "stream"); strings.EqualFold(stream, "watch") { // Kubernetes
		return true
	}
	for _, rpc := range [...]string{"application/grpc", "application/connect"} {
		if strings.HasPrefix(media, rpc) {
			return true
		}
	}
	return isSequence(media)
}

// isSequence reports whether a body of this media type is made of values that follow one another.
func isSequence(media string) bool {
	_, subtype, _ := strings.Cut(media, "/")
	switch subtype {
	case "x-ndjson", "ndjson", "jsonl", "jsonlines", "x-jsonlines", "json-seq", "cbor-seq", "stream+json":
		return true
	}
	return strings.HasSuffix(subtype, "+json-seq") || strings.HasSuffix(subtype, "+cbor-seq")
}

// mediaParameter returns the value of a parameter of h's Content-Type. It does not look for quotes
// around a semicolon: a body that is wrongly taken for a stream is merely not buffered.
func mediaParameter(h http.Header, name string) (value string, ok bool) {
	_, parameters, _ := strings.Cut(h.Get("Content-Type"), ";")
	for parameter := range strings.SplitSeq(parameters, ";") {
		n, v, _ := strings.Cut(parameter, "=")
		if strings.EqualFold(strings.TrimSpace(n), name) {
			return strings.Trim(v, " \t\""), true
		}
	}
	return "", false
}

// buffered is a response body whose beginning was read within the attempt.
type buffered struct {
	data     []byte
	read     int           // number of bytes of data that the caller has read
	err      error         // the error that follows data; nil if rest follows
	whole    bool          // data is the whole body, and is no longer than the limit
	complete bool          // data has the declared length
	rest     io.ReadCloser // the body after data; nil if it is closed
	closed   atomic.Bool
}

// fill reads until the body ends, a Read fails, or data is one byte longer than limit. It asks goOn
// before each Read, unless goOn is nil.
func (b *buffered) fill(declared, limit int64, goOn func() bool) {
	size := int64(firstBuffer)
	if declared >= 0 {
		size = min(declared+1, firstDeclared) // a Read needs room for one more byte to return the end
	}
	b.data = make([]byte, 0, min(size, limit+1))
	for empty := 0; b.err == nil && int64(len(b.data)) <= limit && (goOn == nil || goOn()); {
		if len(b.data) == cap(b.data) {
			b.grow(declared, limit)
		}
		var n int
		n, b.err = b.rest.Read(b.data[len(b.data):cap(b.data)])
		b.data = b.data[:len(b.data)+n]
		if empty++; n > 0 {
			empty = 0
		}
		if empty == maxEmptyReads && b.err == nil {
			b.err = io.ErrNoProgress
		}
	}
}

// grow makes room for the declared length and one byte, or doubles the buffer if the body may be
// longer, up to limit and one byte.
func (b *buffered) grow(declared, limit int64) {
	size := 2 * int64(cap(b.data))
	if declared >= int64(cap(b.data)) {
		size = min(max(size, grownDeclared), declared+1)
	}
	if size >= limit {
		size = limit + 1
	}
	grown := make([]byte, len(b.data), size)
	copy(grown, b.data)
	b.data = grown
}

// breakOff closes the rest of the body, which then ends with err.
func (b *buffered) breakOff(err error) {
	b.err, b.whole = err, false
	if b.rest != nil {
		closing.Soon(b.rest)
		b.rest = nil
	}
}

func (b *buffered) Read(p []byte) (int, error) {
	switch {
	case b.closed.Load():
		return 0, http.ErrBodyReadAfterClose
	case b.read < len(b.data):
		n := copy(p, b.data[b.read:])
		b.read += n
		return n, nil
	case b.err != nil:
		return 0, b.err
	}
	return b.rest.Read(p)
}

func (b *buffered) Close() error {
	b.closed.Store(true)
	if b.rest == nil {
		return nil
	}
	return b.rest.Close()
}

// ClosableWhileRead reports whether the body may be closed while it is read.
func (b *buffered) ClosableWhileRead() bool { return b.rest == nil || closing.WhileRead(b.rest) }

// bufferedBody returns resp's body if buffer has read from it.
func bufferedBody(resp *http.Response) (*buffered, bool) {
	b, ok := resp.Body.(*buffered)
	return b, ok
}

// wholeBody returns resp's body if buffer has read all of it, or nil. A nested Transport may
// have buffered more than limit.
func wholeBody(resp *http.Response, limit int64) []byte {
	if b, ok := bufferedBody(resp); ok && b.whole && int64(len(b.data)) <= limit {
		return b.data[:len(b.data):len(b.data)]
	}
	return nil
}
