package retrytest_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/retrytest"
)

// overBoth runs f with servers of HTTP/1 and of HTTP/2.
func overBoth(t *testing.T, f func(t *testing.T, http2 bool)) {
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) { f(t, http2) })
	}
}

// serve starts a server of h, and returns its URL and a client.
func serve(t *testing.T, h http.Handler, http2 bool) (string, *http.Client) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = http2
	server.StartTLS()
	t.Cleanup(server.Close)
	client := server.Client()
	t.Cleanup(client.CloseIdleConnections)
	return server.URL, client
}

// serveInMemory is serve without a socket, and without TLS.
func serveInMemory(t *testing.T, h http.Handler, http2 bool) (*memnet.Network, *http.Client) {
	n, base, stop := memnet.ServeProtocol(h.ServeHTTP, http2)
	t.Cleanup(stop)
	return n, &http.Client{Transport: base}
}

func put(t *testing.T, ctx context.Context, client *http.Client, url string, body io.Reader) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url+"/books?key=secret", body)
	require.NoError(t, err)
	return client.Do(req)
}

var answers = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Length", "5")
	_, _ = io.WriteString(w, "12")
	_, _ = io.WriteString(w, "345")
})

func TestHandlerAnswers(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h := retrytest.NewHandler(t, answers, retrytest.Status(503, "Retry-After", "2").Body("busy").Nth(1))
		url, client := serve(t, h, http2)
		for i, want := range []struct {
			status int
			body   string
		}{{503, "busy"}, {200, "12345"}} {
			resp, err := put(t, t.Context(), client, url, strings.NewReader("upload"))
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, want.status, resp.StatusCode)
			assert.Equal(t, want.body, string(got))
			assert.Equal(t, int64(len(want.body)), resp.ContentLength)
			r := h.Records()[i]
			assert.Equal(t, "upload", string(r.Body))
			assert.True(t, r.Whole)
			assert.Equal(t, "/books?key=secret", r.URL)
			assert.Equal(t, strings.TrimPrefix(url, "https://"), r.Host)
		}
		assert.Contains(t, h.Table(), "PUT /books  6 bytes  503, Retry-After: 2\n")
	})
}

func TestHandlerWithoutANextAnswersWithNothing(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h := retrytest.NewHandler(t, nil)
		url, client := serve(t, h, http2)
		resp, err := client.Get(url)
		require.NoError(t, err)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		assert.Empty(t, got)
		require.NoError(t, resp.Body.Close())
		assert.True(t, h.Records()[0].Whole, "nobody has read the request body, because there is none")

		resp, err = client.Post(url, "text/plain", strings.NewReader("hello"))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, "hello", string(h.Records()[1].Body))
		assert.True(t, h.Records()[1].Whole)
	})
}

func TestHandlerCutsBodies(t *testing.T) {
	for name, c := range map[string]struct {
		step   retrytest.Step
		length int64
	}{
		"an answer of its own":              {retrytest.Status(200).Body("12345").Cut(3), 5},
		"without a length":                  {retrytest.Status(200).Body("12345").Cut(3).Unsized(), -1},
		"the real answer":                   {retrytest.Real().Cut(3), 5},
		"the real answer, without a length": {retrytest.Real().Cut(3).Unsized(), -1},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, http2 bool) {
				url, client := serve(t, retrytest.NewHandler(t, answers, c.step.Always()), http2)
				resp, err := put(t, t.Context(), client, url, strings.NewReader("upload"))
				require.NoError(t, err)
				assert.Equal(t, c.length, resp.ContentLength)
				got, err := io.ReadAll(resp.Body)
				require.Error(t, err)
				if !http2 {
					assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
				}
				assert.Equal(t, "123", string(got))
				require.NoError(t, resp.Body.Close())
			})
		})
	}
}

