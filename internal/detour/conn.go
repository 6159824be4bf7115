package detour

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/retryhttp/retryhttp/internal/neterr"
	"github.com/retryhttp/retryhttp/internal/respbody"
)

// conn is a detour. Its host's mutex guards the fields that have no type of sync/atomic.
type conn struct {
	*http.ClientConn
	host    *host
	proxy   string // through which it was dialed, or ""
	proven  bool   // has answered well
	took    latency
	results record

	remote  string // its address, for traces
	used    atomic.Bool
	retired atomic.Bool // takes no more requests, and is closed when the last one is over

	// requests counts those under way, from the reservation to the end of the response body. InFlight
	// counts a stream that was reset until the server answers, and a silent server never does.
	requests atomic.Int32
	idle     atomic.Int64 // since when, in Unix nanoseconds; 0 until the first is over
}

// reserve reserves a place for a request, and reports whether there is one. The caller holds the host's mutex.
func (c *conn) reserve() bool {
	if c.Reserve() != nil {
		return false
	}
	c.requests.Add(1)
	return true
}

// over ends a request that is under way.
func (c *conn) over() {
	c.idle.Store(time.Now().UnixNano())
	if c.requests.Add(-1) > 0 {
		return
	}
	switch { // in another goroutine: Close writes over TLS, and this one may hold a lock
	case c.retired.Load():
		go c.Close()
	case c.host.closing.Load():
		go c.host.closeIdle(false)
	}
}

// retire has c closed when the last request on it is over.
func (c *conn) retire() {
	c.retired.Store(true) // before requests is read
	if c.requests.Load() == 0 {
		go c.Close()
	}
}

// onTrial reports whether the connection serves a request, and has not answered well yet.
func (c *conn) onTrial() bool { return !c.proven && c.requests.Load() > 0 }

// usable reports whether the connection can take a request at once.
func (c *conn) usable() bool { return !c.onTrial() && c.Available() > 0 && !c.tooIdle() }

// tooIdle reports whether the server may have closed the connection. It compares times of day, as the pool
// does, because the other clock may stand still while a computer sleeps.
func (c *conn) tooIdle() bool {
	return c.requests.Load() == 0 && time.Since(time.Unix(0, c.idle.Load())) >= c.host.idleTimeout()
}

// lost reports whether the connection can take no request any more. That none is available and none in flight
// would say the same, but a request may end between the two questions.
func (c *conn) lost() bool { return c.Err() != nil }

// load is the lower, the sooner a success is expected.
func (c *conn) load() float64 {
	return float64(c.took.mean) * float64(c.InFlight()+1) / (1 - c.results.failing)
}

// roundTrip sends req, for which a place is reserved. It reports whether the body is as it was, if
// the server has not processed the request: net/http would send the request again by itself.
//
// The request is over when its response has ended or is closed, and its body is sent, or when its context
// ends. A server may answer early, and receive the rest of the request afterwards.
func (c *conn) roundTrip(req *http.Request) (resp *http.Response, err error, unsent bool) {
	// Over HTTP/1, a ClientConn derives a context that it never cancels after an error.
	ctx, cancel := context.WithCancel(req.Context())
	own := req.WithContext(ctx)
	sent := guardBody(own)
	resp, err = c.ClientConn.RoundTrip(own)
	if err != nil {
		cancel()
		c.over()
		return nil, neterr.Bare(err), sent.failed(neterr.Unprocessed(err))
	}
	resp.Request = req
	if resp.StatusCode == http.StatusSwitchingProtocols {
		sent.answered(cancel) // the connection is the caller's, and is never closed here
		return resp, nil, false
	}
	stop := context.AfterFunc(ctx, c.over)
	body := &respbody.Body{Cancel: func(error) {
		if stop() { // which is true once
			c.over()
		}
		cancel()
	}}
	body.Hold(true)
	body.Wrap(resp, 0, nil)
	sent.answered(func() { body.Hold(false) })
	return resp, nil, false
}

var ports = map[string]string{"http": "80", "https": "443"}

// addressOf returns the address that an http.Transport dials for u, or "" if there is none. A host
// name that is not ASCII would need golang.org/x/net/idna.
func addressOf(u *url.URL) string {
	port := ports[u.Scheme]
	notASCII := func(r rune) bool { return r > unicode.MaxASCII }
	if port == "" || u.Hostname() == "" || strings.ContainsFunc(u.Host, notASCII) {
		return ""
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port))
}
