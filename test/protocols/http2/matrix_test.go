package http2_test

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/fault"
)

// atRest is how long it may take at most until all has ended.
const atRest = 20 * time.Second

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
	dialTLS := func(ctx context.Context, network, addr string, _ *tls.Config) (net.Conn, error) {
		return dial(ctx, network, addr)
	}
	//lint:ignore SA1019 many programs have it as their base all the same
	return &http2.Transport{AllowHTTP: true, DialTLSContext: dialTLS}
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
	if t, ok := s.base.(*http.Transport); ok {
		s.base = retryhttp.NewBase(t) // closes the detours, too
	}
	return s
}

// close waits until all that belongs to the stage has ended.
func (s *stage) close(t *testing.T) {
	t.Helper()
	rt := retryhttp.New(s.base, retryhttp.Policy{})
	assert.True(t, fault.Eventually(atRest, func() bool {
		rt.CloseIdleConnections() // again, for one may become idle now
		return s.frames.conns() == 0
	}), "connections are left open")
	s.handler.Close()
	s.frames.close()
}

// frameCase is a case with one of the bases.
type frameCase struct {
	fault.Case
	frames *frameFault
	base   base
}

// run makes the case's request, and judges its result.
func (c frameCase) run(t *testing.T) {
	t.Helper()
	s := newStage(t, c.frames, c.base)
	if c.frames.greet == nil { // the client is to know the server's settings, before the case's time begins
		rt := retryhttp.New(s.base, retryhttp.Policy{})
		r := fault.Send(t.Context(), rt, s.handler.Ledger, s.url, "before", 0, fault.Methods[0], fault.Kinds[0])
		require.True(t, r.Succeeded(), "%v", r)
	}
	ctx, cancel, policy := c.Limited(t.Context())
	defer cancel()
	policy.Classify = func(a retryhttp.Attempt) retryhttp.Class {
		class := retryhttp.Classify(a)
		if a.Request.Body == nil || a.Request.GetBody != nil { // the bases send these again by themselves
			assert.NotEqual(t, retryhttp.Unprocessed, class, "%v", a.Err)
		}
		return class
	}
	var rt http.RoundTripper = retryhttp.New(s.base, policy)
	rt = c.Leaving(ctx, cancel, rt, s.handler.Hung(), nil)
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
	fault.Eventually(atRest, func() bool { return r.Upload.Closed(true) == nil })
	assert.NoError(t, r.Upload.Closed(true), "%v", r)
}

// frameCases are all cases except some that hardly differ from another case: in the limit, if
// nothing hangs that the limit could end, and in where a body is read from, if the base is the
// second.
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
				if f.greet != nil && c.Kind.Size > greetedWindow {
					continue // its end would never come
				}
				cases = append(cases, frameCase{c, f, b})
			}
		}
	}
	return cases
}

func TestFaultsOfFrames(t *testing.T) {
	log.SetOutput(io.Discard) // net/http logs answers that nobody asked for
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	newStage(t, frameFaults[0], bases[0]).close(t) // what the process opens for its first socket stays open
	before := fault.TakeInventory()
	all := frameCases()
	fault.SideBySide(64, all, func(_ int, c frameCase) { t.Run(c.base.name+"/"+c.String(), c.run) })
	assert.NoError(t, before.Leaked(atRest))
	t.Logf("%d cases", len(all))
}