func TestHandlerLeavesShortBodiesWhole(t *testing.T) {
	notFound := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "5")
		w.WriteHeader(404)
		_, _ = io.WriteString(w, "12345")
	})
	uncounted := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "12345") })
	for name, c := range map[string]struct {
		step   retrytest.Step
		next   http.Handler
		status int
		length int64
	}{
		"cut":                             {retrytest.Real().Cut(5), answers, 200, 5},
		"stall":                           {retrytest.Real().Stall(6), answers, 200, 5},
		"cut, of another status":          {retrytest.Real().Cut(5), notFound, 404, 5},
		"unsized":                         {retrytest.Real().Unsized(), answers, 200, -1},
		"unsized, of another status":      {retrytest.Real().Unsized(), notFound, 404, -1},
		"unsized, of its own":             {retrytest.Status(503).Body("12345").Unsized(), nil, 503, -1},
		"of a length that net/http finds": {retrytest.Real(), uncounted, 200, 5},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, http2 bool) {
				_, client := serveInMemory(t, retrytest.NewHandler(t, c.next, c.step.Always()), http2)
				resp, err := client.Get("http://shop.example/")
				require.NoError(t, err)
				assert.Equal(t, c.status, resp.StatusCode)
				assert.Equal(t, c.length, resp.ContentLength)
				got, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				assert.Equal(t, "12345", string(got))
				require.NoError(t, resp.Body.Close())
			})
		})
	}
}

// A client sends its next request on the same connection, which must not stall or break after such an answer.
func TestHandlerEndsNoBodyOfAResponseThatMayHaveNone(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		status int
		length string
	}{"HEAD": {http.MethodHead, 200, "5"}, "204": {http.MethodGet, 204, ""}, "304": {http.MethodGet, 304, ""}} {
		next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, "12345")
		})
		own := retrytest.Status(c.status).Body("12345")
		for _, step := range []retrytest.Step{own.Cut(2), own.Stall(2), retrytest.Real().Cut(2), retrytest.Real().Stall(2)} {
			t.Run(name+" "+step.String(), func(t *testing.T) {
				overBoth(t, func(t *testing.T, http2 bool) {
					synctest.Test(t, func(t *testing.T) {
						network, client := serveInMemory(t, retrytest.NewHandler(nil, next, step.Always()), http2)
						client.Timeout = time.Minute
						for range 2 {
							req, err := http.NewRequest(c.method, "http://shop.example/", nil)
							require.NoError(t, err)
							resp, err := client.Do(req)
							require.NoError(t, err)
							assert.Equal(t, c.status, resp.StatusCode)
							if strings.HasPrefix(step.String(), fmt.Sprint(c.status)) {
								assert.Equal(t, c.length, resp.Header.Get("Content-Length"))
							}
							got, err := io.ReadAll(resp.Body)
							require.NoError(t, err)
							assert.Empty(t, got)
							require.NoError(t, resp.Body.Close())
							synctest.Wait() // net/http may keep a new HTTP/2 connection for others only after the answer
						}
						assert.Equal(t, 1, network.Dials())
					})
				})
			})
		}
		w := httptest.NewRecorder()
		retrytest.NewHandler(t, nil, own.Always()).ServeHTTP(w, httptest.NewRequest(c.method, "/", nil))
		assert.Empty(t, w.Body.String(), "net/http drops such a body, and a recorder does not")
		assert.Equal(t, c.length, w.Header().Get("Content-Length"))
	}
}

// Many handlers ask for the type, and not for an http.ResponseController.
func TestHandlerLeavesUpgradesWhole(t *testing.T) {
	upgrades := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if assert.NoError(t, err) {
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nhello")
			assert.NoError(t, conn.Close())
		}
	})
	for _, step := range []retrytest.Step{
		retrytest.Real(), retrytest.Real().Cut(3), retrytest.Real().Stall(3), retrytest.Real().Unsized(),
	} {
		s := httptest.NewServer(retrytest.NewHandler(t, upgrades, step.Always()))
		req, err := http.NewRequest(http.MethodGet, s.URL, nil)
		require.NoError(t, err)
		req.Header = http.Header{"Connection": {"upgrade"}, "Upgrade": {"echo"}}
		resp, err := http.DefaultTransport.RoundTrip(req)
		require.NoError(t, err)
		assert.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, "hello", string(body))
		require.NoError(t, resp.Body.Close())
		s.Close()
	}
}

