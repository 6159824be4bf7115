package retryhttp

import (
	"errors"
	"io"
	"maps"
	"net/http"

	"github.com/retryhttp/retryhttp/internal/replay"
)

var errNilBody = errors.New("GetBody returned neither a body nor an error")

// bodies gives every attempt of one request a body of its own. The zero value
// is for a request that has none, or that has a GetBody: there the first attempt
// sends the caller's request as it is.
type bodies struct {
	source  *replay.Source
	lease   *replay.Lease // the newest attempt's
	before  *replay.Lease // that of the attempt before, which may still be reading
	trailer http.Header   // as the caller announced it
}

func (b *bodies) repeatable() bool {
	return b.source == nil || b.source.Repeatable()
}

// release says that there will be no further attempt. Where the last one
// failed, nothing reads its body any more.
func (b *bodies) release(failed bool) {
	if b.source != nil {
		b.source.Seal(failed)
	}
}

// cutBefore ends what the attempt before may still be reading.
func (b *bodies) cutBefore() {
	b.before.Cut()
}

// open gives next, a copy of req, the body for a new attempt.
func (b *bodies) open(req, next *http.Request) error {
	switch {
	case b.source != nil:
		return b.openSource(req, next)
	case hasBody(req):
		body, err := next.GetBody()
		if err == nil && body == nil {
			err = errNilBody
		}
		next.Body = body
		return err
	}
	return nil
}

func (b *bodies) openSource(req, next *http.Request) error {
	// A body may set the values of req.Trailer when it is read to its end,
	// which an earlier attempt may be doing while the new one looks at its
	// keys. So each attempt has a map of its own, filled at the end.
	var atEOF func()
	if len(b.trailer) > 0 {
		trailer := b.trailer.Clone()
		next.Trailer = trailer
		atEOF = func() { maps.Copy(trailer, req.Trailer) }
	}
	lease, err := b.source.Lease(req.Context(), b.lease, atEOF)
	if err != nil {
		return err
	}
	b.before, b.lease = b.lease, lease
	next.GetBody = lease.Open
	next.Body, err = lease.Open()
	return err
}

// prepare makes the first attempt's request, where it cannot be the caller's
// own: because a key is added, or because its body must be wrapped.
func (c *call) prepare() {
	c.addKey()
	switch {
	case !hasBody(c.req):
		return
	case c.req.GetBody != nil:
		c.markBody()
		return
	}
	c.bodies.source = replay.New(c.req.Body, c.policy.MaxBodyBytes)
	c.bodies.trailer = c.req.Trailer.Clone()
	_ = c.open() // a source's first lease is always granted
	if keyedForNetHTTP(c.next.Header) && !c.policy.Idempotent(c.next) {
		c.next.GetBody = nil // net/http goes by the header, and would resend it
	}
}

// markBody has errors of reading a body that has a GetBody told from those of
// sending it, where a repeated request could hang on it: a body that dials in its
// Read must not pass for a server that was never reached.
func (c *call) markBody() {
	if !c.policy.RetryUnprocessed || c.policy.Idempotent(c.next) {
		return
	}
	getBody := c.req.GetBody
	c.next = c.next.WithContext(c.req.Context())
	c.next.Body = markedBody{c.req.Body}
	c.next.GetBody = func() (io.ReadCloser, error) {
		body, err := getBody()
		if err != nil || body == nil {
			return nil, err
		}
		return markedBody{body}, nil
	}
}

// markedBody marks the errors of its Reads.
type markedBody struct{ io.ReadCloser }

func (b markedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = &bodyError{err}
	}
	return n, err
}

// bodyError is an error from reading a body that has a GetBody.
type bodyError struct{ error }

func (e *bodyError) Unwrap() error { return e.error }

// open makes the next attempt's request and opens its body. Without a body there
// is nothing that could fail, and the copy is left to send: many requests
// may be waiting, and need none meanwhile.
func (c *call) open() error {
	if !hasBody(c.req) {
		return nil
	}
	next := c.again()
	if err := c.bodies.open(c.req, next); err != nil {
		return err
	}
	c.next, c.opened = next, true
	return nil
}

// addKey has the attempts carry an Idempotency-Key if the policy makes one.
func (c *call) addKey() {
	p := c.policy
	if p.IdempotencyKey == nil || hasIdempotencyKey(c.req.Header) || p.Idempotent(c.req) {
		return
	}
	key := p.IdempotencyKey(c.req)
	if key == "" {
		return
	}
	c.next = c.req.WithContext(c.req.Context())
	c.next.Header = maps.Clone(c.req.Header)
	if c.next.Header == nil {
		c.next.Header = make(http.Header)
	}
	c.next.Header[idempotencyKeyHeader] = []string{key}
}

func hasBody(req *http.Request) bool {
	return req.Body != nil && req.Body != http.NoBody
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}
