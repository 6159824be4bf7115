package benchmarks

import (
	"context"
	"io"
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
		return &answering{requests: &requests, answers: make(chan string, 1)}, nil
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
	closing  sync.Once
}

func (a *answering) Write(p []byte) (int, error) {
	if a.requests.Add(1)%3 == 0 {
		a.answers <- "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	} else {
		a.answers <- "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 15\r\n\r\ntry again later"
	}
	return len(p), nil
}

func (a *answering) Read(p []byte) (int, error) {
	if a.rest == "" {
		a.rest = <-a.answers
	}
	if a.rest == "" {
		return 0, io.EOF
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

func (a *answering) Close() error {
	a.closing.Do(func() { close(a.answers) })
	return nil
}