// Some middleware recovers from each panic, and answers then.
func TestHandlerCutsBodiesOfHandlersThatRecover(t *testing.T) {
	recovers := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				defer func() { _ = recover() }()
				_, _ = io.WriteString(w, "sorry")
			}
		}()
		answers(w, r)
	})
	for _, sized := range []bool{true, false} {
		step := retrytest.Real().Cut(3)
		if !sized {
			step = step.Unsized()
		}
		overBoth(t, func(t *testing.T, http2 bool) {
			url, client := serve(t, retrytest.NewHandler(t, recovers, step.Always()), http2)
			resp, err := client.Get(url)
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			require.Error(t, err)
			assert.Equal(t, "123", string(got))
			require.NoError(t, resp.Body.Close())
		})
	}
}

// The server's Close waits for the handlers: each of these ends when the client has gone, and knows no test
// that could end first.
func TestHandlerHangsUntilTheClientHasGone(t *testing.T) {
	for name, c := range map[string]struct {
		step retrytest.Step
		next http.Handler
		got  string
	}{
		"hang":                  {retrytest.Hang(), nil, ""},
		"slow":                  {retrytest.Status(200).Slow(time.Hour), nil, ""},
		"slow real answer":      {retrytest.Real().Slow(time.Hour), answers, ""},
		"stall":                 {retrytest.Status(200).Body("12345").Stall(2), nil, "12"},
		"stall of another body": {retrytest.Real().Stall(2), answers, "12"},
		"stall of a handler that does not read": {
			retrytest.Real().Stall(2), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "12345") }), "12",
		},
		"early stall": {retrytest.Status(200).Body("12345").Early().Stall(2), nil, "12"},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, http2 bool) {
				url, client := serve(t, retrytest.NewHandler(nil, c.next, c.step.Always()), http2)
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				resp, err := put(t, ctx, client, url, strings.NewReader("upload"))
				var got []byte
				if err == nil {
					got, err = io.ReadAll(resp.Body)
					require.NoError(t, resp.Body.Close())
				}
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Equal(t, c.got, string(got))
			})
		})
	}
}

func TestHandlerHangsUntilTheTestHasEnded(t *testing.T) {
	for name, step := range map[string]retrytest.Step{
		"hang": retrytest.Hang(), "slow": retrytest.Real().Slow(time.Hour), "stall": retrytest.Real().Stall(2),
	} {
		overBoth(t, func(t *testing.T, http2 bool) {
			done := make(chan error, 1)
			t.Run(name, func(inner *testing.T) {
				h := retrytest.NewHandler(inner, answers, step.Always())
				url, client := serve(t, h, http2)
				go func() {
					resp, err := client.Get(url)
					if err == nil {
						_, err = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
					done <- err
				}()
				for len(h.Records()) == 0 {
					time.Sleep(time.Millisecond)
				}
			})
			assert.Error(t, <-done)
		})
	}
}

// With a network that is in memory, a server can be in a bubble.
func TestHandlerFailsInABubble(t *testing.T) {
	for name, c := range map[string]struct {
		step retrytest.Step
		took time.Duration
		got  string
		want error // over HTTP/1
	}{
		"reset":       {retrytest.Reset(), 0, "", syscall.ECONNRESET},
		"hang":        {retrytest.Hang(), time.Minute, "", context.DeadlineExceeded},
		"slow":        {retrytest.Real().Slow(time.Hour), time.Minute, "", context.DeadlineExceeded},
		"not so slow": {retrytest.Real().Slow(time.Second), time.Second, "12345", nil},
		"stall":       {retrytest.Real().Stall(2), time.Minute, "12", context.DeadlineExceeded},
		"cut":         {retrytest.Real().Cut(2), 0, "12", io.ErrUnexpectedEOF},
		"early":       {retrytest.Status(503).Body("no").Early(), 0, "no", nil},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, http2 bool) {
				synctest.Test(t, func(t *testing.T) {
					h := retrytest.NewHandler(t, answers, c.step.Nth(1))
					_, base, stop := memnet.ServeProtocol(h.ServeHTTP, http2)
					stop = sync.OnceFunc(stop)
					defer stop()
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					began := time.Now()
					resp, err := put(t, ctx, &http.Client{Transport: base}, "http://shop.example", strings.NewReader("upload"))
					var got []byte
					if err == nil {
						got, err = io.ReadAll(resp.Body)
						require.NoError(t, resp.Body.Close())
					}
					stop() // waits for the handler, which ends when the client has gone
					assert.Equal(t, c.took, time.Since(began))
					assert.Equal(t, c.got, string(got))
					if http2 {
						assert.Equal(t, c.want == nil, err == nil, "%v", err)
					} else {
						assert.ErrorIs(t, err, c.want)
					}
				})
			})
		})
	}
}

