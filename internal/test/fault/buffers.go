package fault

import (
	"context"
	"net"
	"sync"
)

const bufferSize = 16 << 10

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// writeBuffer is so small that the kernel cannot hold a large request on its way. So its client
// feels a server that does not read. Small buffers for reading would do the same, but with them
// TCP waits for its timers.
const writeBuffer = 16 << 10

func dial(ctx context.Context, network, addr string) (*net.TCPConn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	tcp := c.(*net.TCPConn)
	return tcp, tcp.SetWriteBuffer(writeBuffer)
}
