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
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
)

// Each test exposes a RoundTripper of example_below_test.go to what it is for.

func TestDeadlinesHeadersFollowWhatIsLeft(t *testing.T) {
	for name, c := range map[string]struct {
		timeout, caller time.Duration
		want            []string
	}{
		"neither":                  {0, 0, []string{"", "", ""}},
		"an AttemptTimeout":        {time.Second, 0, []string{"1000", "1000", "1000"}},
		"a deadline of the caller": {0, 3 * time.Second, []string{"3000", "1800", "600"}},
		"both":                     {time.Second, 3 * time.Second, []string{"1000", "1000", "600"}},
		"more than eight digits":   {48 * time.Hour, 0, []string{"99999999", "99999999", "99999999"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := script.New(script.Status(503), script.Status(503), script.Status(200))
				ctx, cancel := endingIn(t.Context(), c.caller)
				defer cancel()
				p := retryhttp.Policy{AttemptTimeout: c.timeout, Backoff: retryhttp.Constant(1200 * ms)}
				req := get(t, ctx)
				resp, err := retryhttp.New(deadlines{base}, p).RoundTrip(req)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				for i, sent := range base.Requests() {
					assert.Equal(t, c.want[i], sent.Header.Get("X-Envoy-Expected-Rq-Timeout-Ms"))
					assert.Equal(t, c.want[i], strings.TrimSuffix(sent.Header.Get("Grpc-Timeout"), "m"))
				}
				assert.Empty(t, req.Header, "the caller's request is not changed")
			})
		})
	}
}

// What the limiter refuses costs no retry, says nothing about the host, and was not sent.
func TestPacedRefusesAtOnceAndFinally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget, gate := new(countingBudget), new(retryhttp.Gate)
		base := script.New(script.Status(200))
		rt := retryhttp.New(paced{base, rate.NewLimiter(rate.Every(time.Hour), 1)}, retryhttp.Policy{
			AttemptTimeout: time.Second, Budget: budget, Gate: gate,
		})
		start := time.Now()
		for i := range 20 {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://host.example/", strings.NewReader("x"))
			require.NoError(t, err)
			_, err = rt.RoundTrip(req)
			if i == 0 {
				require.NoError(t, err)
				continue
			}
			failed := errorOf(t, err)
			assert.Equal(t, retryhttp.StopFinal, failed.Stop)
			assert.ErrorContains(t, err, "would exceed context deadline")
			assert.False(t, failed.Ambiguous)
			time.Sleep(10 * ms) // long enough for a host to be down
		}
		assert.Equal(t, 190*ms, time.Since(start))
		assert.Zero(t, budget.withdrawn)
		down := gate.Status(requestTo("host.example")).Down
		assert.False(t, down)
		assert.Len(t, base.Requests(), 1)
	})
}

// The server counts what it is sent, refuses the old token before or after it has read the body,
// and is busy once.
func TestRefreshingSendsEachBodyWholeWithTheNewToken(t *testing.T) {
	const size = 40_000
	text := strings.Repeat("0123456789", size/10)
	path := filepath.Join(t.TempDir(), "body")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	file := func() io.Reader {
		f, err := os.Open(path)
		require.NoError(t, err)
		return f
	}
	for name, c := range map[string]struct {
		body    func() io.Reader
		length  int64 // of a body that http.NewRequest does not know
		refuses bool
	}{
		"a string":                  {func() io.Reader { return strings.NewReader(text) }, 0, false},
		"a file":                    {file, size, false},
		"a stream":                  {func() io.Reader { return io.MultiReader(strings.NewReader(text)) }, size, false},
		"a stream of any length":    {func() io.Reader { return io.MultiReader(strings.NewReader(text)) }, 0, true},
		"a stream that is too long": {func() io.Reader { return io.MultiReader(strings.NewReader(text + text)) }, 2 * size, true},
	} {
		for _, early := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, refused early: %t", name, early), func(t *testing.T) {
				var got []string
				busy := true
				serving(t, func(w http.ResponseWriter, r *http.Request) {
					refused := r.Header.Get("Authorization") != "Bearer 2"
					if refused && early {
						w.WriteHeader(http.StatusUnauthorized)
						return
					}
					body, err := io.ReadAll(r.Body)
					switch {
					case refused:
						w.WriteHeader(http.StatusUnauthorized)
					case err != nil || busy:
						busy = false
						w.WriteHeader(http.StatusServiceUnavailable)
					default:
						got = append(got, string(body))
					}
				}, func(t *testing.T, base http.RoundTripper) {
					tokens := 0
					rt := retryhttp.New(newRefreshing(base, "host.example", func(context.Context) (string, error) {
						tokens++
						return fmt.Sprint(tokens), nil
					}), retryhttp.Policy{RecordBytes: size})
					req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://host.example/", c.body())
					require.NoError(t, err)
					if c.length > 0 {
						req.ContentLength = c.length
					}
					resp, err := rt.RoundTrip(req)
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					if c.refuses {
						assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
						assert.Empty(t, got)
						return
					}
					assert.Equal(t, http.StatusOK, resp.StatusCode)
					assert.Equal(t, 2, retryhttp.OutcomeOf(resp).Attempts, "the 503")
					require.Len(t, got, 1)
					assert.True(t, got[0] == text, "%d bytes", len(got[0]))
					assert.Equal(t, 2, tokens)
				})
			})
		}
	}
}