func TestHandlerResets(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h := retrytest.NewHandler(t, nil, retrytest.Reset().Always())
		url, client := serve(t, h, http2)
		_, err := put(t, t.Context(), client, url, strings.NewReader("upload"))
		require.Error(t, err)
		if !http2 {
			assert.ErrorIs(t, err, syscall.ECONNRESET)
		}
		assert.Equal(t, "upload", string(h.Records()[0].Body))
	})
}

// The client sends more only after it has the answer.
func TestHandlerAnswersEarly(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h := retrytest.NewHandler(t, nil, retrytest.Status(401).Body("no").Early().Always())
		url, client := serve(t, h, http2)
		body, w := io.Pipe()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // of a Handler that waits for the body
		defer cancel()
		resp, err := put(t, ctx, client, url, body)
		require.NoError(t, err)
		assert.Equal(t, 401, resp.StatusCode)
		_ = w.CloseWithError(errEnough)
		_, _ = io.ReadAll(resp.Body)
		require.NoError(t, resp.Body.Close())
		assert.False(t, h.Records()[0].Whole)
	})
}

// The server of net/http panics in its own code if it reads another request on a connection after an early
// answer. Over HTTP/2 there is no need to close the connection.
func TestHandlerAnswersEarlyTimeAndAgain(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		var said strings.Builder
		server := httptest.NewUnstartedServer(retrytest.NewHandler(t, answers, retrytest.Status(401).Body("no").Early().Always()))
		server.EnableHTTP2 = http2
		server.Config.ErrorLog = log.New(&said, "", 0)
		var conns atomic.Int32
		server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				conns.Add(1)
			}
		}
		server.StartTLS()
		client := server.Client()
		for range 10 {
			resp, err := put(t, t.Context(), client, server.URL, strings.NewReader("upload"))
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Equal(t, "no", string(got))
			require.NoError(t, resp.Body.Close())
		}
		client.CloseIdleConnections()
		server.Close()
		assert.Empty(t, said.String())
		if http2 {
			assert.Equal(t, int32(1), conns.Load())
		}
	})
}

func TestTransportAndHandlerServeManyAtOnce(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h := retrytest.NewHandler(t, answers,
			retrytest.Reset().Share(0.1, 1),
			retrytest.Real().Cut(2).Share(0.1, 1),
			retrytest.Status(503).Body(strings.Repeat("x", 100_000)).Share(0.1, 1),
			retrytest.Status(401).Early().Share(0.1, 1),
			retrytest.Hang().Share(0.1, 1),
			retrytest.Real().Stall(2).Share(0.1, 1),
			retrytest.Real().Slow(time.Millisecond).Share(0.1, 1),
		)
		url, client := serve(t, h, http2)
		rt := retrytest.NewTransport(t, client.Transport,
			retrytest.Refused().Share(0.1, 1),
			retrytest.Real().Cut(3).Share(0.1, 1),
			retrytest.Real().Stall(1).Share(0.1, 1),
		)
		client = &http.Client{Transport: rt}
		upload := make([]byte, 70_000) // more than the buffers of a connection
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for range 5 {
					ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					if resp, err := put(t, ctx, client, url, bytes.NewReader(upload)); err == nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
					_ = h.Table()
					_ = rt.Records()
					cancel()
				}
			})
		}
		wg.Wait()
		for _, r := range slices.Concat(h.Records(), rt.Records()) {
			assert.LessOrEqual(t, len(r.Body), len(upload))
			assert.False(t, r.Whole && len(r.Body) < len(upload))
		}
	})
}

