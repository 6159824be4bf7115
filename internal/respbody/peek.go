package respbody

import (
	"errors"
	"io"
	"net/http"
)

// ErrSealed is the error of a Read by a hook that must not read.
var ErrSealed = errors.New("Classify and RetryAfter must not read the response body: its bytes are in Attempt.Body or Attempt.Peek")

// These are sizes of a peek. A short peek is one object. A long peek, which few policies ask for, is
// two, and a policy may ask for any number of bytes.
const (
	shortPeek = 1 << 10
	mostPeek  = 64 << 10
)

// Peek waits for the first bytes of resp's body, and returns the response that counts afterward. Its
// new body begins with these bytes: up to limit, and what one Read brings. The Buffered is nil if the
// body is left as it is. The error is not nil if the body ends or breaks off before its first byte. A
// body of a failed response is awaited no longer than MaxDrainTime.
func Peek(req *http.Request, resp *http.Response, limit int64, failed bool) (*http.Response, *Buffered, error) {
	if resp.Body == nil || resp.ContentLength == 0 || IsEmpty(resp.Body) || !mayHaveBody(req, resp) {
		return resp, nil, nil
	}
	limit = min(limit, mostPeek)
	b := newPeek(resp.Body, limit)
	patience := forEver
	if failed {
		patience = MaxDrainTime
	}
	resp = b.begin(resp, -1, limit, patience, nil)
	resp.Body = b
	switch {
	case len(b.data) > 0:
		return resp, b, nil
	case b.err == io.EOF:
		return resp, b, io.ErrUnexpectedEOF // for the attempt; the caller finds an empty body
	}
	return resp, b, b.err
}

func newPeek(body io.ReadCloser, limit int64) *Buffered {
	if limit <= shortPeek {
		p := new(peek)
		p.Buffered = Buffered{rest: body, once: true, data: p.space[:0:limit]}
		return &p.Buffered
	}
	return &Buffered{rest: body, once: true, data: make([]byte, 0, limit)}
}

// peek is a Buffered with room for its bytes.
type peek struct {
	Buffered
	space [shortPeek]byte
}

// Peeked reports whether b began with a Peek.
func (b *Buffered) Peeked() bool { return b.once }

// First returns the first bytes of resp's body, up to limit, or nil if they have not been read.
func First(resp *http.Response, limit int64) []byte {
	if b, ok := resp.Body.(*Buffered); ok && len(b.data) > 0 {
		n := min(int64(len(b.data)), limit)
		return b.data[:n:n]
	}
	return nil
}

// Seal makes a Read of resp's body fail until the seal is taken off again. Without it, a hook that
// reads would take bytes away from the caller, unseen. A body that was not read within the attempt is
// left alone.
func Seal(resp *http.Response, sealed bool) {
	if resp == nil {
		return
	}
	if b, ok := resp.Body.(*Buffered); ok {
		b.sealed = sealed
	}
}