func TestRefreshingFetchesOneTokenForAllThatAreRefused(t *testing.T) {
	var valid, fetched atomic.Int64
	valid.Store(1)
	serving(t, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(time.Second)
		if r.Header.Get("Authorization") != fmt.Sprint("Bearer ", valid.Load()) {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}, func(t *testing.T, base http.RoundTripper) {
		rt := retryhttp.New(newRefreshing(base, "host.example", func(context.Context) (string, error) {
			time.Sleep(time.Second)
			return fmt.Sprint(fetched.Add(1)), nil
		}), retryhttp.Policy{})
		for round := range 2 {
			valid.Store(int64(round) + 1)
			start := time.Now()
			var running sync.WaitGroup
			for range 50 {
				running.Go(func() {
					resp, err := rt.RoundTrip(getURL(t, "http://host.example/"))
					if assert.NoError(t, err) {
						assert.NoError(t, resp.Body.Close())
						assert.Equal(t, http.StatusOK, resp.StatusCode)
					}
				})
			}
			running.Wait()
			assert.EqualValues(t, round+1, fetched.Load())
			assert.Equal(t, time.Duration(round+2)*time.Second, time.Since(start))
		}
		resp, err := rt.RoundTrip(getURL(t, "http://other.example/"))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, http.StatusUnauthorized, resp.StatusCode, "another host has no token")
	})
}

// A fetch that hangs ends with its request. Requests that wait for it end with their own contexts.
func TestRefreshingWaitsNoLongerThanItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}
		rt := newRefreshing(script.New(script.Status(200)), "host.example", hangs)
		var running sync.WaitGroup
		for _, limit := range []time.Duration{2 * time.Second, time.Second, time.Second} {
			running.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				start := time.Now()
				_, err := rt.RoundTrip(get(t, ctx))
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Equal(t, limit, time.Since(start))
			})
			synctest.Wait()
		}
		running.Wait()
	})
}

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
				assert.EqualValues(t, 3, s.conns.Load(), "the pool's connection and two detours are used again")
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

// The tests below expose recipes of example_recipes_test.go to what it is for.

// A POST without a key is sent as well, with RetryUnprocessed: without an address, nothing was sent.
func TestNameThatIsGoneForAMinuteIsWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		method, url string
		lookup      net.DNSError
		found       bool
	}{
		"a GET":                    {"GET", "http://db.prod.svc.cluster.local:80/", net.DNSError{IsNotFound: true}, true},
		"a POST":                   {"POST", "http://db.prod.svc.cluster.local/", net.DNSError{IsNotFound: true}, true},
		"a name of another domain": {"GET", "http://host.example/", net.DNSError{IsNotFound: true}, false},
		"another failure of DNS":   {"GET", "http://host.example/", net.DNSError{IsTemporary: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				base := script.Step(func(req *http.Request) (*http.Response, error) {
					if time.Since(start) < time.Minute {
						return nil, &net.OpError{Op: "dial", Err: &c.lookup}
					}
					return script.Response(req, 200), nil
				})
				policy := names
				policy.RetryUnprocessed = true
				policy.Budget = unused(names)
				req, err := http.NewRequestWithContext(t.Context(), c.method, c.url, strings.NewReader(""))
				require.NoError(t, err)
				resp, err := retryhttp.New(base, policy).RoundTrip(req)
				if !c.found {
					assert.Equal(t, 1, errorOf(t, err).Attempts)
					assert.Equal(t, retryhttp.StopFinal, errorOf(t, err).Stop)
					return
				}
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				assert.False(t, retryhttp.OutcomeOf(resp).Ambiguous)
				assert.Less(t, time.Since(start), names.MaxElapsed)
			})
		})
	}
}

// Envoy's number makes only what the mesh has retried final.
func TestAnswerThatAMeshHasNotRetriedIsRetried(t *testing.T) {
	for count, attempts := range map[string]int{"": 4, "1": 4, "2": 1, "3": 1, "many": 4} {
		base := script.New(script.Status(503, "X-Envoy-Attempt-Count", count))
		policy := noWait
		policy.Classify = meshHasRetried
		resp, err := retryhttp.New(base, policy).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Len(t, base.Requests(), attempts, "count %q", count)
	}
}