// A failure of the Transport is of the type, and has the cause, of net/http's own.
func TestFailuresAreLikeThoseOfNetHTTP(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	_, real := new(http.Transport).RoundTrip(request(t, "http://"+listener.Addr().String()))
	_, ours := get(t, retrytest.NewTransport(t, nil, retrytest.Refused().Always()))
	for _, err := range []error{real, ours} {
		assert.ErrorIs(t, err, syscall.ECONNREFUSED)
		var op *net.OpError
		require.ErrorAs(t, err, &op)
		assert.Equal(t, "dial", op.Op)
		assert.IsType(t, &net.TCPAddr{}, op.Addr)
	}

	url, _ := serve(t, retrytest.NewHandler(t, nil, retrytest.Reset().Always()), false)
	base := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer base.CloseIdleConnections()
	_, real = base.RoundTrip(request(t, url))
	_, ours = get(t, retrytest.NewTransport(t, nil, retrytest.Reset().Always()))
	for _, err := range []error{real, ours} {
		assert.ErrorIs(t, err, syscall.ECONNRESET)
		var op *net.OpError
		require.ErrorAs(t, err, &op)
		assert.Equal(t, "read", op.Op)
		assert.IsType(t, &net.TCPAddr{}, op.Addr)
		assert.IsType(t, &net.TCPAddr{}, op.Source)
	}

	_, real = new(http.Transport).RoundTrip(request(t, url))
	_, ours = get(t, retrytest.NewTransport(t, nil, retrytest.BadCertificate().Always()))
	for _, err := range []error{real, ours} {
		var verification *tls.CertificateVerificationError
		require.ErrorAs(t, err, &verification)
		assert.NotEmpty(t, verification.UnverifiedCertificates)
		var unknown x509.UnknownAuthorityError
		require.ErrorAs(t, err, &unknown)
		assert.NotNil(t, unknown.Cert)
	}

	_, ours = get(t, retrytest.NewTransport(t, nil, retrytest.NoSuchHost().Always()))
	var dns *net.DNSError
	require.ErrorAs(t, ours, &dns)
	assert.True(t, dns.IsNotFound)
	assert.Equal(t, "shop.example", dns.Name)

	base = &http.Transport{DialContext: (&net.Dialer{Timeout: time.Nanosecond}).DialContext}
	_, real = base.RoundTrip(request(t, "http://192.0.2.1/"))
	_, ours = get(t, retrytest.NewTransport(t, nil, retrytest.Timeout().Always()))
	assert.EqualError(t, ours, real.Error())
	for _, err := range []error{real, ours} {
		var timeout net.Error
		require.ErrorAs(t, err, &timeout)
		assert.True(t, timeout.Timeout())
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	}

	_, ours = get(t, retrytest.NewTransport(t, nil, retrytest.RefusedStream().Always()))
	var stream streamError
	require.ErrorAs(t, ours, &stream)
	assert.Equal(t, streamError{1, 7, stream.Cause}, stream)
	var name errorOfOtherName
	assert.False(t, errors.As(ours, &name))
	var kind errorOfOtherType
	assert.False(t, errors.As(ours, &kind))
}

// streamError is like golang.org/x/net/http2's. The errors of net/http convert themselves to it.
type streamError struct {
	StreamID uint32
	Code     code
	Cause    error
}

type code uint32

func (streamError) Error() string { return "stream error" }

type errorOfOtherName struct {
	StreamID, Number uint32
	Cause            error
}

func (errorOfOtherName) Error() string { return "another error" }

type errorOfOtherType struct {
	StreamID uint32
	Code     []byte
	Cause    error
}

func (errorOfOtherType) Error() string { return "another error" }

