package respbody

import (
	"io"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
	"github.com/retryhttp/retryhttp/internal/field"
	"github.com/retryhttp/retryhttp/internal/replay"
)

// These are sizes of a buffer. firstBuffer is enough for most JSON. A server may declare any
// length, and send nothing: a declared length allocates firstDeclared before a byte has come, and
// at most grownDeclared once those are full.
const (
	firstBuffer   = 4 << 10
	firstDeclared = 32 << 10
	grownDeclared = 64 << 20
)

// Buffer reads resp's body if it may be buffered, and returns the response that counts afterward,
// with its new body. The new body begins with the bytes that were read. The Body is nil if
// the body is left as it is. The error is not nil if the body broke off before its end and before
// limit. A retry may follow a response that has failed, so Buffer then waits for the body no
// longer than MaxDrainTime. b is the Body that wraps resp's body, or nil.
func Buffer(
	b *Body, req *http.Request, resp *http.Response, limit int64, failed bool,
) (*http.Response, *Body, error) {
	limit = min(limit, math.MaxInt-1)
	if resp.Body == nil || resp.ContentLength > limit || !mayHaveBody(req, resp) || isStream(resp.Header) {
		return resp, nil, nil
	}
	b = b.of(resp)
	patience := forEver
	if failed {
		patience = MaxDrainTime
	}
	resp, err := b.take(req, resp, limit, patience, nil)
	return resp, b, err
}

// of makes b, or a new Body if b is nil, the body of resp.
func (b *Body) of(resp *http.Response) *Body {
	if b == nil {
		b = new(Body)
	}
	if b.base == nil {
		b.base, resp.Body = resp.Body, b
	}
	return b
}

// Keep is Buffer for a failed response that the caller may get later, of any kind. It waits for at
// most patience, or until req's context ends, and reports whether all of the body is in memory. If the
// response has been awaited before, and did not come in time, Keep waits no longer.
func Keep(req *http.Request, resp *http.Response, limit int64, patience time.Duration) (kept *http.Response, whole bool) {
	b, _ := resp.Body.(*Body)
	switch {
	case b != nil && (b.whole || b.late != nil):
		return resp, b.whole && int64(len(b.data)) <= limit
	case IsEmpty(resp.Body):
		return resp, true
	case resp.ContentLength > limit:
		return resp, false
	}
	b = b.of(resp)
	b.ends = nil // what was peeked at is the beginning
	kept, _ = b.take(req, resp, limit, patience, req.Context().Done())
	if !b.whole {
		return kept, false
	}
	b.data = slices.Clone(b.data) // without the room for more
	// Beside an upload, the reader closes the rest: see take.
	if !b.gone && !replay.Uploads(req) {
		b.gone = true
		closing.Soon(rest{b})
	}
	return kept, true
}

// forEver is the patience of who needs the body.
const forEver = time.Duration(math.MaxInt64)

// take reads the beginning of resp's body, and makes b the body of the response that it returns.
func (b *Body) take(
	req *http.Request, resp *http.Response, limit int64, patience time.Duration, done <-chan struct{},
) (*http.Response, error) {
	resp = b.begin(resp, limit, patience, done)
	b.shown = len(b.data)
	if b.err == nil {
		return resp, nil // the caller reads the rest from the server
	}
	b.judgeEnd(resp)
	if b.err != io.EOF {
		b.BreakOff(b.err)
		return resp, b.err
	}
	b.whole = int64(len(b.data)) <= limit
	if closing.WhileRead(b.base) && !replay.Uploads(req) {
		// Close waits for an upload, and ends it over HTTP/2, but no upload is left.
		b.gone = true
		_ = rest{b}.Close()
	}
	return resp, nil
}

// Whole returns resp's body if Buffer has read all of it, or nil. A nested Transport may have
// buffered more than limit.
func Whole(resp *http.Response, limit int64) []byte {
	if b, ok := resp.Body.(*Body); ok && b.whole && int64(len(b.data)) <= limit {
		return b.data[:len(b.data):len(b.data)]
	}
	return nil
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

// judgeEnd corrects the error that follows data if the declared length says more than the Read
// did. No other code compares the body with a length that comes from a Content-Range.
func (b *Body) judgeEnd(resp *http.Response) {
	switch came, declared := int64(len(b.data)), declaredLength(resp); {
	case came == declared && came > 0 && IsConnectionsEnd(b.base, b.err):
		b.err = io.EOF
	case came < declared && resp.ContentLength < 0 && b.err == io.EOF:
		b.err = io.ErrUnexpectedEOF
	}
}

// fill reads until the body ends, a Read fails, or data is one byte longer than limit.
func (b *Body) fill(declared, limit int64, read func([]byte) (int, error)) {
	for empty, seen := 0, 0; !b.filled(limit, seen); {
		if len(b.data) == cap(b.data) {
			b.grow(declared, limit)
		}
		seen = len(b.data)
		var n int
		n, b.err = read(b.data[len(b.data):cap(b.data)])
		b.data = b.data[:len(b.data)+n]
		if empty++; n > 0 {
			empty = 0
		}
		if empty == maxEmptyReads && b.err == nil {
			b.err = io.ErrNoProgress
		}
	}
}

// filled reports whether nothing else is to be read. The first seen bytes were not enough.
func (b *Body) filled(limit int64, seen int) bool {
	if b.ends != nil {
		return b.err != nil || len(b.data) == cap(b.data) || b.ends(b.data, b.shown, seen) > 0
	}
	return b.err != nil || int64(len(b.data)) > limit
}

// grow makes room for the declared length and one byte, or doubles the buffer if the body may be
// longer, up to limit and one byte. A Read needs room for one more byte to return the end.
func (b *Body) grow(declared, limit int64) {
	had := int64(cap(b.data))
	size := max(2*had, firstBuffer)
	switch {
	case declared < had: // or unknown
	case had == 0:
		size = min(firstDeclared, declared+1)
	default:
		size = min(max(size, grownDeclared), declared+1)
	}
	if size >= limit {
		size = limit + 1
	}
	b.data = append(make([]byte, 0, size), b.data...)
}

// Complete reports whether all of the length has come that resp declares.
func (b *Body) Complete(resp *http.Response) bool {
	return b.whole && declaredLength(resp) == int64(len(b.data))
}

// BreakOff closes the rest of the body, which then ends with err.
func (b *Body) BreakOff(err error) {
	b.err, b.whole = err, false
	if !b.gone {
		b.gone = true
		closing.Soon(rest{b})
	}
}
