package fault_test

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/fault"
)

// patience is how long what hangs is waited for. Where nothing hangs, the limits
// are there, and are so long that a busy machine does not run into them.
const (
	patience = time.Second
	ample    = time.Minute
)

// once has the proxy treat one connection as ordered.
type once struct{ link *fault.Link }

func (o *once) Refuse() bool {
	if o.link == nil || !o.link.Refused {
		return false
	}
	o.link = nil
	return true
}

func (o *once) Next() *fault.Link {
	l := o.link
	o.link = nil
	return l
}

// stage is a server, a proxy before it, and a Transport that talks to them.
type stage struct {
	server *fault.Server
	http   *httptest.Server
	proxy  *fault.Proxy
	base   *http.Transport
	url    string
}

func newStage(t *testing.T, f *fault.Fault, http2 bool) *stage {
	t.Helper()
	s := &stage{server: fault.NewServer(fault.NewLedger())}
	s.http = httptest.NewUnstartedServer(s.server)
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.http.Config.Protocols = new(http.Protocols)
	s.http.Config.Protocols.SetHTTP1(!http2)
	s.http.Config.Protocols.SetUnencryptedHTTP2(http2) // TLS would take most of the time
	s.http.Start()
	var err error
	s.proxy, err = fault.NewProxy(s.http.Listener.Addr().String(), &once{f.Link})
	require.NoError(t, err)
	s.base = s.http.Client().Transport.(*http.Transport)
	s.base.Protocols = s.http.Config.Protocols
	s.base.DialContext = s.proxy.DialContext
	s.base.MaxResponseHeaderBytes = 64 << 10
	if f.Link != nil && f.Effect == fault.Hangs {
		// All attempts go to one HTTP/2 connection, until somebody finds that it is dead.
		s.base.HTTP2 = &http.HTTP2Config{SendPingTimeout: patience, PingTimeout: 2 * patience}
	}
	s.url = s.http.URL
	return s
}

// rest waits until no connection is open.
func (s *stage) rest(t *testing.T) {
	t.Helper()
	assert.True(t, comesTrue(func() bool {
		s.base.CloseIdleConnections() // again, for one may become idle now
		return s.proxy.Conns() == 0
	}), "connections are left open")
}

func (s *stage) close() {
	s.server.Close()
	s.proxy.Close()
	s.http.Close()
}

// afterwards does something once there is a response.
type afterwards struct {
	base http.RoundTripper
	do   func()
}

func (a *afterwards) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := a.base.RoundTrip(req)
	go a.do()
	return resp, err
}

// run makes the case's request, and holds what came of it against what should.
func run(t *testing.T, n uint64, c fault.Case, http2 bool) {
	t.Helper()
	s := newStage(t, c.Fault, http2)
	policy := retryhttp.Policy{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	limit := ample
	switch {
	case c.Fault.Effect == fault.Hangs:
		limit = patience
	case c.Fault.Effect == fault.SpoilHangs && c.Limit == fault.Deadline:
		limit = 5 * patience // for the response header must come before it
	}
	switch c.Limit {
	case fault.PerAttempt:
		policy.AttemptTimeout, policy.MaxAttempts, policy.Budget = limit, -1, retryhttp.Unlimited{} // for the machine may hang as well
	case fault.Deadline:
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	var rt http.RoundTripper = retryhttp.New(s.base, policy)
	if c.Fault.Reused {
		r := fault.Send(ctx, rt, s.server.Ledger, s.url, "before", 0, fault.Methods[0], fault.Kinds[0])
		require.True(t, r.Succeeded(), "%v", r)
	}
	leave := func() {
		select {
		case <-s.server.Hung():
		case <-s.proxy.Hung():
		case <-ctx.Done():
		}
		cancel()
	}
	switch {
	case c.HangsForEver() && c.Fault.Effect == fault.Hangs:
		go leave()
	case c.HangsForEver():
		rt = &afterwards{rt, leave}
	}
	s.server.Order("request", c.Fault)
	r := fault.Send(ctx, rt, s.server.Ledger, s.url, "request", n, c.Method, c.Kind)
	assert.NoError(t, c.Judge(r), "%v", r)
	if arrivals := s.server.Ledger.Arrivals("request"); !http2 && !c.Fault.Reused { // else net/http may resend
		assert.LessOrEqual(t, arrivals, r.Outcome.Attempts, "attempts")
		if c.Fault.Effect == fault.Fails && r.Succeeded() {
			assert.GreaterOrEqual(t, r.Outcome.Attempts, 2) // a connection may break because of what the first met
			assert.Positive(t, r.Outcome.Waited)
		}
	}
	s.rest(t) // while the request's context could still hold something
	cancel()
	s.close()
	assert.NoError(t, s.server.Ledger.Check("request", r.Succeeded()))
	comesTrue(func() bool { return r.Upload.Closed(http2) == nil })
	assert.NoError(t, r.Upload.Closed(http2), "%v", r)
}

// comesTrue waits for what happens in its own time, at sockets and in
// goroutines.
func comesTrue(is func() bool) bool {
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// openFiles is how many descriptors the process has, where that can be told.
func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(entries)
}

func TestFaultsOverHTTP1(t *testing.T) {
	runFaults(t, slices.Concat(fault.Answers, fault.WireAnswers, fault.Links), false)
}

func TestFaultsOverHTTP2(t *testing.T) {
	faults := slices.Clone(fault.Answers)
	for _, f := range fault.Links {
		switch {
		case f.Reused: // which the beginning of an HTTP/2 connection looks like
		case f.Effect == fault.Spoils && f.Link.Down.How == fault.Reset: // which may overtake the header
		default:
			faults = append(faults, f)
		}
	}
	runFaults(t, faults, true)
}

func runFaults(t *testing.T, faults []*fault.Fault, http2 bool) {
	t.Helper()
	log.SetOutput(io.Discard) // net/http tells of answers that nobody asked for
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	newStage(t, faults[0], http2).close() // what the process opens for its first socket stays open
	goroutines, files := runtime.NumGoroutine(), openFiles()
	type numbered struct {
		fault.Case
		n uint64
	}
	cases := make(chan numbered)
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			for c := range cases {
				t.Run(c.String(), func(t *testing.T) { run(t, c.n, c.Case, http2) })
			}
		})
	}
	all := fault.Cases(faults)
	// A deadline that is not met makes no difference to a body.
	all = slices.DeleteFunc(all, func(c fault.Case) bool {
		return c.Limit == fault.Deadline && !c.Fault.Effect.Hangs() && c.Kind.Size > 0
	})
	for n, c := range all {
		cases <- numbered{c, uint64(n)}
	}
	close(cases)
	wg.Wait()
	assert.True(t, comesTrue(func() bool { return runtime.NumGoroutine() <= goroutines }), "goroutines are left")
	if t.Failed() {
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	}
	assert.Equal(t, files, openFiles(), "file descriptors")
	t.Logf("%d cases", len(all))
}
