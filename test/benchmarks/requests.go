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
	measurements := []struct {
		into   *[]result
		rounds int
		n      int
		among  []peer
		with   func(p peer) (func(int) error, func())
	}{
		{&c.get, many, scale(2_000), peers, func(p peer) (func(int) error, func()) {
			return repeat(p.build(roundTripperFunc(succeed), once), "GET", nowhere, nil), nothing
		}},
		{&c.parallel, many, scale(2_000), peers, func(p peer) (func(int) error, func()) {
			return repeatInParallel(p.build(roundTripperFunc(succeed), once), "GET", nowhere), nothing
		}},
		{&c.post, many, scale(200), peers, func(p peer) (func(int) error, func()) {
			return repeat(p.build(roundTripperFunc(succeed), once), "POST", nowhere, make([]byte, 64<<10)), nothing
		}},
		{&c.loopback, rounds, scale(1_000), peers, func(p peer) (func(int) error, func()) {
			base, url, stop := serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "ok")
			}))
			return repeat(p.build(base, once), "GET", url, nil), stop
		}},
		{&c.retries, many, scale(1_000), withLoop, func(p peer) (func(int) error, func()) {
			return repeat(p.build(failTwice(newShortBody), again), "GET", nowhere, nil), nothing
		}},
		{&c.retriesOnLoopback, rounds, scale(500), withLoop, func(p peer) (func(int) error, func()) {
			base, url, stop := serve(failingTwice())
			return repeat(p.build(base, again), "GET", url, nil), stop
		}},
	}
	for _, m := range measurements {
		var contenders []contender
		var stops []func()
		for _, p := range m.among {
			run, stop := m.with(p)
			contenders, stops = append(contenders, contender{p.name, run}), append(stops, stop)
		}
		*m.into, err = compare(m.rounds, m.n, contenders)
		for _, stop := range stops {
			stop()
		}
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

func nothing() {}

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

// serve runs h on loopback, and returns a transport for it and its URL.
func serve(h http.Handler) (base *http.Transport, url string, stop func()) {
	base, url, _, stop = serveCounting(h)
	return base, url, stop
}

// serveCounting is serve, and counts the connections that are opened.
func serveCounting(h http.Handler) (base *http.Transport, url string, opened *atomic.Int64, stop func()) {
	opened = new(atomic.Int64)
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	srv.Start()
	base = &http.Transport{}
	return base, srv.URL, opened, func() {
		base.CloseIdleConnections()
		srv.CloseClientConnections() // those that were not given back
		srv.Close()
	}
}
