package benchmarks

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// failTwiceOverAConnection returns an http.Transport whose connections answer
// 503 to two of three requests. No server and no kernel take part, whose time
// would hide what is measured.
func failTwiceOverAConnection() (base http.RoundTripper, stop func()) {
	var requests atomic.Int64
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return &answering{requests: &requests, answers: make(chan string, 1), closed: make(chan struct{})}, nil
	}}
	return transport, transport.CloseIdleConnections
}

// answering is a connection that takes each Write for a request, as a GET with a
// short header is, and answers it.
type answering struct {
	net.Conn // nil: what http.Transport does not call
	requests *atomic.Int64
	answers  chan string
	rest     string // of the answer that is read
	closed   chan struct{}
	close    sync.Once
}

func (a *answering) Write(p []byte) (int, error) {
	answer := "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 15\r\n\r\ntry again later"
	if a.requests.Add(1)%3 == 0 {
		answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	}
	select {
	case a.answers <- answer:
		return len(p), nil
	case <-a.closed:
		return 0, net.ErrClosed
	}
}

func (a *answering) Read(p []byte) (int, error) {
	if a.rest == "" {
		select {
		case a.rest = <-a.answers:
		case <-a.closed:
			return 0, net.ErrClosed
		}
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

func (a *answering) Close() error {
	a.close.Do(func() { close(a.closed) })
	return nil
}
