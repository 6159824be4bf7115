package http2_test

import (
	"net"
	"sync"
)

// outbox holds what is to be written, so that a reader never waits for the other side to read.
type outbox struct {
	to net.Conn

	mu     sync.Mutex
	more   *sync.Cond
	held   []byte
	closed bool
}

func newOutbox(to net.Conn) *outbox {
	o := &outbox{to: to}
	o.more = sync.NewCond(&o.mu)
	return o
}

func (o *outbox) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return 0, net.ErrClosed
	}
	o.held = append(o.held, p...)
	o.more.Signal()
	return len(p), nil
}

func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.more.Signal()
}

// take waits for bytes to write; nil is the end.
func (o *outbox) take() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.held) == 0 && !o.closed {
		o.more.Wait()
	}
	p := o.held
	o.held = nil
	return p
}

// flush writes until the outbox is closed, and then ends this direction of the connection, if the
// connection has directions.
func (o *outbox) flush() {
	for p := o.take(); p != nil; p = o.take() {
		if _, err := o.to.Write(p); err != nil {
			break
		}
	}
	if half, ok := o.to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
