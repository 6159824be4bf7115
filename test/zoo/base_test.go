package zoo

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp/internal/test/fault"
)

// writeBuffer is so small that a connection cannot hold a large upload.
const writeBuffer = 16 << 10

// base is a net/http transport that knows how many connections it has open.
type base struct {
	*http.Transport
	conns atomic.Int32
}

func newBase(http2 bool) *base {
	b := &base{Transport: &http.Transport{Protocols: new(http.Protocols)}}
	b.Protocols.SetHTTP1(!http2)
	b.Protocols.SetUnencryptedHTTP2(http2)
	b.DialContext = b.dial
	return b
}

func (b *base) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	b.conns.Add(1) // a dial that nobody waits for any more makes an idle connection
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		b.conns.Add(-1)
		return nil, err
	}
	closed := sync.OnceValue(func() error {
		defer b.conns.Add(-1)
		return c.Close()
	})
	return &conn{c, closed}, c.(*net.TCPConn).SetWriteBuffer(writeBuffer)
}

type conn struct {
	net.Conn
	close func() error
}

func (c *conn) Close() error { return c.close() }

// rest closes idle connections until none is open.
func (b *base) rest(t *testing.T) {
	t.Helper()
	assert.True(t, fault.Eventually(atRest, func() bool {
		b.CloseIdleConnections() // again, for one may become idle now
		return b.conns.Load() == 0
	}), "connections are left open")
}

func closeIdle(rt http.RoundTripper) {
	if c, ok := rt.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
