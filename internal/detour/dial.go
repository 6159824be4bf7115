package detour

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/neterr"
)

const (
	// mostPatient is the longest that an attempt waits for a dial. Half of the time that the attempt
	// has is the other limit. After that it takes the pool.
	mostPatient = time.Second
	// longestDial is the longest that a dial takes, also after its attempt has taken the pool.
	longestDial = 5 * time.Second
)

// dial returns a new detour with a place reserved for req. It returns nil if there is none in time.
// A connection that comes later serves another attempt, unless this attempt had ended before its dial did.
func (h *host) dial(req *http.Request, proxy string) *conn {
	traced := false
	defer func() {
		if !traced { // the hook has panicked
			h.welcome(nil, "", "")
		}
	}()
	traceAsked(req.Context(), h.address)
	traced = true
	patience := mostPatient
	if deadline, ok := req.Context().Deadline(); ok {
		patience = min(patience, time.Until(deadline)/2)
	}
	wait, cancel := context.WithTimeout(req.Context(), patience)
	defer cancel()
	dialed := make(chan *conn)
	// Not in this goroutine: a Dial function may ignore its context, and net/http does so while it
	// writes the first bytes of HTTP/2.
	go h.connect(req.Context(), wait, proxy, dialed)
	select {
	case c := <-dialed:
		return c
	case <-wait.Done():
		return nil
	}
}

// connect dials, and hands the connection to the attempt if the attempt still waits.
func (h *host) connect(attempt, wait context.Context, proxy string, dialed chan<- *conn) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(attempt))
	limit := time.AfterFunc(longestDial, cancel)
	stop := context.AfterFunc(attempt, cancel)
	var remote atomic.Pointer[string] // a dial that loses a race of addresses may end late
	remote.Store(&h.address)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		ConnectDone: func(_, address string, err error) {
			if err == nil {
				remote.Store(&address)
			}
		},
	})
	cc, err := h.transport.NewClientConn(ctx, h.origin.scheme, h.address)
	if err != nil && neterr.NoClientConn(err) {
		h.barred.Store(true) // net/http leaves the connection open
	}
	limit.Stop()
	stop()
	if err != nil { // a connection may live as long as the context of its dial
		cancel()
	}
	c := h.welcome(cc, proxy, *remote.Load())
	select {
	case dialed <- c:
	case <-wait.Done():
		if c != nil {
			h.giveBack(c) // which closes it, if the idle detours are being closed
		}
	}
}

// welcome makes a detour of a connection, with a place reserved. The connection is nil if its dial failed, and there
// is no use for it if the trouble is over. Then welcome returns nil.
func (h *host) welcome(cc *http.ClientConn, proxy, remote string) *conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dialing--
	if cc == nil {
		return nil
	}
	c := &conn{ClientConn: cc, host: h, proxy: proxy, remote: remote}
	if h.gone || !c.reserve() {
		c.retire()
		return nil
	}
	h.conns = append(h.conns, c)
	return c
}

// proxyOf returns the proxy that req goes through, or "". It returns false if a dial for the host
// may take another proxy: NewClientConn asks Proxy about a request of its own. A Proxy that returns
// its proxies in turn is asked no more, because each question changes which one a request gets.
func (h *host) proxyOf(req *http.Request) (string, bool) {
	proxy := h.transport.Proxy
	if proxy == nil {
		return "", true
	}
	name := (&url.URL{Host: h.address}).Hostname()
	dialing := (&http.Request{
		Method: http.MethodGet,
		URL:    &url.URL{Scheme: h.origin.scheme, Host: name, Path: "/"},
		Header: http.Header{},
		Host:   name,
	}).WithContext(req.Context())
	own, err := proxy(req)
	if err != nil {
		return "", false
	}
	other, err := proxy(dialing)
	if err != nil || text(own) != text(other) {
		h.barred.Store(true)
		return "", false
	}
	return text(own), true
}

func text(u *url.URL) string {
	if u == nil {
		return ""
	}
	return u.String()
}