func request(t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	return req
}

// A handler may be called without a server.
func TestHandlerServesARecorder(t *testing.T) {
	h := retrytest.NewHandler(t, answers, retrytest.Status(503).Body("busy").Nth(1))
	for _, want := range []string{"busy", "12345"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request(t, "http://shop.example/"))
		assert.Equal(t, want, w.Body.String())
	}
}

func TestHandlerHandsOnTheResponseWriterOfAWholeAnswer(t *testing.T) {
	w := httptest.NewRecorder()
	next := http.HandlerFunc(func(got http.ResponseWriter, _ *http.Request) { assert.Same(t, w, got) })
	retrytest.NewHandler(t, next, retrytest.Real().Slow(time.Millisecond).Always()).ServeHTTP(w, request(t, "http://shop.example/"))
}

// http.NewRequest does not say how long such a body is. A server does.
func TestHandlerReadsABodyOfUnknownLength(t *testing.T) {
	h := retrytest.NewHandler(t, answers)
	body := io.NopCloser(strings.NewReader("upload"))
	req, err := http.NewRequest(http.MethodPut, "http://shop.example/", body)
	require.NoError(t, err)
	h.ServeHTTP(httptest.NewRecorder(), req)
	assert.Equal(t, "upload", string(h.Records()[0].Body))
	assert.Equal(t, body, req.Body, "the request is the caller's")
}

// A server of net/http recovers from http.ErrAbortHandler, and from nothing else without a log.
func TestHandlerPanicsWhereAConnectionBreaks(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the client has gone
	for name, step := range map[string]retrytest.Step{
		"reset": retrytest.Reset(), "cut": retrytest.Real().Cut(2), "stall": retrytest.Real().Stall(2),
		"hang": retrytest.Hang(), "slow": retrytest.Real().Slow(time.Hour),
	} {
		h := retrytest.NewHandler(t, answers, step.Always())
		assert.PanicsWithValue(t, http.ErrAbortHandler, func() {
			h.ServeHTTP(httptest.NewRecorder(), request(t, "http://shop.example/").WithContext(ctx))
		}, name)
	}
}

// What has come of the body must not look like all of it.
func TestHandlerAnswersNoRequestWhoseBodyFails(t *testing.T) {
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the next handler answers") })
	h := retrytest.NewHandler(t, next, retrytest.Real().Slow(time.Millisecond).Always())
	req := httptest.NewRequest(http.MethodPut, "/", io.MultiReader(strings.NewReader("up"), failing{}))
	assert.PanicsWithValue(t, http.ErrAbortHandler, func() { h.ServeHTTP(httptest.NewRecorder(), req) })
}

// A Cleanup may make requests.
func TestHandlerAnswersAfterTheTestHasEnded(t *testing.T) {
	var h *retrytest.Handler
	t.Run("ends", func(t *testing.T) { h = retrytest.NewHandler(t, answers) })
	for range 20 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request(t, "http://shop.example/"))
		assert.Equal(t, "12345", w.Body.String())
	}
}

// A connection of a Unix socket can be closed, but not reset.
func TestHandlerClosesAConnectionThatCannotBeReset(t *testing.T) {
	client, server := net.Pipe()
	h := retrytest.NewHandler(t, nil, retrytest.Reset().Always())
	h.ServeHTTP(hijackable{httptest.NewRecorder(), server}, request(t, "http://shop.example/"))
	_, err := client.Read(make([]byte, 1))
	assert.Equal(t, io.EOF, err)
}

type hijackable struct {
	http.ResponseWriter
	conn net.Conn
}

func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.conn, nil, nil }

func TestHandlerReadsARequestBeforeASlowRealAnswer(t *testing.T) {
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	url, client := serve(t, retrytest.NewHandler(t, echo, retrytest.Real().Slow(time.Millisecond).Always()), false)
	resp, err := put(t, t.Context(), client, url, strings.NewReader("upload"))
	require.NoError(t, err)
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, "upload", string(got))
	require.NoError(t, resp.Body.Close())
}
