// Package memnet is a network in memory. In a testing/synctest bubble its
// connections block durably, so that a real net/http client and server can talk
// in virtual time.
package memnet

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// Network is a net.Listener that its own Dial connects to, whatever the address.
type Network struct {
	conns chan net.Conn
	done  chan struct{}
	close sync.Once
	dials atomic.Int64
	open  atomic.Int64
}

// New returns a Network that listens.
func New() *Network {
	return &Network{conns: make(chan net.Conn), done: make(chan struct{})}
}

// Dial connects to the listener. Its form is the form of
// [http.Transport.DialContext].
func (n *Network) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	n.dials.Add(1)
	client, server := n.pipe()
	select {
	case n.conns <- server:
		n.open.Add(1)
		return client, nil
	case <-n.done:
		return nil, &net.OpError{Op: "dial", Net: network, Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
	}
}

// Dials returns how often Dial was called.
func (n *Network) Dials() int { return int(n.dials.Load()) }

// Conns returns how many connections its clients have open.
func (n *Network) Conns() int { return int(n.open.Load()) }

func (n *Network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.done:
		return nil, net.ErrClosed
	}
}

func (n *Network) Close() error {
	n.close.Do(func() { close(n.done) })
	return nil
}

func (n *Network) Addr() net.Addr { return addr{} }

type addr struct{}

func (addr) Network() string { return "memory" }
func (addr) String() string  { return "memory" }

// Serve runs an http.Server with h on a new Network, and returns a Transport
// that connects to it. stop ends both.
func Serve(h http.Handler) (n *Network, base *http.Transport, stop func()) {
	n, base = New(), new(http.Transport)
	return n, base, n.Run(&http.Server{Handler: h}, base)
}

// ServeProtocol is Serve over HTTP/2 without TLS if http2 is set, and otherwise over HTTP/1.
func ServeProtocol(h http.HandlerFunc, http2 bool) (n *Network, base *http.Transport, stop func()) {
	n = New()
	srv := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	base = &http.Transport{Protocols: new(http.Protocols)}
	for _, p := range []*http.Protocols{srv.Protocols, base.Protocols} {
		p.SetHTTP1(!http2)
		p.SetUnencryptedHTTP2(http2)
	}
	return n, base, n.Run(srv, base)
}

// Run serves srv on n, to which it connects base. stop ends both.
func (n *Network) Run(srv *http.Server, base *http.Transport) (stop func()) {
	base.DialContext = n.Dial
	var serving sync.WaitGroup
	srv.ConnState = countConns(&serving)
	serving.Go(func() { _ = srv.Serve(n) }) // always http.ErrServerClosed
	return func() {
		base.CloseIdleConnections()
		_ = srv.Close()
		serving.Wait()
	}
}

// countConns returns a ConnState that counts a server's connections. From Go 1.27 on, a server
// keeps a connection for half a second if its handler left a request body unread. A bubble must
// not end in that time.
func countConns(open *sync.WaitGroup) func(net.Conn, http.ConnState) {
	return func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed, http.StateHijacked:
			open.Done()
		}
	}
}

// EndConnection makes the response the last one of its HTTP/1 connection. From Go 1.27 on,
// net/http drains a body that is closed early, unless its connection ends anyway. The drain waits
// for a Read in flight with a mutex, and such a wait stops the clock of a bubble.
func EndConnection(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
}
