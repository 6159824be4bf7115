package replicas

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/retryhttp/retryhttp/internal/test/certificate"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
)

// process is a server on a network of its own.
type process struct {
	net    *memnet.Network
	server *http.Server

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func (r *Replica) start() {
	p := &process{net: memnet.New(), conns: map[net.Conn]bool{}}
	p.server = &http.Server{
		Protocols: new(http.Protocols), ConnState: p.noteConn,
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
			r.Requests.Add(1)
			(*r.handler.Load())(rw, req)
		}),
	}
	r.world.protocols(p.server.Protocols)
	var listener net.Listener = p.net
	if r.world.Protocol >= HTTP1TLS {
		config := &tls.Config{Certificates: []tls.Certificate{certificate.Own()}, NextProtos: []string{"h2"}}
		if r.world.Protocol == HTTP1TLS {
			config.NextProtos = []string{"http/1.1"}
		}
		listener = tls.NewListener(p.net, config)
	}
	r.world.serving.Go(func() { _ = p.server.Serve(listener) }) // always http.ErrServerClosed
	r.current.Store(p)
}

func (p *process) noteConn(c net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch state {
	case http.StateNew:
		p.conns[c] = true
	case http.StateClosed, http.StateHijacked:
		delete(p.conns, c)
	}
}

func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		reset(c)
	}
}

// Kill resets all connections of the replica.
func (r *Replica) Kill() { r.current.Load().kill() }

// Restart replaces the server, as a rolling update does. The old server finishes its requests, and
// sends GOAWAY over HTTP/2. After the time patience, it resets its connections.
func (r *Replica) Restart(patience time.Duration) {
	old := r.current.Load()
	r.start()
	r.world.serving.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if old.server.Shutdown(ctx) != nil {
			old.kill()
			_ = old.server.Close()
		}
	})
}

// reset closes a connection at the server's end, as a process that is killed does.
func reset(conn net.Conn) {
	if tc, ok := conn.(*tls.Conn); ok {
		conn = tc.NetConn()
	}
	_ = conn.(interface{ SetLinger(int) error }).SetLinger(0)
	_ = conn.Close()
}
