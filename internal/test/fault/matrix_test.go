package fault_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/fault"
)

// atRest is how long it may take at most until all has ended.
const atRest = 20 * time.Second

// once orders a fault for one connection.
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
	base   *retryhttp.Base
	url    string
}

func newStage(t *testing.T, f *fault.Fault, http2 bool) *stage {
	t.Helper()
	s := &stage{server: fault.NewServer(fault.NewLedger())}
	s.http = httptest.NewUnstartedServer(s.server)
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.http.Config.ConnContext = fault.WithConn
	s.http.Config.Protocols = new(http.Protocols)
	s.http.Config.Protocols.SetHTTP1(!http2)
	s.http.Config.Protocols.SetUnencryptedHTTP2(http2) // TLS would take most of the time
	s.http.Start()
	var err error
	s.proxy, err = fault.NewProxy(s.http.Listener.Addr().String(), &once{f.Link})
	require.NoError(t, err)
	base := s.http.Client().Transport.(*http.Transport)
	base.Protocols = s.http.Config.Protocols
	base.DialContext = s.proxy.DialContext
	base.MaxResponseHeaderBytes = 64 << 10
	if f.Link != nil && f.Effect == fault.Hangs {
		// All attempts go to one HTTP/2 connection, until somebody finds that it is dead.
		base.HTTP2 = &http.HTTP2Config{SendPingTimeout: fault.Patience, PingTimeout: 5 * fault.Patience}
	}
	s.url = s.http.URL
	s.base = retryhttp.NewBase(base)
	return s
}

// rest waits until no connection is open.
func (s *stage) rest(t *testing.T) {
	t.Helper()
	assert.True(t, fault.Eventually(atRest, func() bool {
		s.base.CloseIdleConnections() // again, for one may become idle now
		return s.proxy.Conns() == 0
	}), "connections are left open")
}

func (s *stage) close() {
	s.server.Close()
	s.proxy.Close()
	s.http.Close()
}

// run makes the case's request, and judges its result.
func run(t *testing.T, n uint64, c fault.Case, http2 bool) {
	t.Helper()
	s := newStage(t, c.Fault, http2)
	if c.Fault.Reused { // the case's time has not begun
		rt := retryhttp.New(s.base, retryhttp.Policy{})
		r := fault.Send(t.Context(), rt, s.server.Ledger, s.url, "before", 0, fault.Methods[0], fault.Kinds[0])
		require.True(t, r.Succeeded(), "%v", r)
	}
	ctx, cancel, policy := c.Limited(t.Context())
	defer cancel()
	var rt http.RoundTripper = retryhttp.New(s.base, policy)
	rt = c.Leaving(ctx, cancel, rt, s.server.Hung(), s.proxy.Hung())
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
	fault.Eventually(atRest, func() bool { return r.Upload.Closed(http2) == nil })
	assert.NoError(t, r.Upload.Closed(http2), "%v", r)
}

// The cases of both versions meet side by side, because many of them wait for seconds.
func TestFaults(t *testing.T) {
	log.SetOutput(io.Discard) // net/http logs answers that nobody asked for
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	newStage(t, &fault.Fault{}, false).close() // what the process opens for its first socket stays open
	before := fault.TakeInventory()
	var both sync.WaitGroup
	both.Go(func() {
		t.Run("over HTTP/1", func(t *testing.T) {
			runFaults(t, slices.Concat(fault.Answers, fault.WireAnswers, fault.Links), false)
		})
	})
	both.Go(func() { t.Run("over HTTP/2", func(t *testing.T) { runFaults(t, overHTTP2(), true) }) })
	both.Wait()
	assert.NoError(t, before.Leaked(atRest))
}

func overHTTP2() []*fault.Fault {
	return slices.Concat(fault.Answers, slices.DeleteFunc(slices.Clone(fault.Links), func(f *fault.Fault) bool {
		return f.Reused || // which the beginning of an HTTP/2 connection looks like
			f.Effect == fault.Spoils && f.Link.Down.How == fault.Reset // which may overtake the header
	}))
}

func runFaults(t *testing.T, faults []*fault.Fault, http2 bool) {
	t.Helper()
	all := fault.Cases(faults)
	// A deadline that is not met makes no difference to a body.
	all = slices.DeleteFunc(all, func(c fault.Case) bool {
		return c.Limit == fault.Deadline && !c.Fault.Effect.Hangs() && c.Kind.Size > 0
	})
	fault.InLanes(48, lanes, all, func(c fault.Case) bool { return c.Fault.Effect.Hangs() }, func(n int, c fault.Case) {
		t.Run(c.String(), func(t *testing.T) { run(t, uint64(n), c, http2) })
	})
	t.Logf("%d cases", len(all))
}
