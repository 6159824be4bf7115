package http2_test

import (
	"net"
	"net/http"
	"sync"
)

// server speaks HTTP/2 without TLS, and departs from HTTP/2 when it is ordered to.
type server struct {
	handler http.Handler
	window  uint32 // of each stream at first

	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	greet  func(*conn)                // what the next connection meets
	orders map[string][]func(*stream) // what requests meet before there is a handler
	open   map[*conn]bool
}

func newServer(l net.Listener, h http.Handler, window uint32) *server {
	s := &server{
		handler: h, window: window, listener: l,
		orders: make(map[string][]func(*stream)), open: make(map[*conn]bool),
	}
	s.wg.Go(s.serve)
	return s
}

func (s *server) serve() {
	for {
		nc, err := s.listener.Accept()
		if err != nil {
			return
		}
		c := newConn(s, nc)
		s.mu.Lock()
		s.open[c] = true
		s.mu.Unlock()
		s.wg.Go(func() {
			c.serve()
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.open, c)
		})
	}
}

// order sets what the first arrivals of the request meet.
func (s *server) order(id string, meet ...func(*stream)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders[id] = meet
}

func (s *server) meet(id string) func(*stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.orders[id]
	if len(left) == 0 {
		return nil
	}
	s.orders[id] = left[1:]
	return left[0]
}

func (s *server) greeting() func(*conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	greet := s.greet
	s.greet = nil
	return greet
}

func (s *server) conns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// close ends all connections, and waits for their end.
func (s *server) close() {
	_ = s.listener.Close()
	s.mu.Lock()
	for c := range s.open {
		_ = c.net.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}
