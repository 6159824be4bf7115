package retryhttp

import (
	"context"
	"io"
	"net/http"
	"sync"

	"github.com/retryhttp/retryhttp/internal/replay"
)

// attemptBody is the body of a response that came in time. It releases its
// attempt's context when the response is over, read or closed, and the upload is
// too: over HTTP/2 and HTTP/3 a server may end its answer, and read on. If either
// never is, the context goes with the caller's.
type attemptBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	upload *upload // what is being sent; nil: nothing is any more
	over   bool    // the response is
}

// sentAtOnce reports whether req's body is as good as sent with its header: it came
// with a GetBody, and fits into the window that HTTP/2 begins with. To watch it, too,
// would take a third of the time of a small request more, for net/http sends the
// header by itself if it does not know the body's type.
func sentAtOnce(req *http.Request, lease *replay.Lease) bool {
	return lease == nil && 0 < req.ContentLength && req.ContentLength < 64<<10
}

// watch has b know when req's body has been sent. Of the bodies that the base gets
// for its own resends only the newest counts, for net/http forgets some.
func (b *attemptBody) watch(req *http.Request) {
	req.Body = b.sending(req.Body)
	if getBody := req.GetBody; getBody != nil {
		req.GetBody = func() (io.ReadCloser, error) {
			body, err := getBody()
			if err != nil || body == nil {
				return body, err
			}
			return b.sending(body), nil
		}
	}
}

func (b *attemptBody) sending(body io.ReadCloser) *upload {
	u := &upload{body, b}
	b.note(func() { b.upload = u })
	return u
}

// note releases the context if that is due after the change.
func (b *attemptBody) note(change func()) {
	b.mu.Lock()
	change()
	release := b.over && b.upload == nil
	b.mu.Unlock()
	if release {
		b.cancel(nil)
	}
}

func (b *attemptBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.note(func() { b.over = true })
	}
	return n, err
}

func (b *attemptBody) Close() error {
	err := b.ReadCloser.Close()
	b.note(func() { b.over = true })
	return err
}

// upload is a request's body.
type upload struct {
	io.ReadCloser
	response *attemptBody
}

func (u *upload) Close() error {
	err := u.ReadCloser.Close()
	u.response.note(func() {
		if u.response.upload == u {
			u.response.upload = nil
		}
	})
	return err
}

// attemptConn is the body of a 101, which is a connection.
type attemptConn struct {
	*attemptBody
	io.Writer
}

// CloseWrite half-closes the connection, as net/http's own body does where the
// connection can.
func (c *attemptConn) CloseWrite() error {
	if half, ok := c.ReadCloser.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return http.ErrNotSupported
}
