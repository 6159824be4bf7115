package benchmarks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
)

const nowhere = "http://host.example/"

// send sends one request, which must succeed, and reads the response.
func send(d doer, method, url string, body []byte) error {
	return sendWithin(context.Background(), d, method, url, body)
}

func sendWithin(ctx context.Context, d doer, method, url string, body []byte) error {
	var source io.Reader
	if body != nil {
		source = bytes.NewReader(body)
	}
	req, err := newRequest(ctx, method, url, source)
	if err != nil {
		return err
	}
	resp, err := d.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return discard(io.Discard, resp.Body)
}

func repeat(d doer, method, url string, body []byte) func(int) error {
	return func(n int) error {
		for range n {
			if err := send(d, method, url, body); err != nil {
				return err
			}
		}
		return nil
	}
}

func repeatInParallel(d doer, method, url string) func(int) error {
	return func(n int) error {
		var group sync.WaitGroup
		errs := make([]error, runtime.GOMAXPROCS(0))
		for i := range errs {
			group.Go(func() { errs[i] = repeat(d, method, url, nil)(max(1, n/len(errs))) })
		}
		group.Wait()
		return errors.Join(errs...)
	}
}

// costs are the measurements of single requests.
type costs struct{ get, parallel, loopback, post, retries, retriesOnLoopback []result }

// requests measures what a request costs.
func requests(rounds int, full bool) (c costs, err error) {
	scale := func(n int) int {
		if full {
			return n
		}
		return 10
	}
	// What takes a microsecond is measured in short turns and many rounds, so
	// that most of them are not interrupted.
	many := rounds
	if full {
		many *= 10
	}
	once := settings{attempts: 3}
	again := settings{attempts: 3, retryAll: true}
	withLoop := withFloor("a loop and nothing else", loop)
	payload := make([]byte, 64<<10) // one for all: how long a copy takes depends on the address
	measurements := []struct {
		into   *[]result
		rounds int
		n      int
		among  []peer
		with   func(p peer) (func(int) error, *server)
	}{
		{&c.get, many, scale(2_000), peers, func(p peer) (func(int) error, *server) {
			return repeat(p.build(roundTripperFunc(succeed), once), "GET", nowhere, nil), nil
		}},
		{&c.parallel, many, scale(2_000), peers, func(p peer) (func(int) error, *server) {
			return repeatInParallel(p.build(roundTripperFunc(succeed), once), "GET", nowhere), nil
		}},
		{&c.post, many, scale(200), peers, func(p peer) (func(int) error, *server) {
			return repeat(p.build(roundTripperFunc(succeed), once), "POST", nowhere, payload), nil
		}},
		{&c.loopback, rounds, scale(1_000), peers, func(p peer) (func(int) error, *server) {
			s := serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "ok")
			}))
			return repeat(p.build(s.base, once), "GET", s.url, nil), s
		}},
		{&c.retries, many, scale(1_000), withLoop, func(p peer) (func(int) error, *server) {
			return repeat(p.build(failTwice(newShortBody), again), "GET", nowhere, nil), nil
		}},
		{&c.retriesOnLoopback, rounds, scale(500), withLoop, func(p peer) (func(int) error, *server) {
			s := serve(failingTwice())
			return repeat(p.build(s.base, again), "GET", s.url, nil), s
		}},
	}
	for _, m := range measurements {
		var contenders []contender
		var servers []*server
		for _, p := range m.among {
			run, s := m.with(p)
			c := contender{name: p.name, run: run}
			if s != nil {
				c.tidy, servers = s.disconnect, append(servers, s)
			}
			contenders = append(contenders, c)
		}
		*m.into, err = compare(m.rounds, m.n, contenders)
		for _, s := range servers {
			s.stop()
		}
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

// withFloor returns the peers that retry, after a floor for them.
func withFloor(name string, build func(http.RoundTripper) doer) []peer {
	least := peer{name: name, build: func(base http.RoundTripper, _ settings) doer { return build(base) }}
	return append([]peer{least}, retriers()...)
}

// loop is the floor of a request that fails twice: it reads and closes the
// failures, and sends the request again, and does nothing else.
func loop(base http.RoundTripper) doer {
	return &http.Client{Transport: roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		for range 2 {
			resp, err := base.RoundTrip(req)
			if err != nil {
				return nil, err
			}
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if err != nil {
				return nil, err
			}
		}
		return base.RoundTrip(req)
	})}
}

// failingTwice is a server that fails two of three requests. It is not for
// concurrent use.
func failingTwice() http.Handler {
	n := 0
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n++; n%3 != 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "try again later")
		}
	})
}

// server is a server on loopback, with a transport to it.
type server struct {
	base   *http.Transport
	url    string
	opened atomic.Int64 // connections
	srv    *httptest.Server

	mu    sync.Mutex
	conns []net.Conn // of the transport, also those that it has closed
}

func serve(h http.Handler) *server {
	s := &server{srv: httptest.NewUnstartedServer(h)}
	s.base = &http.Transport{DialContext: s.dial}
	s.srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.opened.Add(1)
		}
	}
	s.srv.Start()
	s.url = s.srv.URL
	return s
}

func (s *server) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.conns = append(s.conns, conn)
	}
	return conn, err
}

// disconnect closes all connections. An http.Transport keeps the connections of responses that a
// peer did not close.
func (s *server) disconnect() {
	s.base.CloseIdleConnections()
	s.srv.CloseClientConnections()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.conns {
		_ = conn.Close()
	}
	s.conns = nil
}

func (s *server) stop() {
	s.disconnect()
	s.srv.Close()
}
