package http3_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/certificate"
	"github.com/retryhttp/retryhttp/internal/test/fault"
)

// atRest is how long it may take at most until all has ended.
const atRest = 20 * time.Second

// stage is a server, and a base that talks to it.
type stage struct {
	t       *testing.T
	handler *fault.Server
	base    *http3.Transport
	addr    string
	url     string
	conns   atomic.Int64 // open at the servers

	mu      sync.Mutex
	servers []*server
	closed  bool
	orders  map[string][]http3.ErrCode // what requests are reset with before there is a handler
	serving http.HandlerFunc           // in place of handler, if it is not nil
}

// server is a server at the stage's address.
type server struct {
	http   *http3.Server
	quic   *quic.Transport
	socket *socket
	done   chan struct{}
	conn   atomic.Pointer[quic.Conn] // the newest
}

// socket can stop receiving and sending.
type socket struct {
	net.PacketConn
	mute atomic.Bool
}

func (s *socket) WriteTo(p []byte, addr net.Addr) (int, error) {
	if s.mute.Load() {
		return len(p), nil
	}
	return s.PacketConn.WriteTo(p, addr)
}

func (s *socket) ReadFrom(p []byte) (int, net.Addr, error) {
	for {
		n, addr, err := s.PacketConn.ReadFrom(p)
		if err != nil || !s.mute.Load() {
			return n, addr, err
		}
	}
}

// newStage makes a client that takes a connection for dead after idle.
func newStage(t *testing.T, idle time.Duration) *stage {
	t.Helper()
	s := &stage{
		t: t, handler: fault.NewServer(fault.NewLedger()), addr: "127.0.0.1:0",
		orders: make(map[string][]http3.ErrCode),
	}
	s.base = &http3.Transport{
		TLSClientConfig: &tls.Config{RootCAs: certificate.Pool()},
		QUICConfig:      &quic.Config{MaxIdleTimeout: idle, HandshakeIdleTimeout: fault.Ample},
	}
	s.start()
	return s
}

// start has a new server at the address, unless the stage is closed: a client may have given up before its server
// is replaced.
func (s *stage) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	pc, err := net.ListenPacket("udp4", s.addr)
	require.NoError(s.t, err)
	s.addr = pc.LocalAddr().String()
	s.url = "https://" + s.addr
	v := &server{socket: &socket{PacketConn: pc}, done: make(chan struct{})}
	v.quic = &quic.Transport{Conn: v.socket}
	v.http = &http3.Server{Handler: s, ConnContext: func(ctx context.Context, c *quic.Conn) context.Context {
		s.conns.Add(1)
		context.AfterFunc(c.Context(), func() { s.conns.Add(-1) })
		v.conn.Store(c)
		return fault.WithDrop(ctx, func() { _ = c.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeInternalError), "") })
	}}
	ln, err := v.quic.ListenEarly(
		http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{certificate.Own()}}),
		&quic.Config{MaxIdleTimeout: fault.Ample},
	)
	require.NoError(s.t, err)
	s.servers = append(s.servers, v)
	go func() {
		defer close(v.done)
		_ = v.http.ServeListener(ln)
	}()
}

// newest is the server that lives.
func (s *stage) newest() *server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.servers[len(s.servers)-1]
}

// replace puts another server at the address. The previous server goes without a word.
func (s *stage) replace() {
	old := s.newest().socket
	old.mute.Store(true)
	_ = old.PacketConn.Close()
	s.start()
}

// ServeHTTP resets requests as ordered, and hands on the others.
func (s *stage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := strings.TrimPrefix(r.URL.Path, "/")
	s.mu.Lock()
	left, serve := s.orders[id], s.serving
	if len(left) > 0 {
		s.orders[id] = left[1:]
	}
	s.mu.Unlock()
	if len(left) > 0 {
		reset(w, left[0])
		return
	}
	if serve != nil {
		serve(w, r)
		return
	}
	s.handler.ServeHTTP(w, r)
}

// serve has f answer in place of the handler.
func (s *stage) serve(f http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serving = f
}

// reset ends both directions of the request's stream.
func reset(w http.ResponseWriter, code http3.ErrCode) {
	str, err := w.(http3.HTTPStreamer).HTTPStream()
	if err != nil {
		panic(err)
	}
	str.CancelRead(quic.StreamErrorCode(code))
	str.CancelWrite(quic.StreamErrorCode(code))
}

// idle waits until the base's connections have been closed. The base must still know all of them.
func (s *stage) idle() {
	s.t.Helper()
	rt := retryhttp.New(s.base, retryhttp.Policy{})
	assert.True(s.t, fault.Eventually(atRest, func() bool {
		rt.CloseIdleConnections() // again, for one may become idle now
		return s.conns.Load() == 0
	}), "connections are left open")
}

// close waits until everything of the stage has ended. It must close the base: a connection on
// which a request failed is not among the base's idle connections any more.
func (s *stage) close() {
	s.t.Helper()
	assert.NoError(s.t, s.base.Close())
	s.handler.Close()
	s.mu.Lock()
	servers := s.servers
	s.closed = true
	s.mu.Unlock() // handlers that begin only now take it, and a server's end waits for them
	for _, v := range servers {
		s.end(v)
	}
}

func (s *stage) end(v *server) {
	_ = v.http.Close()
	_ = v.quic.Close()
	_ = v.socket.Close()
	<-v.done
}

// leavesNothing compares what is open after the test with what was open before it.
func leavesNothing(t *testing.T) {
	t.Helper()
	newStage(t, fault.Ample).close() // what the process opens for its first socket stays open
	before := fault.TakeInventory()
	t.Cleanup(func() { assert.NoError(t, before.Leaked(atRest)) })
}
