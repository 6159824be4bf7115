package http2_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

func lower(name string) string { return strings.ToLower(name) }

// stream is one request at the server, and its http.ResponseWriter.
type stream struct {
	conn    *conn
	number  uint32
	request *http.Request
	in      *inbox
	cancel  context.CancelFunc
	header  http.Header
	begun   bool // the response's header was sent
	ended   bool // nothing of the response is left to send
}

func newStream(c *conn, f *http2.MetaHeadersFrame) *stream {
	s := &stream{conn: c, number: f.StreamID, header: make(http.Header)}
	c.last = f.StreamID
	s.in = newInbox(s, c.server.window)
	r := &http.Request{
		Method: f.PseudoValue("method"), URL: &url.URL{Path: f.PseudoValue("path")},
		Header: make(http.Header), Trailer: make(http.Header), Body: s.in,
	}
	for _, field := range f.RegularFields() {
		r.Header.Add(field.Name, field.Value)
	}
	if f.StreamEnded() {
		s.in.put(nil, true)
	}
	ctx, cancel := context.WithCancel(c.ctx)
	s.request, s.cancel = r.WithContext(ctx), cancel
	context.AfterFunc(ctx, s.in.cut)
	return s
}

func (s *stream) id() string { return strings.TrimPrefix(s.request.URL.Path, "/") }

// serve runs the handler, and ends what it left open, as net/http would.
func (s *stream) serve() {
	defer s.close()
	defer func() {
		if recover() != nil {
			s.reset(http2.ErrCodeInternal)
		}
	}()
	s.conn.server.handler.ServeHTTP(s, s.request)
	if !s.begun && !s.ended {
		panic(http.ErrAbortHandler)
	}
	s.finish(nil)
	if !s.in.whole() {
		s.reset(http2.ErrCodeNo)
	}
}

// close forgets the stream.
func (s *stream) close() {
	s.cancel()
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	delete(s.conn.streams, s.number)
}

func (s *stream) Header() http.Header { return s.header }

func (s *stream) WriteHeader(status int) {
	s.conn.write(func() {
		s.begun = true
		s.conn.writeHeaders(s.number, false, s.header, hpack.HeaderField{Name: ":status", Value: strconv.Itoa(status)})
	})
}

func (s *stream) Write(p []byte) (int, error) {
	if !s.begun {
		s.WriteHeader(http.StatusOK)
	}
	s.conn.write(func() { _ = s.conn.framer.WriteData(s.number, false, p) })
	return len(p), nil
}

// finish ends the response, with a trailer if it has one.
func (s *stream) finish(trailer http.Header) {
	s.conn.write(func() {
		switch {
		case s.ended:
		case len(trailer) > 0:
			s.conn.writeHeaders(s.number, true, trailer)
		default:
			_ = s.conn.framer.WriteData(s.number, true, nil)
		}
		s.ended = true
	})
}

func (s *stream) reset(code http2.ErrCode) {
	s.ended = true
	s.conn.write(func() { _ = s.conn.framer.WriteRSTStream(s.number, code) })
}

// grant lets the client send n bytes more.
func (s *stream) grant(n uint32) {
	s.conn.write(func() { _ = s.conn.framer.WriteWindowUpdate(s.number, n) })
}

// inbox is a request's body. Only a Read of it grants a window.
type inbox struct {
	stream *stream

	mu     sync.Mutex
	more   *sync.Cond
	held   bytes.Buffer
	window int // what the client may still send
	end    error
}

func newInbox(s *stream, window uint32) *inbox {
	in := &inbox{stream: s, window: int(window)}
	in.more = sync.NewCond(&in.mu)
	return in
}

func (in *inbox) put(p []byte, last bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.held.Write(p)
	in.window -= len(p)
	if last && in.end == nil {
		in.end = io.EOF
	}
	in.more.Broadcast()
}

// cut ends a body that is not whole.
func (in *inbox) cut() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.end == nil {
		in.end = io.ErrUnexpectedEOF
	}
	in.more.Broadcast()
}

func (in *inbox) whole() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.end == io.EOF
}

// fill waits until the client may send nothing more, or has nothing more.
func (in *inbox) fill() {
	in.mu.Lock()
	defer in.mu.Unlock()
	for in.window > 0 && in.end == nil {
		in.more.Wait()
	}
}

func (in *inbox) Read(p []byte) (int, error) {
	const room = 64 << 10
	in.mu.Lock()
	defer in.mu.Unlock()
	for in.held.Len() == 0 && in.end == nil {
		if in.window < room/2 {
			in.window += room
			in.stream.grant(room)
		}
		in.more.Wait()
	}
	if in.held.Len() > 0 {
		return in.held.Read(p)
	}
	return 0, in.end
}

func (in *inbox) Close() error { return nil }
