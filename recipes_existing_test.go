package retryhttp_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// scheme is a server that answers 503 and then the protocol and the length of the body, and a
// Transport that trusts it.
type scheme struct {
	server   *httptest.Server
	real     *http.Transport
	attempts atomic.Int64
	conns    atomic.Int64
}

var schemes = []struct {
	name  string
	tls   bool
	http2 bool
	proto string
}{
	{"http", false, false, "HTTP/1.1"},
	{"https with HTTP/1", true, false, "HTTP/1.1"},
	{"https with HTTP/2", true, true, "HTTP/2.0"},
}

func newScheme(t *testing.T, withTLS, http2 bool) *scheme {
	s := new(scheme)
	s.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		if s.attempts.Add(1)%2 == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = fmt.Fprint(w, r.Proto, " ", n)
	}))
	s.server.EnableHTTP2 = http2
	s.server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			s.conns.Add(1)
		case http.StateClosed, http.StateHijacked:
			s.conns.Add(-1)
		}
	}
	s.real = http.DefaultTransport.(*http.Transport).Clone()
	if withTLS {
		s.server.StartTLS()
		s.real.TLSClientConfig = s.server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		s.real.TLSClientConfig.NextProtos = nil
	} else {
		s.server.Start()
	}
	t.Cleanup(s.server.Close)
	t.Cleanup(s.real.CloseIdleConnections)
	return s
}

// fetch returns the answer, and how many attempts it took.
func (s *scheme) fetch(t *testing.T, rt http.RoundTripper, body io.Reader) (answer string, attempts int64) {
	t.Helper()
	before := s.attempts.Load()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.server.URL, body)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: rt, Timeout: time.Minute}).Do(req)
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.EqualValues(t, max(s.attempts.Load()-before, 1), retryhttp.OutcomeOf(resp).Attempts)
	return string(text), s.attempts.Load() - before
}

var soon = retryhttp.Policy{Backoff: retryhttp.Constant(time.Millisecond), Budget: retryhttp.Unlimited{}}

func TestDefaultTransportThatRetries(t *testing.T) {
	for _, c := range schemes {
		for _, used := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, used before: %t", c.name, used), func(t *testing.T) {
				var logged bytes.Buffer
				log.SetOutput(&logged)
				defer log.SetOutput(os.Stderr)
				s := newScheme(t, c.tls, c.http2)
				if used {
					s.fetch(t, s.real, nil)
					s.attempts.Store(0)
				}
				outer := retryingByDefault(s.real, soon)
				for range 3 {
					answer, attempts := s.fetch(t, outer, strings.NewReader("body"))
					assert.Equal(t, c.proto+" 4", answer)
					assert.EqualValues(t, 2, attempts)
				}
				assert.EqualValues(t, 2, s.conns.Load(), "the pool's connection and a detour are used again")
				assert.Empty(t, logged.String(), "net/http complains of nothing")
			})
		}
	}
}

// A clone is an http.Transport like any other: it has its changes, and no retries.
func TestCloneOfADefaultTransportThatRetriesDoesNotRetry(t *testing.T) {
	for _, c := range schemes {
		t.Run(c.name, func(t *testing.T) {
			s := newScheme(t, c.tls, c.http2)
			outer := retryingByDefault(s.real, soon)
			s.fetch(t, outer, nil)
			dialed := 0
			clone := outer.Clone()
			clone.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				dialed++
				return new(net.Dialer).DialContext(ctx, network, address)
			}
			defer clone.CloseIdleConnections()
			for range 2 {
				answer, attempts := s.fetch(t, clone, nil)
				assert.Equal(t, c.proto+" 0", answer)
				assert.EqualValues(t, 1, attempts)
			}
			assert.Equal(t, 1, dialed)
			assert.Panics(t, func() { outer.RegisterProtocol("https", http.DefaultTransport) })
			clone.RegisterProtocol("other", http.DefaultTransport)
		})
	}
}

// The connections are the real Transport's, and so are their settings.
func TestChangesOfADefaultTransportThatRetriesHaveNoEffect(t *testing.T) {
	s := newScheme(t, true, false)
	outer := retryingByDefault(s.real, soon)
	s.fetch(t, outer, nil)
	outer.DialContext = func(context.Context, string, string) (net.Conn, error) {
		t.Error("dialed")
		return nil, errBroken
	}
	outer.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS13} // does not trust the server
	outer.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.invalid"})
	outer.DisableKeepAlives = true
	outer.CloseIdleConnections()
	assert.EqualValues(t, 2, s.conns.Load(), "the pool's connection and a detour")
	s.fetch(t, outer, nil)
	assert.EqualValues(t, 2, s.conns.Load())
	s.real.CloseIdleConnections()
	require.Eventually(t, func() bool { return s.conns.Load() == 1 }, time.Minute, ms)
}

