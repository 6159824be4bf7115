package fault

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Link is what happens to one connection through a [Proxy].
type Link struct {
	Refused bool // it cannot be made
	Up      Cut  // of what the client sends; After < 0: nothing goes through
	Down    Cut  // of what the server sends
	Reused  bool // Up begins with what comes after an answer
	Trickle bool // an answer goes through a few bytes at a time
}

// Cut is how one direction of a connection ends.
type Cut struct {
	After int64 // bytes that go through
	How   How
}

// How is a way in which a connection ends.
type How int

const (
	Never How = iota
	Reset     // with a TCP reset
	Close     // properly, as TCP sees it
	Stall     // not at all: nothing goes through any more
)

// Orders says what the connections of a [Proxy] meet. It is asked from one
// goroutine at a time.
type Orders interface {
	Refuse() bool // whether the next dial is refused
	Next() *Link  // what the next connection meets; nil is nothing
}

// Proxy hands connections on to a server, and treats each as ordered.
type Proxy struct {
	// Patience is how long a connection stalls at most. 0 is until the end.
	Patience time.Duration

	target   string
	listener net.Listener
	wg       sync.WaitGroup
	closing  chan struct{}
	hung     chan struct{}
	hangs    sync.Once

	mu     sync.Mutex
	orders Orders
	conns  int
}

// NewProxy returns a Proxy that listens on the loopback address, in front of
// the server at target.
func NewProxy(target string, orders Orders) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, listener: l, orders: orders, closing: make(chan struct{}), hung: make(chan struct{})}
	p.wg.Go(p.serve)
	return p, nil
}

// Hung is closed once a connection stalls.
func (p *Proxy) Hung() <-chan struct{} { return p.hung }

// Conns is how many connections its clients have open.
func (p *Proxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns
}

// Close ends all connections, and waits for their end.
func (p *Proxy) Close() {
	close(p.closing)
	_ = p.listener.Close()
	p.wg.Wait()
}

// nobody is where nobody listens: tcpmux, which is not in use.
const nobody = "127.0.0.1:1"

// DialContext connects to the Proxy, whatever the address, or is refused.
func (p *Proxy) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	addr := p.listener.Addr().String()
	p.mu.Lock()
	if p.orders.Refuse() {
		addr = nobody
	}
	p.conns++ // a dial that nobody waits for any more makes an idle connection
	p.mu.Unlock()
	c, err := dial(ctx, network, addr)
	if err != nil {
		p.count(-1)
		return nil, err
	}
	return &clientConn{TCPConn: c, close: sync.OnceValue(func() error {
		defer p.count(-1)
		return c.Close()
	})}, nil
}

func (p *Proxy) count(conns int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns += conns
}

// clientConn is a client's connection to the proxy.
type clientConn struct {
	*net.TCPConn
	close func() error
}

func (c *clientConn) Close() error { return c.close() }

func (p *Proxy) serve() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		link := p.orders.Next()
		p.mu.Unlock()
		if link == nil {
			link = new(Link)
		}
		p.wg.Go(func() { p.connect(c.(*net.TCPConn), link) })
	}
}

// connect serves one connection until its end.
func (p *Proxy) connect(client *net.TCPConn, link *Link) {
	server, err := dial(context.Background(), "tcp", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	t := &tunnel{proxy: p, client: client, server: server, link: link, ended: make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(t.up)
	wg.Go(t.down)
	select {
	case <-t.ended:
	case <-p.closing:
		t.end(Close)
	}
	wg.Wait()
}

// tunnel is a connection through the proxy.
type tunnel struct {
	proxy          *Proxy
	client, server *net.TCPConn
	link           *Link
	answered       atomic.Bool // something has come from the server

	once  sync.Once
	ended chan struct{}
}

// up hands on what the client sends. If the server does not take any more, up still reads it:
// otherwise a reset could hide the answer from the client.
func (t *tunnel) up() {
	if t.link.Up.After < 0 {
		t.cut(t.link.Up.How)
		return
	}
	counts := func() bool { return !t.link.Reused || t.answered.Load() }
	err := t.pump(t.server, t.client, t.link.Up, counts)
	if _, broken := err.(*writeError); broken {
		_, err = io.Copy(io.Discard, t.client)
	}
	t.closed(err)
}

func (t *tunnel) down() {
	counts := func() bool { t.answered.Store(true); return true }
	if err := t.pump(t.client, t.server, t.link.Down, counts); err != io.EOF {
		t.closed(err)
		return
	}
	_ = t.client.CloseWrite() // what it still sends will be taken
}

// closed hands on that one side is gone, and whether it ended properly.
func (t *tunnel) closed(err error) {
	if err == nil || err == io.EOF {
		t.end(Close)
		return
	}
	t.end(Reset)
}

// writeError distinguishes an error of writing from an error of reading.
type writeError struct{ error }

// pump hands bytes on, until the cut, or until one side ends, in the way that
// the error says. Bytes count towards the cut if counts says so when they come.
func (t *tunnel) pump(dst, src *net.TCPConn, cut Cut, counts func() bool) error {
	buffer := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buffer)
	p := buffer[:]
	if t.link.Trickle && src == t.server {
		p = p[:5]
	}
	left := cut.After
	for {
		n, err := src.Read(p)
		chunk := p[:n]
		if n > 0 && counts() && cut.How != Never {
			chunk = chunk[:min(left, int64(n))]
			left -= int64(len(chunk))
		}
		if _, err := dst.Write(chunk); err != nil {
			return &writeError{err}
		}
		if len(chunk) < n {
			t.cut(cut.How)
			return io.EOF
		}
		if err != nil {
			return err
		}
	}
}

func (t *tunnel) cut(how How) {
	if how != Stall {
		t.end(how)
		return
	}
	t.proxy.hangs.Do(func() { close(t.proxy.hung) })
	var patience <-chan time.Time
	if t.proxy.Patience > 0 {
		patience = time.After(t.proxy.Patience)
	}
	select {
	case <-patience:
		t.end(Close)
	case <-t.ended:
	}
}

// end ends both connections, once.
func (t *tunnel) end(how How) {
	t.once.Do(func() {
		if how == Reset {
			_ = t.client.SetLinger(0)
			_ = t.server.SetLinger(0)
		}
		_ = t.client.Close()
		_ = t.server.Close()
		close(t.ended)
	})
}
