package http2_test

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/fault"
)

// patience is how long what hangs is waited for. Where nothing hangs, the limits
// are there, and are so long that a busy machine does not run into them.
const (
	patience = time.Second
	ample    = time.Minute
)

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// base is an HTTP/2 client, without TLS.
type base struct {
	name string
	open func(dialer) http.RoundTripper
}

var bases = []base{{"net/http", netHTTP}, {"x/net", xNet}}

func netHTTP(dial dialer) http.RoundTripper {
	t := &http.Transport{DialContext: dial, Protocols: new(http.Protocols)}
	t.Protocols.SetUnencryptedHTTP2(true)
	return t
}

func xNet(dial dialer) http.RoundTripper {
	//lint:ignore SA1019 many programs have it as their base all the same
	return &http2.Transport{AllowHTTP: true, DialTLSContext: func(ctx context.Context, network, addr string, _ *tls.Config) (net.Conn, error) {
		return dial(ctx, network, addr)
	}}
}

// stage is a server, and a base that talks to it.
type stage struct {
	handler *fault.Server
	frames  *server
	base    http.RoundTripper
	url     string
}

func newStage(t *testing.T, f *frameFault, b base) *stage {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &stage{handler: fault.NewServer(fault.NewLedger()), url: "http://" + l.Addr().String()}
	s.frames = newServer(l, s.handler, f.window)
	s.frames.greet = f.greet
	s.base = b.open(new(net.Dialer).DialContext)
	return s
}

// close waits until all that belongs to the stage has ended.
func (s *stage) close(t *testing.T) {
	t.Helper()
	rt := retryhttp.New(s.base, retryhttp.Policy{})
	assert.True(t, comesTrue(func() bool {
		rt.CloseIdleConnections() // again, for one may become idle now
		return s.frames.conns() == 0
	}), "connections are left open")
	s.handler.Close()
	s.frames.close()
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

// frameCase is a case with one of the bases.
type frameCase struct {
	fault.Case
	frames *frameFault
	base   base
}

// limited is the policy and the context that the case's limit asks for.
func (c frameCase) limited(ctx context.Context) (context.Context, context.CancelFunc, retryhttp.Policy) {
	limit := ample
	if c.Fault.Effect == fault.Hangs {
		limit = patience
	}
	switch c.Limit {
	case fault.PerAttempt: // as often as it takes, for the machine may hang as well
		ctx, cancel := context.WithCancel(ctx)
		return ctx, cancel, retryhttp.Policy{AttemptTimeout: limit, MaxAttempts: -1, Budget: retryhttp.Unlimited{}}
	case fault.Deadline:
		ctx, cancel := context.WithTimeout(ctx, limit)
		return ctx, cancel, retryhttp.Policy{}
	}
	ctx, cancel := context.WithCancel(ctx)
	return ctx, cancel, retryhttp.Policy{}
}

// run makes the case's request, and holds what came of it against what should.
func (c frameCase) run(t *testing.T) {
	t.Helper()
	s := newStage(t, c.frames, c.base)
	ctx, cancel, policy := c.limited(t.Context())
	defer cancel()
	policy.Classify = func(a retryhttp.Attempt) retryhttp.Class {
		class := retryhttp.Classify(a)
		assert.NotEqual(t, retryhttp.Unprocessed, class, "%v", a.Err) // the bases send these again by themselves
		return class
	}
	var rt http.RoundTripper = retryhttp.New(s.base, policy)
	if c.frames.greet == nil { // the client is to know the server's settings
		r := fault.Send(ctx, rt, s.handler.Ledger, s.url, "before", 0, fault.Methods[0], fault.Kinds[0])
		require.True(t, r.Succeeded(), "%v", r)
	}
	leave := func() {
		select {
		case <-s.handler.Hung():
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
	if c.frames.meet != nil {
		s.frames.order("request", c.frames.meet)
	} else {
		s.handler.Order("request", c.Fault)
	}
	r := fault.Send(ctx, rt, s.handler.Ledger, s.url, "request", 1, c.Method, c.Kind)
	cancel()
	assert.NoError(t, c.Judge(r))
	s.close(t)
	assert.NoError(t, s.handler.Ledger.Check("request", r.Succeeded()))
	comesTrue(func() bool { return r.Upload.Closed(true) == nil })
	assert.NoError(t, r.Upload.Closed(true), "%v", r)
}

// comesTrue waits for what happens in its own time, at sockets and in
// goroutines.
func comesTrue(is func() bool) bool {
	for end := time.Now().Add(5 * time.Second); !is(); time.Sleep(time.Millisecond) {
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

// frameCases are all cases but some that differ from another in what does not
// matter much: in the limit where nothing hangs that it could end, and in where a
// body is read from where the base is the second.
func frameCases() []frameCase {
	var cases []frameCase
	for _, f := range frameFaults {
		for _, c := range fault.Cases([]*fault.Fault{&f.Fault}) {
			for i, b := range bases {
				if f.Effect != fault.Hangs && (c.Limit == fault.Deadline || (c.Limit == fault.PerAttempt && i > 0)) {
					continue
				}
				if i > 0 && (c.Kind.Name == "file" || c.Kind.Name == "seeker") {
					continue
				}
				cases = append(cases, frameCase{c, f, b})
			}
		}
	}
	return cases
}

func TestFaultsOfFrames(t *testing.T) {
	log.SetOutput(io.Discard) // net/http tells of answers that nobody asked for
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	newStage(t, frameFaults[0], bases[0]).close(t) // what the process opens for its first socket stays open
	goroutines, files := runtime.NumGoroutine(), openFiles()
	cases := make(chan frameCase)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for c := range cases {
				t.Run(c.base.name+"/"+c.String(), c.run)
			}
		})
	}
	all := frameCases()
	for _, c := range all {
		cases <- c
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
