//go:build unix

package redisbudget_test

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// handling is what happens to what a client and a server send each other.
type handling int32

const (
	forwarded  handling = iota
	late                // what the server sends arrives 5 s later
	lost                // nothing arrives any more on a connection that was used so
	broken              // connections end
	unanswered          // the next connection on which the server sends something ends, and the others are forwarded
)

// proxy hands connections on to a server.
type proxy struct {
	addr    string
	target  atomic.Value // string
	handles atomic.Int32
	done    chan struct{}
	wg      sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]struct{}
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	p := &proxy{addr: freeAddr(t), done: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	p.target.Store(target)
	p.open(t)
	t.Cleanup(func() {
		close(p.done)
		p.shut()
		p.wg.Wait()
	})
	return p
}

// open accepts connections, also again after shut.
func (p *proxy) open(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", p.addr)
	require.NoError(t, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener = l
	p.wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(client) })
		}
	})
}

// shut ends all connections, and refuses others.
func (p *proxy) shut() {
	p.mu.Lock()
	_ = p.listener.Close()
	p.mu.Unlock()
	p.cut()
}

func (p *proxy) meet(h handling) { p.handles.Store(int32(h)) }

// cut ends all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) hold(c net.Conn) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = struct{}{}
	return func() {
		_ = c.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
	}
}

func (p *proxy) serve(client net.Conn) {
	defer p.hold(client)()
	server, err := net.Dial("tcp", p.target.Load().(string))
	if err != nil {
		return
	}
	defer p.hold(server)()
	var up sync.WaitGroup
	up.Go(func() {
		p.copy(server, client, false)
		_ = server.Close()
	})
	p.copy(client, server, true)
	_ = client.Close()
	up.Wait()
}

// copy forwards what one side sends, until it ends.
func (p *proxy) copy(to, from net.Conn, answers bool) {
	buf := make([]byte, 4096)
	dead := false
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		switch handling(p.handles.Load()) {
		case broken:
			return
		case lost:
			dead = true
		case late:
			if answers {
				p.wait(5 * time.Second)
			}
		case unanswered:
			if answers && p.handles.CompareAndSwap(int32(unanswered), int32(forwarded)) {
				return
			}
		}
		if dead {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.done:
	}
}
