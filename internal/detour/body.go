package detour

import (
	"errors"
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

var errOver = errors.New("the request is over")

// guardBody gives req, a copy, a guarded body. It returns nil if there is no body.
func guardBody(req *http.Request) *guarded {
	if req.Body == nil || req.Body == http.NoBody {
		return nil
	}
	g := &guarded{ReadCloser: req.Body}
	req.Body = g
	return g
}

func (g *guarded) Read(p []byte) (int, error) {
	g.mu.Lock()
	closed := g.closed
	g.used = g.used || !closed
	g.mu.Unlock()
	if closed {
		return 0, errOver
	}
	return g.ReadCloser.Read(p)
}

func (g *guarded) Close() error {
	g.mu.Lock()
	first := !g.closed
	g.closed = true
	forward := first && g.used
	sent := g.sent
	g.mu.Unlock()
	if first && sent != nil {
		defer sent()
	}
	if !forward {
		return nil
	}
	return g.ReadCloser.Close()
}

// whenSent calls f once the sender needs the body no more, after RoundTrip has returned a response.
func (g *guarded) whenSent(f func()) {
	if g == nil {
		f()
		return
	}
	g.mu.Lock()
	closed := g.closed
	g.sent = f
	g.mu.Unlock()
	if closed {
		f()
	}
}

// end is called when RoundTrip has returned. With failed, no response has come, and the body is
// closed unless it is taken back to be sent again. With takeBack, end reports whether the body is
// as it was before.
func (g *guarded) end(failed, takeBack bool) bool {
	if g == nil {
		return takeBack
	}
	g.mu.Lock()
	back := takeBack && !g.used
	shut := !back && (failed && !g.closed || g.closed && !g.used)
	g.used, g.closed = true, g.closed || failed
	g.mu.Unlock()
	if shut {
		_ = g.ReadCloser.Close()
	}
	return back
}
