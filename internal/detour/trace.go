package detour

import (
	"context"
	"errors"
	"net"
	"net/http/httptrace"
	"time"
)

// A ClientConn reports no connection to the hooks of net/http/httptrace, as the pool does.

// traceAsked reports that an attempt waits for a connection to address.
func traceAsked(ctx context.Context, address string) {
	if trace := httptrace.ContextClientTrace(ctx); trace != nil && trace.GetConn != nil {
		trace.GetConn(address)
	}
}

// traceGotten reports that an attempt has got the connection c.
func (c *conn) traceGotten(ctx context.Context) {
	reused := c.used.Swap(true)
	if reused {
		traceAsked(ctx, c.host.address)
	}
	if trace := httptrace.ContextClientTrace(ctx); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: namedConn(c.remote), Reused: reused, WasIdle: reused})
	}
}

// namedConn stands in for a connection that a ClientConn does not give away. Hooks ask it for the
// remote address. They must not use it otherwise, as they must not use a connection of the pool.
type namedConn string

var errNotYours = errors.New("the connection belongs to an http.Transport")

func (c namedConn) Network() string                { return "tcp" }
func (c namedConn) String() string                 { return string(c) }
func (c namedConn) RemoteAddr() net.Addr           { return c }
func (c namedConn) LocalAddr() net.Addr            { return namedConn("") }
func (namedConn) Read([]byte) (int, error)         { return 0, errNotYours }
func (namedConn) Write([]byte) (int, error)        { return 0, errNotYours }
func (namedConn) Close() error                     { return errNotYours }
func (namedConn) SetDeadline(time.Time) error      { return errNotYours }
func (namedConn) SetReadDeadline(time.Time) error  { return errNotYours }
func (namedConn) SetWriteDeadline(time.Time) error { return errNotYours }
