package detour

import (
	"io"
	"net/http"
	"sync"
)

// guarded is a request body that stays open until it is read. A ClientConn, unlike an
// http.Transport, may return an error and leave the body open, or close a body that the server has
// never seen. Over HTTP/2, it may even read a body that it has closed.
type guarded struct {
	io.ReadCloser
	mu     sync.Mutex
	used   bool // it has been read, or RoundTrip has returned
	closed bool // by the sender, or because RoundTrip has returned an error
	sent   func()
}

// guardBody gives req, a copy, a guarded body. If there is no body, req stays as it is.
func guardBody(req *http.Request) *guarded {
	if req.Body == nil || req.Body == http.NoBody {
		return &guarded{ReadCloser: http.NoBody, closed: true}
	}
	g := &guarded{ReadCloser: req.Body, sent: func() {}}
	req.Body = g
	return g
}

func (g *guarded) Read(p []byte) (int, error) {
	g.mu.Lock()
	closed := g.closed
	g.used = g.used || !closed
	g.mu.Unlock()
	if closed {
		return 0, http.ErrBodyReadAfterClose
	}
	return g.ReadCloser.Read(p)
}

func (g *guarded) Close() error {
	g.mu.Lock()
	forward := g.used && !g.closed
	g.closed = true
	sent := g.sent
	g.mu.Unlock()
	if !forward {
		return nil
	}
	defer sent()
	return g.ReadCloser.Close()
}

// answered is called when RoundTrip has returned a response. It calls sent once the sender needs the body no
// more. A body that was closed unread is closed now.
func (g *guarded) answered(sent func()) {
	g.mu.Lock()
	closed, unread := g.closed, !g.used
	g.used, g.sent = true, sent
	g.mu.Unlock()
	if closed && unread {
		_ = g.ReadCloser.Close()
	}
	if closed {
		sent()
	}
}

// failed is called when RoundTrip has returned an error. It reports whether the body is taken back as it
// was before, to be sent again. Otherwise the body is closed.
func (g *guarded) failed(takeBack bool) (back bool) {
	g.mu.Lock()
	back = takeBack && !g.used
	closed := g.closed && g.used
	g.used, g.closed = true, true
	g.mu.Unlock()
	if !back && !closed {
		_ = g.ReadCloser.Close()
	}
	return back
}
