// Package replicas is a service of several replicas behind a balancer of connections, in memory. In a
// testing/synctest bubble, it runs in virtual time. The balancer chooses a replica once for a
// connection, as a Kubernetes Service or a network load balancer does.
package replicas

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/test/certificate"
	"github.com/retryhttp/retryhttp/internal/test/pause"
)

// Protocol is how clients talk to a World.
type Protocol int

const (
	HTTP1 Protocol = iota
	HTTP2          // without TLS
	HTTP1TLS
	HTTP2TLS
)

func (p Protocol) String() string {
	return [...]string{"HTTP/1", "HTTP/2", "HTTP/1 over TLS", "HTTP/2 over TLS"}[p]
}

// Scheme returns the scheme of the World's URLs.
func (p Protocol) Scheme() string {
	if p >= HTTP1TLS {
		return "https"
	}
	return "http"
}

// World is a service. Its fields that are functions may be set before the first request.
type World struct {
	Protocol Protocol
	Replicas []*Replica
	// Choose returns the replica of the nth connection, from 1. By default, replicas take turns.
	Choose func(n int) int
	// DialTime is how long a connection takes.
	DialTime time.Duration

	dials   atomic.Int64
	open    atomic.Int64
	frozen  atomic.Int64 // connections up to this one are dead and silent
	serving sync.WaitGroup
}

// Replica is one server of a World.
type Replica struct {
	Requests atomic.Int64 // that have reached it
	handler  atomic.Pointer[http.HandlerFunc]
	world    *World
	current  atomic.Pointer[process]
}

// Serve has the replica serve with h from now on.
func (r *Replica) Serve(h http.HandlerFunc) { r.handler.Store(&h) }

// New returns a World of n replicas that are well.
func New(p Protocol, n int) *World {
	w := &World{Protocol: p, Choose: func(conn int) int { return conn % n }}
	for range n {
		r := &Replica{world: w}
		r.Serve(Well(20 * time.Millisecond))
		r.start()
		w.Replicas = append(w.Replicas, r)
	}
	return w
}

func (w *World) protocols(to *http.Protocols) {
	to.SetHTTP1(w.Protocol == HTTP1 || w.Protocol == HTTP1TLS)
	to.SetHTTP2(w.Protocol == HTTP2TLS)
	to.SetUnencryptedHTTP2(w.Protocol == HTTP2)
}

// Transport returns a new http.Transport that connects to the balancer.
func (w *World) Transport() *http.Transport {
	t := &http.Transport{
		DialContext: w.Dial, Protocols: new(http.Protocols), MaxIdleConnsPerHost: 100, IdleConnTimeout: 90 * time.Second,
		TLSClientConfig: &tls.Config{RootCAs: certificate.Pool()},
	}
	w.protocols(t.Protocols)
	return t
}

// URL returns the address of the service.
func (w *World) URL() string { return w.Protocol.Scheme() + "://service.example/" }

// Dial is the Dial function of an http.Transport.
func (w *World) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	n := w.dials.Add(1)
	if pause.For(ctx, w.DialTime) != nil {
		return nil, ctx.Err()
	}
	conn, err := w.Replicas[w.Choose(int(n))].current.Load().net.Dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	w.open.Add(1)
	return &connection{Conn: conn, world: w, number: n}, nil
}

// Dials returns how many connections were asked for.
func (w *World) Dials() int { return int(w.dials.Load()) }

// Open returns how many connections are open at the client's end.
func (w *World) Open() int { return int(w.open.Load()) }

// Freeze makes the connections that exist dead and silent: what is written on them is lost.
func (w *World) Freeze() { w.frozen.Store(w.dials.Load()) }

// Requests returns how many requests have reached the replicas.
func (w *World) Requests() (n int) {
	for _, r := range w.Replicas {
		n += int(r.Requests.Load())
	}
	return n
}

// Close ends the servers and their connections.
func (w *World) Close() {
	for _, r := range w.Replicas {
		_ = r.current.Load().server.Close()
	}
	w.serving.Wait()
}

type connection struct {
	net.Conn
	world  *World
	number int64
	closed atomic.Bool
	ending atomic.Bool
}

// SetWriteDeadline is called before the alert with which TLS ends. A pipe has no buffer, so the alert
// would wait for a server that does not read. net/http holds a mutex meanwhile, and such a wait stops
// the clock of a bubble.
func (c *connection) SetWriteDeadline(t time.Time) error {
	c.ending.Store(true)
	return c.Conn.SetWriteDeadline(t)
}

func (c *connection) Write(p []byte) (int, error) {
	if c.ending.Load() || c.number <= c.world.frozen.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *connection) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	c.world.open.Add(-1)
	return c.Conn.Close()
}

// Well answers after the time takes.
func Well(takes time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(takes)
		_, _ = io.WriteString(w, "hello")
	}
}

// Status answers with a status at once.
func Status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "sorry")
	}
}

// Hang answers nothing.
func Hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// Reset ends the connection over HTTP/1, and the stream over HTTP/2.
func Reset(w http.ResponseWriter, _ *http.Request) {
	h, ok := w.(http.Hijacker)
	if !ok {
		panic(http.ErrAbortHandler)
	}
	conn, _, err := h.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	reset(conn)
}
