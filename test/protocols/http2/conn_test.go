package http2_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// conn is a server's side of a connection. It can send false frames, which net/http's own server
// would not send.
type conn struct {
	server *server
	net    net.Conn
	out    *outbox
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex // guards the fields below, and the framer's writing
	framer  *http2.Framer
	encoder *hpack.Encoder
	block   bytes.Buffer
	streams map[uint32]*stream
	last    uint32 // the newest stream, known to the reader alone
}

func newConn(s *server, nc net.Conn) *conn {
	c := &conn{server: s, net: nc, out: newOutbox(nc), streams: make(map[uint32]*stream)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.framer = http2.NewFramer(c.out, nc)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.encoder = hpack.NewEncoder(&c.block)
	return c
}

// serve reads frames until the connection ends, and waits for what it began.
func (c *conn) serve() {
	var wg sync.WaitGroup
	wg.Go(c.out.flush)
	if _, err := io.CopyN(io.Discard, c.net, int64(len(http2.ClientPreface))); err == nil && c.begin() {
		for {
			f, err := c.framer.ReadFrame()
			if err != nil {
				break
			}
			c.take(f, &wg)
		}
	}
	_, _ = io.Copy(io.Discard, c.net) // otherwise a reset may hide the answer
	c.cancel()
	c.end()
	wg.Wait()
	_ = c.net.Close()
}

// begin reports whether the connection is to be served.
func (c *conn) begin() bool {
	if greet := c.server.greeting(); greet != nil {
		greet(c)
		return false
	}
	c.write(func() {
		_ = c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: c.server.window})
		_ = c.framer.WriteWindowUpdate(0, 1<<24)
	})
	return true
}

func (c *conn) take(f http2.Frame, wg *sync.WaitGroup) {
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		c.headers(f, wg)
	case *http2.DataFrame:
		if n := f.Length; n > 0 {
			c.write(func() { _ = c.framer.WriteWindowUpdate(0, n) })
		}
		if s := c.stream(f.StreamID); s != nil {
			s.in.put(f.Data(), f.StreamEnded())
		}
	case *http2.RSTStreamFrame:
		if s := c.stream(f.StreamID); s != nil {
			s.close()
		}
	case *http2.SettingsFrame:
		if !f.IsAck() {
			c.write(func() { _ = c.framer.WriteSettingsAck() })
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			c.write(func() { _ = c.framer.WritePing(true, f.Data) })
		}
	}
}

// headers begins a stream, or ends what its client sends.
func (c *conn) headers(f *http2.MetaHeadersFrame, wg *sync.WaitGroup) {
	if s := c.stream(f.StreamID); s != nil {
		for _, field := range f.RegularFields() {
			s.request.Trailer.Set(field.Name, field.Value)
		}
		s.in.put(nil, true)
		return
	}
	if f.StreamID <= c.last {
		return // the stream has ended
	}
	s := newStream(c, f)
	if meet := c.server.meet(s.id()); meet != nil {
		meet(s)
		return
	}
	c.mu.Lock()
	c.streams[f.StreamID] = s
	c.mu.Unlock()
	wg.Go(s.serve)
}

func (c *conn) stream(id uint32) *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.streams[id]
}

// write calls frames while no other frames are written.
func (c *conn) write(frames func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	frames()
}

// writeHeaders sends a header block. The connection is locked.
func (c *conn) writeHeaders(stream uint32, end bool, h http.Header, pseudo ...hpack.HeaderField) {
	c.block.Reset()
	for _, f := range pseudo {
		_ = c.encoder.WriteField(f)
	}
	for name, values := range h {
		for _, v := range values {
			_ = c.encoder.WriteField(hpack.HeaderField{Name: lower(name), Value: v})
		}
	}
	_ = c.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: stream, BlockFragment: c.block.Bytes(), EndStream: end, EndHeaders: true,
	})
}

// goAway reports which stream was the last that may have been processed, and why there will be no
// others.
func (c *conn) goAway(last uint32, code http2.ErrCode) {
	c.write(func() { _ = c.framer.WriteGoAway(last, code, nil) })
}

// end sends nothing any more. It still reads, until the client closes.
func (c *conn) end() { c.out.close() }
