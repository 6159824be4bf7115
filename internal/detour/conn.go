package detour

import (
	"context"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/neterr"
)

// conn is a detour. Its host's mutex guards the fields that have no type of sync/atomic.
type conn struct {
	*http.ClientConn
	proxy  string    // through which it was dialed, or ""
	proven bool      // has answered well
	trying bool      // is serving its first request
	idle   time.Time // since when, unless a request is in flight
	took   latency

	remote  string // its address, for traces
	used    atomic.Bool
	http2   atomic.Bool // known after the first response
	retired atomic.Bool // takes no more requests, and is closed when the last one is over

	release atomic.Pointer[func()] // of the HTTP/1 request in flight
}

func newConn(cc *http.ClientConn, proxy, remote string) *conn {
	c := &conn{ClientConn: cc, proxy: proxy, remote: remote, idle: time.Now()}
	cc.SetStateHook(func(*http.ClientConn) { c.stateChanged() })
	return c
}

// stateChanged runs in goroutines of net/http, and in any call of a method of the ClientConn. It
// takes no lock.
func (c *conn) stateChanged() {
	release := c.release.Load() // before InFlight: a later one belongs to the next request
	if c.InFlight() > 0 {
		return
	}
	if release != nil && c.release.CompareAndSwap(release, nil) {
		(*release)()
	}
	if c.retired.Load() && c.Err() == nil {
		go c.Close() // which writes over TLS
	}
}

func (c *conn) free() {
	if release := c.release.Swap(nil); release != nil {
		(*release)()
	}
}

// closeWhenOver closes a retired connection once no request is in flight. A reservation is in
// flight too, and a retired connection gets no other.
func (c *conn) closeWhenOver() {
	if c.InFlight() == 0 {
		_ = c.Close()
	}
}

// usable reports whether the connection can take a request at once.
func (c *conn) usable() bool { return !c.trying && c.Available() > 0 }

// lost reports whether the connection can take no request any more.
func (c *conn) lost() bool { return c.Err() != nil || c.Available() == 0 && c.InFlight() == 0 }

// load is the lower, the sooner an answer is expected.
func (c *conn) load() time.Duration { return c.took.mean * time.Duration(c.InFlight()+1) }

// roundTrip sends req, for which a place is reserved. It reports whether the body is as it was, if
// the server has not processed the request: net/http would send the request again by itself.
func (c *conn) roundTrip(req *http.Request) (resp *http.Response, err error, unsent bool) {
	ctx, cancel := req.Context(), context.CancelCauseFunc(nil)
	if !c.http2.Load() {
		// Over HTTP/1, a ClientConn derives a context that it never cancels after an error.
		ctx, cancel = context.WithCancelCause(ctx)
	}
	c.traceGotten(ctx)
	own := req.WithContext(ctx)
	body := guardBody(own)
	returned := false
	defer func() {
		if cancel != nil && !returned {
			cancel(nil)
		}
	}()
	resp, err = c.ClientConn.RoundTrip(own)
	if err != nil {
		return nil, neterr.Bare(err), body.end(true, neterr.Unprocessed(err) && req.Context().Err() == nil)
	}
	returned = true
	body.end(false, false)
	c.http2.Store(resp.ProtoMajor == 2)
	resp.Request = req
	c.keep(cancel, resp)
	return resp, nil, false
}

// keep cancels the context of a request once the request is over. An HTTP/1 connection has one
// request at a time.
func (c *conn) keep(cancel context.CancelCauseFunc, resp *http.Response) {
	if cancel == nil {
		return
	}
	release := func() { cancel(nil) }
	if resp.Body == http.NoBody {
		release()
		return
	}
	if previous := c.release.Swap(&release); previous != nil {
		(*previous)() // the next reservation hid its end from the hook
	}
	if c.InFlight() == 0 { // over HTTP/2, all of a short response may have come
		c.free()
	}
}

// addressOf returns the address that an http.Transport dials for u, or "" if there is none. A host
// name that is not ASCII would need golang.org/x/net/idna.
func addressOf(u *url.URL) string {
	port := u.Port()
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return ""
	case port == "" && u.Scheme == "http":
		port = "80"
	case port == "":
		port = "443"
	}
	for _, b := range []byte(u.Host) {
		if b >= 0x80 {
			return ""
		}
	}
	return join(u.Hostname(), port)
}
