package fault

import (
	"bytes"
	"context"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Server is an http.Handler that treats each request as it was ordered to, and
// as it should when no orders are left. A request's id is its path without the
// slash.
type Server struct {
	Ledger *Ledger
	// Patience is how long something hangs at most. 0 is until the end.
	Patience time.Duration
	// InBubble ends an HTTP/1 connection with an answer that stalls or trickles. From Go 1.27 on, net/http
	// drains a body that is closed early, unless its connection ends anyway. The drain waits for
	// a Read in flight with a mutex, and such a wait stops the clock of a bubble.
	InBubble bool

	mu      sync.Mutex
	orders  map[string][]*Fault
	objects map[string]*Object
	closing chan struct{}
	hung    chan struct{}
	hangs   sync.Once
}

// NewServer returns a Server that keeps l.
func NewServer(l *Ledger) *Server {
	return &Server{
		Ledger: l, orders: make(map[string][]*Fault), objects: make(map[string]*Object),
		closing: make(chan struct{}), hung: make(chan struct{}),
	}
}

// Order makes the first arrivals of the request meet faults, one each. Without faults, the request
// is treated well from now on.
func (s *Server) Order(id string, faults ...*Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(faults) == 0 {
		delete(s.orders, id)
		return
	}
	s.orders[id] = faults
}

// Offer answers the request with an Object if it meets no fault. A nil Object ends the offer.
func (s *Server) Offer(id string, o *Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o == nil {
		delete(s.objects, id)
		return
	}
	s.objects[id] = o
}

// Hung is closed once a request is met by a fault that hangs.
func (s *Server) Hung() <-chan struct{} { return s.hung }

// Close ends all that hangs.
func (s *Server) Close() { close(s.closing) }

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := strings.TrimPrefix(r.URL.Path, "/")
	a, want, before := s.Ledger.arrive(id, r)
	x := &Exchange{id: id, w: w, r: r, server: s, arrival: a, want: want}
	// Over HTTP/1 net/http would otherwise read the request before it answers.
	_ = http.NewResponseController(w).EnableFullDuplex()
	s.mu.Lock()
	var f *Fault
	if orders := s.orders[id]; before < len(orders) {
		f = orders[before]
	}
	object := s.objects[id]
	s.mu.Unlock()
	if f == nil || f.Answer == nil {
		if object != nil {
			object.serve(x)
		} else {
			x.Succeed()
		}
		return
	}
	f.Answer(x)
	if r.ProtoMajor == 1 && !f.Wire {
		// The handler reads the rest of the request here. Otherwise net/http would read it after
		// the handler, and then take the connection for one that is still being read. In full
		// duplex that breaks the next request on the connection: golang/go#68560.
		_ = r.Body.Close()
	}
}

// Exchange is a request in a handler, and what can be done about it.
type Exchange struct {
	id      string
	w       http.ResponseWriter
	r       *http.Request
	server  *Server
	arrival *Arrival
	want    Want
}

// AnswerSize is how long a good answer is.
const AnswerSize = 8 << 10

// answerTo is the good answer to a request, which is no other's.
func answerTo(id string) []byte {
	line := []byte("received " + id + "\n")
	return bytes.Repeat(line, AnswerSize/len(line)+1)[:AnswerSize]
}

// Writer returns the handler's ResponseWriter, for faults of a server that knows its
// type.
func (x *Exchange) Writer() http.ResponseWriter { return x.w }

// Receive reads the whole request, and reports whether it came whole.
func (x *Exchange) Receive() bool {
	return x.server.Ledger.receive(x.arrival, x.want, x.r, math.MaxInt)
}

// Glance reads the beginning of the request.
func (x *Exchange) Glance() {
	x.server.Ledger.receive(x.arrival, x.want, x.r, 1000)
}

// Succeed answers as a server should. A request that did not come whole gets no answer.
func (x *Exchange) Succeed() {
	if !x.Receive() {
		x.abort()
	}
	x.answered(http.StatusOK)
	answer := answerTo(x.id)
	x.w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	_, _ = x.w.Write(answer)
}

// answered notes that the client may see that status.
func (x *Exchange) answered(status int) {
	x.server.Ledger.answered(x.arrival, status)
}

// Head sends a response header, and some of a body of the length; -1 is a
// length that is not announced.
func (x *Exchange) Head(status, length int, some string) {
	if status == http.StatusOK {
		x.answered(status)
	}
	if length >= 0 {
		x.w.Header().Set("Content-Length", strconv.Itoa(length))
	}
	x.w.WriteHeader(status)
	_, _ = io.WriteString(x.w, some)
	_ = http.NewResponseController(x.w).Flush()
}

// abort ends the connection, or the stream of an HTTP/2 or HTTP/3 connection.
func (x *Exchange) abort() {
	panic(http.ErrAbortHandler)
}

// dropKey is for the function that drops a request's connection.
type dropKey struct{}

// WithDrop returns a context for the requests of a connection that drop ends as a network
// does.
func WithDrop(ctx context.Context, drop func()) context.Context {
	return context.WithValue(ctx, dropKey{}, drop)
}

// WithConn is an http.Server's ConnContext, by which a connection can be reset.
func WithConn(ctx context.Context, c net.Conn) context.Context {
	return WithDrop(ctx, func() {
		_ = c.(interface{ SetLinger(int) error }).SetLinger(0)
		_ = c.Close()
	})
}

// drop resets the request's connection.
func (x *Exchange) drop() { x.r.Context().Value(dropKey{}).(func())() }

// reset makes abort end an HTTP/1 connection with a reset, as it ends a stream.
func (x *Exchange) reset() {
	if x.r.ProtoMajor == 1 {
		x.drop()
	}
}

// pause waits, unless the client goes.
func (x *Exchange) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-x.r.Context().Done():
	case <-x.server.closing:
	}
}

// stalls announces that the answer, whose header comes next, will stall or trickle.
func (x *Exchange) stalls() {
	if x.server.InBubble && x.r.ProtoMajor == 1 {
		x.w.Header().Set("Connection", "close")
	}
}

// Hang waits until the client has gone, or the server goes. Over HTTP/1 net/http does not notice
// that the client has gone before the request has been read.
func (x *Exchange) Hang() {
	x.hangs()
	select {
	case <-x.r.Context().Done():
	case <-x.server.closing:
	case <-x.patience():
	}
}

// hangs reports that nothing more will come, or that there will be no end.
func (x *Exchange) hangs() {
	x.server.hangs.Do(func() { close(x.server.hung) })
}

func (x *Exchange) patience() <-chan time.Time {
	if x.server.Patience == 0 {
		return nil
	}
	return time.After(x.server.Patience)
}

// Write sends p at once.
func (x *Exchange) Write(p []byte) (int, error) {
	n, err := x.w.Write(p)
	_ = http.NewResponseController(x.w).Flush()
	return n, err
}

// pour writes p to w again and again, with pauses in between.
func (x *Exchange) pour(w io.Writer, p []byte, pause time.Duration) {
	patience := x.patience()
	for {
		if _, err := w.Write(p); err != nil {
			return
		}
		if pause == 0 {
			continue
		}
		select {
		case <-time.After(pause):
		case <-patience:
			return
		case <-x.server.closing:
			return
		}
	}
}

// conn takes over the connection of an HTTP/1 request, and sends text on it. net/http no longer
// closes it.
func (x *Exchange) conn(text string) net.Conn {
	c, _, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = io.WriteString(c, text)
	return c
}