// An *http.Transport hides the body's type before it asks what is registered. So a file is like any
// stream.
func TestDefaultTransportThatRetriesSendsAFileAsAStream(t *testing.T) {
	s := newScheme(t, false, false)
	path := filepath.Join(t.TempDir(), "body")
	for length, attempts := range map[int64]int64{64 << 10: 2, 64<<10 + 1: 1} {
		s.attempts.Store(0)
		require.NoError(t, os.WriteFile(path, make([]byte, length), 0o600))
		file, err := os.Open(path)
		require.NoError(t, err)
		answer, made := s.fetch(t, retryingByDefault(s.real, soon), file)
		assert.Equal(t, fmt.Sprint("HTTP/1.1 ", length), answer)
		assert.Equal(t, attempts, made)
	}
}

// net/http sends upgrades over https itself, since they need HTTP/1.
func TestDefaultTransportThatRetriesLeavesUpgradesOverHTTPSAlone(t *testing.T) {
	for _, c := range schemes {
		t.Run(c.name, func(t *testing.T) {
			s := newScheme(t, c.tls, c.http2)
			outer := retryingByDefault(s.real, soon)
			defer outer.CloseIdleConnections()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.server.URL, nil)
			require.NoError(t, err)
			req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
			resp, err := outer.RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, map[bool]int64{false: 2, true: 1}[c.tls], s.attempts.Load())
			assert.Equal(t, "HTTP/1.1", resp.Proto)
		})
	}
}

func TestReverseProxyWithADefaultTransportThatRetries(t *testing.T) {
	s := newScheme(t, false, false)
	target, err := url.Parse(s.server.URL)
	require.NoError(t, err)
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: retryingByDefault(s.real, soon),
	})
	defer proxy.Close()
	for method, attempts := range map[string]int64{http.MethodGet: 2, http.MethodPost: 1} {
		s.attempts.Store(0)
		req, err := http.NewRequestWithContext(t.Context(), method, proxy.URL, strings.NewReader("body"))
		require.NoError(t, err)
		resp, err := new(http.Transport).RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, attempts, s.attempts.Load())
	}
}

// A program above that retries as well sees that this was done.
func TestTransportAboveADefaultTransportThatRetriesDoesNotRetry(t *testing.T) {
	base := script.New(script.Status(503))
	real := new(http.Transport)
	real.RegisterProtocol("http", base)
	outer := retryhttp.New(retryingByDefault(real, soon), soon)
	resp, err := outer.RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, retryhttp.StopNested, retryhttp.OutcomeOf(resp).Stop)
	assert.Len(t, base.Requests(), 4)
}

// Nothing is sent twice, nothing waits, and no response body is read.
func TestDryRunChangesNothing(t *testing.T) {
	for name, budget := range map[string]retryhttp.Budget{
		"a Budget of one's own": broke{}, "a TokenBucket": &retryhttp.TokenBucket{Ratio: -1, Burst: -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stops := map[retryhttp.Stop]int{}
				var failed int
				gate := new(retryhttp.Gate)
				var steps []script.Step
				unread := &countedReads{}
				for range 20 {
					steps = append(steps, script.Respond(503, unread), script.Status(200), script.Fail(errBroken),
						script.Status(503, "Retry-After", "1"), script.Status(429, "Retry-After", "1"))
				}
				base := script.New(steps...)
				rt := retryhttp.New(base, retryhttp.Policy{
					Budget: budget, Backoff: retryhttp.Constant(0), Gate: gate,
					OnRetry: func(retryhttp.Attempt) { t.Error("retried") },
					OnDone: func(a retryhttp.Attempt, o retryhttp.Outcome) {
						stops[o.Stop]++
						if a.Err != nil || a.Response.StatusCode != 200 {
							failed++
						}
						assert.Equal(t, 1, o.Attempts)
						assert.Zero(t, o.Waited)
					},
				})
				start := time.Now()
				for range 100 {
					resp, err := rt.RoundTrip(get(t, t.Context()))
					if err == nil {
						require.NoError(t, resp.Body.Close())
					}
					assert.Zero(t, gate.Status(requestTo("host.example")).Held)
				}
				assert.Zero(t, time.Since(start))
				assert.Len(t, base.Requests(), 100)
				assert.Equal(t, map[retryhttp.Stop]int{retryhttp.StopFinal: 20, retryhttp.StopBudget: 80}, stops)
				assert.Equal(t, 80, failed)
				assert.Zero(t, unread.reads)
			})
		})
	}
}

type countedReads struct{ reads int }

func (c *countedReads) Read([]byte) (int, error) { c.reads++; return 0, io.EOF }
func (c *countedReads) Close() error             { return nil }
