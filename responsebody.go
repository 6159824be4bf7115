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

// isEmpty reports whether body is what net/http gives a response without a body, such as the
// answer to a HEAD. The status alone is no proof: over HTTP/2, a 204 may continue.
func isEmpty(body io.ReadCloser) bool {
	if body == http.NoBody {
		return true
	}
	t := reflect.TypeOf(body)
	return t.PkgPath() == "net/http" && t.Name() == "http2noBodyReader"
}

// attemptBody is the body of a response that came in time. It releases its attempt's context when
// both the response and the upload have ended. The response ends when it is read or closed. Over
// HTTP/2 and HTTP/3, a server may end its answer and continue to read. If the response or the
// upload never ends, the context ends with the caller's context.
type attemptBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
	stall  *stallWatch // nil: a Read may take any time

	mu      sync.Mutex
	sending bool // the request's body has not been sent yet
	using   int  // number of request bodies that are being read
	over    bool // the response is read or closed
}

// watch wraps the request's bodies, so that b notices when req's body has been sent. The body is
// sent when the original body is closed or read to its end. It is also sent when a body that the
// base opened by GetBody was read and has ended. A base may send only what GetBody returns, and
// never look at the original body.
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

// wrap makes b the body of resp, unless that is empty. A positive stall bounds each Read.
func (b *attemptBody) wrap(resp *http.Response, stall time.Duration) {
	if isEmpty(resp.Body) {
		b.end() // nobody needs to close an empty body, and callers compare it with http.NoBody
		return
	}
	b.ReadCloser, resp.Body = resp.Body, b
	if w, ok := b.ReadCloser.(io.Writer); ok {
		resp.Body = &attemptConn{b, w}
	}
	if stall > 0 && resp.StatusCode != http.StatusSwitchingProtocols {
		b.stall = &stallWatch{after: stall, cancel: b.cancel, body: b.ReadCloser}
	}
}

// note makes a change, and then releases the context if the release is due.
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

// brokeOffBelow reports whether the body broke off while a nested Transport buffered it.
func (b *attemptBody) brokeOffBelow() bool {
	below, ok := b.ReadCloser.(*buffered)
	return ok && below.err != nil && below.err != io.EOF
}

// end records that the response is over.
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
	defer b.end() // even if Close panics
	return b.ReadCloser.Close()
}

// upload is a request's body.
type upload struct {
	io.ReadCloser
	response *attemptBody
	first    bool        // this is the body that the request came with
	state    uploadState // guarded by response.mu
}

type uploadState int

const (
	unread uploadState = iota
	inUse
	sent
)

// become moves u to a later state. The final state is the constant sent.
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

// Read does not release the context at the end, because the other side may have closed only its
// half.
func (c *attemptConn) Read(p []byte) (int, error) { return c.read(p) }

// CloseWrite half-closes the connection if the connection supports it. net/http's own body does
// the same.
func (c *attemptConn) CloseWrite() error {
	if half, ok := c.ReadCloser.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return http.ErrNotSupported
}

// isConnectionsEnd reports whether err, which followed the last byte of body, is about the
// connection and not about the bytes. A RoundTripper below may verify the bytes, and return an
// error at their end.
func isConnectionsEnd(body io.ReadCloser, err error) bool {
	return err == io.EOF || neterr.Lost(err) || closing.WhileRead(body)
}

// attemptOf returns the attemptBody that body is or contains, if any.
func attemptOf(body io.ReadCloser) (*attemptBody, bool) {
	switch b := body.(type) {
	case *attemptBody:
		return b, true
	case *attemptConn:
		return b.attemptBody, true
	case *buffered:
		return attemptOf(b.rest)
	case *unfinished:
		return attemptOf(b.fill.rest)
	}
	return nil, false
}
