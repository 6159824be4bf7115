// Package detour sends requests over connections of their own, beside the pool of an http.Transport,
// while attempts on the pool fail.
//
// A balancer of connections chooses a replica once for a connection. The pool of an http.Transport
// has one HTTP/2 connection for a host. Over HTTP/1, it prefers the connection that became idle
// last, which is often a connection to the replica that fails fastest. So a request that is sent
// again through the pool is likely to reach the same replica. A detour is a new connection, for
// which the balancer chooses again.
package detour

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/neterr"
)

const (
	// mostHosts is the largest number of hosts in trouble that have detours.
	mostHosts = 1024
	// troubled is how long a host is in trouble after its newest failure.
	troubled = 90 * time.Second
)

// Dispatcher sends requests through the pool of an http.Transport, and over detours that the same
// http.Transport dials. It is made by New.
type Dispatcher struct {
	transport  *http.Transport
	superseded error

	count atomic.Int32 // of hosts in trouble
	mu    sync.Mutex
	hosts map[origin]*host
}

// origin is a scheme and the host of a URL, with its port if the URL has one.
type origin struct{ scheme, host string }

// New returns a Dispatcher for t. An attempt that was canceled with the cause superseded was too
// slow, and another attempt has won. If a caller cancels an attempt, the attempt has not failed.
func New(t *http.Transport, superseded error) *Dispatcher {
	return &Dispatcher{transport: t, superseded: superseded, hosts: map[origin]*host{}}
}

// InTrouble reports whether an attempt to any host may take a detour. It takes no lock.
func (d *Dispatcher) InTrouble() bool { return d != nil && d.count.Load() > 0 }

// RoundTrip sends req as an http.Transport does.
func (d *Dispatcher) RoundTrip(req *http.Request) (*http.Response, error) {
	made := attemptOf(req.Context())
	made.note(func(r *Route) { r.Reached = d })
	h := d.hostOf(req, made.isHedge()) // a hedge is a sign of trouble
	var begin time.Time
	if h != nil {
		if resp, err, sent := h.detour(d, req, made); sent {
			return resp, err
		}
		begin = time.Now()
	}
	resp, err := d.transport.RoundTrip(req)
	v := d.verdict(req, made, resp, err)
	made.note(func(r *Route) { r.end(v, false) })
	if h == nil && v == failed {
		h = d.hostOf(req, true)
	}
	if h != nil {
		h.notePool(v, time.Since(begin))
	}
	return resp, err
}

// mayDetour reports whether another connection can serve req as a connection of the pool would. A
// limit of the pool is a limit. A request that closes its connection has one of its own.
func (d *Dispatcher) mayDetour(req *http.Request) bool {
	t := d.transport
	return !t.DisableKeepAlives && t.MaxIdleConnsPerHost >= 0 && t.MaxConnsPerHost <= 0 &&
		req.URL != nil && req.Header != nil && !req.Close && addressOf(req.URL) != ""
}

// hostOf returns the host of req if it is in trouble. With enter, it is in trouble from now on. hostOf returns nil
// if too many others are, or if req cannot take a detour.
func (d *Dispatcher) hostOf(req *http.Request, enter bool) *host {
	if !enter && !d.InTrouble() || !d.mayDetour(req) {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	key := origin{req.URL.Scheme, req.URL.Host}
	h := d.hosts[key]
	if h == nil && enter && len(d.hosts) < mostHosts {
		h = newHost(d.transport, key, addressOf(req.URL))
		d.hosts[key] = h
		d.count.Add(1)
		time.AfterFunc(h.tick(), func() { d.tend(h) })
	}
	return h
}

// tend closes the detours of h that have been idle for too long, and forgets h when it is well. A
// timer is never stopped or reset: it may belong to another testing/synctest bubble than a request.
func (d *Dispatcher) tend(h *host) {
	d.mu.Lock()
	over := h.isWell()
	if over {
		delete(d.hosts, h.origin)
		d.count.Add(-1)
	}
	d.mu.Unlock()
	if h.closeIdle(over); !over {
		time.AfterFunc(h.tick(), func() { d.tend(h) })
	}
}

// CloseIdleConnections closes the idle connections of the pool, and the idle detours.
func (d *Dispatcher) CloseIdleConnections() {
	d.transport.CloseIdleConnections()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range d.hosts {
		h.closeIdle(true)
	}
}

// verdict is what a result says about the connection that it came from.
type verdict int

const (
	nothing verdict = iota
	well
	failed
)

// verdict judges the result of an attempt. A limit belongs to the service and not to a replica, so
// a 429 says nothing. An attempt that got no connection says nothing about connections. A deadline
// of the caller counts, because a replica that hangs shows in no other way.
func (d *Dispatcher) verdict(req *http.Request, made *Attempt, resp *http.Response, err error) verdict {
	if err == nil {
		switch resp.StatusCode {
		case http.StatusInternalServerError, http.StatusBadGateway,
			http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return failed
		case http.StatusTooManyRequests:
			return nothing
		}
		return well
	}
	if ctx := req.Context(); ctx.Err() != nil || neterr.CanceledBelow(err) {
		if isLate(ctx) || errors.Is(context.Cause(ctx), d.superseded) && !made.isHedge() {
			return failed
		}
		return nothing
	}
	if neterr.NeverSent(err) || neterr.InvalidRequest(err) {
		return nothing
	}
	return failed
}

// isLate reports whether the deadline of ctx has passed. http.Client.Timeout closes Request.Cancel
// at the same time, which may come first.
func isLate(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline) || errors.Is(context.Cause(ctx), context.DeadlineExceeded)
}
