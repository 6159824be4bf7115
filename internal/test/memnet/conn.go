package memnet

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

// conn is one end of a connection, which either side can reset as it can reset TCP.
type conn struct {
	net.Conn
	reset *atomic.Bool // by either side
	close func() error
}

func (n *Network) pipe() (client, server net.Conn) {
	a, b := net.Pipe()
	reset := new(atomic.Bool)
	return &conn{a, reset, sync.OnceValue(func() error { n.open.Add(-1); return a.Close() })}, &conn{b, reset, b.Close}
}

// SetLinger is as in net.TCPConn: after SetLinger(0), Close resets the connection.
func (c *conn) SetLinger(sec int) error {
	c.reset.Store(sec == 0)
	return nil
}

func (c *conn) Close() error { return c.close() }

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, c.meant(err)
}

func (c *conn) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil // a pipe would have a Read return nothing
	}
	n, err := c.Conn.Write(p)
	return n, c.meant(err)
}

// meant returns the error with which TCP would have ended.
func (c *conn) meant(err error) error {
	if err != nil && c.reset.Load() {
		return &net.OpError{Op: "read", Net: "memory", Err: syscall.ECONNRESET}
	}
	return err
}
