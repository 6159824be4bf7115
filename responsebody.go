package retryhttp

import (
	"context"
	"io"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
	"github.com/retryhttp/retryhttp/internal/neterr"
)

// isEmpty reports whether body is what net/http gives a response without one, such as
// the answer to a HEAD. A status alone is no proof: over HTTP/2 a 204 may go on.
func isEmpty(body io.ReadCloser) bool {
	if body == http.NoBody {
		return true
	}
	t := reflect.TypeOf(body)
	return t.PkgPath() == "net/http" && t.Name() == "http2noBodyReader"
}

// attemptBody is the body of a response that came in time. It releases its
// attempt's context when the response is over, read or closed, and the upload is
// too: over HTTP/2 and HTTP/3 a server may end its answer, and read on. If either
// never is, the context goes with the caller's.
type attemptBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
	stall  *stallWatch // nil: a Read may take as long as it likes

	mu      sync.Mutex
	sending bool // the request's body has not been sent
	using   int  // bodies of the request that are being read
	over    bool // the response is read or closed
}

// watch has b know when req's body has been sent: when the body that it has is closed,
// or one that the base opened by GetBody was read and is done with. A base may send only
// what GetBody returns, and never look at the first.
func (b *attemptBody) watch(req *http.Request) {
	b.sending = true
	req.Body = &upload{ReadCloser: req.Body, response: b, first: true}
	getBody := req.GetBody
	if getBody == nil {
		return
	}
	req.GetBody = func() (io.ReadCloser, error) {
		body, err := getBody()
		if err != nil || body == nil {
			return nil, err
		}
		return &upload{ReadCloser: body, response: b}, nil
	}
}

// wrap makes b the body of resp. A positive stall bounds each of its Reads.
func (b *attemptBody) wrap(resp *http.Response, stall time.Duration) {
	if isEmpty(resp.Body) {
		b.end() // nobody needs to close it
	}
	b.ReadCloser, resp.Body = resp.Body, b
	if w, ok := b.ReadCloser.(io.Writer); ok {
		resp.Body = &attemptConn{b, w}
	}
	if stall > 0 && resp.StatusCode != http.StatusSwitchingProtocols {
		b.stall = &stallWatch{after: stall, cancel: b.cancel, body: b.ReadCloser}
	}
}

// note releases the context if that is due after the change.
func (b *attemptBody) note(change func()) {
	b.mu.Lock()
	change()
	release := b.over && !b.sending && b.using == 0
	b.mu.Unlock()
	if release {
		b.cancel(nil)
	}
}

// isOver reports whether the response was read to its end, or closed.
func (b *attemptBody) isOver() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over
}

// end notes that the response is over.
func (b *attemptBody) end() { b.note(func() { b.over = true }) }

func (b *attemptBody) Read(p []byte) (int, error) {
	n, err := b.read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

func (b *attemptBody) read(p []byte) (int, error) {
	if b.stall != nil {
		return b.stall.read(p)
	}
	return b.ReadCloser.Read(p)
}

func (b *attemptBody) Close() error {
	defer b.end() // also where Close panics
	return b.ReadCloser.Close()
}

// upload is a request's body.
type upload struct {
	io.ReadCloser
	response *attemptBody
	first    bool        // it is the one that the request came with
	state    uploadState // guarded by response.mu
}

type uploadState int

const (
	unread uploadState = iota
	inUse
	sent
)

// become notes a change of state, of which sent is the last.
func (u *upload) become(next uploadState) {
	b := u.response
	b.note(func() {
		if u.state >= next {
			return
		}
		if u.state == inUse {
			b.using--
		}
		if next == inUse {
			b.using++
		} else if u.first || u.state == inUse {
			b.sending = false
		}
		u.state = next
	})
}

func (u *upload) Read(p []byte) (int, error) {
	u.become(inUse)
	n, err := u.ReadCloser.Read(p)
	if err == io.EOF {
		u.become(sent)
	}
	return n, err
}

func (u *upload) Close() error {
	defer u.become(sent)
	return u.ReadCloser.Close()
}

// ClosableWhileRead reports whether the body that b wraps may be closed while it is
// read.
func (b *attemptBody) ClosableWhileRead() bool { return closing.WhileRead(b.ReadCloser) }

// attemptConn is the body of a 101, which is a connection.
type attemptConn struct {
	*attemptBody
	io.Writer
}

// Read does not release the context at the end: the other side may have closed its
// half.
func (c *attemptConn) Read(p []byte) (int, error) { return c.read(p) }

// CloseWrite half-closes the connection, as net/http's own body does where the
// connection can.
func (c *attemptConn) CloseWrite() error {
	if half, ok := c.ReadCloser.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return http.ErrNotSupported
}

// isConnectionsEnd reports whether err, which followed on the last byte of body, is about
// the connection, and not about the bytes. A RoundTripper below may have verified them, and
// returns an error where they end.
func isConnectionsEnd(body io.ReadCloser, err error) bool {
	return err == io.EOF || neterr.Lost(err) || closing.WhileRead(body)
}

// attemptOf returns the attemptBody that body is, if it is one.
func attemptOf(body io.ReadCloser) (*attemptBody, bool) {
	switch b := body.(type) {
	case *attemptBody:
		return b, true
	case *attemptConn:
		return b.attemptBody, true
	case *buffered:
		return attemptOf(b.rest)
	}
	return nil, false
}
