package retryhttp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/replay"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

func TestClassifyStatus(t *testing.T) {
	for code := 100; code <= 999; code++ {
		want := retryhttp.Final
		if code == 408 || code == 429 || code >= 500 && code <= 599 {
			want = retryhttp.Retryable
		}
		got := retryhttp.Classify(retryhttp.Attempt{Response: &http.Response{StatusCode: code}})
		require.Equal(t, want, got, "status %d", code)
	}
	assert.Equal(t, retryhttp.Final, retryhttp.Classify(retryhttp.Attempt{}), "nothing at all")
}

func TestClassifyErrors(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	cases := []struct {
		name string
		err  error
		want retryhttp.Class
	}{
		{"marked permanent", retryhttp.Permanent(errBroken), retryhttp.Final},
		{"marked permanent, wrapped", fmt.Errorf("breaker: %w", retryhttp.Permanent(errBroken)), retryhttp.Final},
		{"marked permanent although a dial error", retryhttp.Permanent(dial(syscall.ECONNREFUSED)), retryhttp.Final},
		{"certificate of an unknown authority", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, retryhttp.Final},
		{"unknown authority", x509.UnknownAuthorityError{}, retryhttp.Final},
		{"wrong host name", x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}, retryhttp.Final},
		{"expired certificate", x509.CertificateInvalidError{Reason: x509.Expired}, retryhttp.Final},
		{"no system roots", x509.SystemRootsError{}, retryhttp.Final},
		{"weak signature", x509.InsecureAlgorithmError(x509.MD5WithRSA), retryhttp.Final},
		{"unhandled extension", x509.UnhandledCriticalExtension{}, retryhttp.Final},
		{"constraint violation", x509.ConstraintViolationError{}, retryhttp.Final},
		{"rejected ECH", &tls.ECHRejectionError{}, retryhttp.Final},
		{"TLS alert over QUIC", fmt.Errorf("crypto: %w", tls.AlertError(42)), retryhttp.Final},
		{"TLS alert over TCP", &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, retryhttp.Final},
		{"TLS alert through a proxy", &net.OpError{Op: "proxyconnect", Err: &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}}, retryhttp.Final},
		{"not TLS at all", tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, retryhttp.Final},
		{"HTTP on an HTTPS port", http.ErrSchemeMismatch, retryhttp.Final},
		{"not HTTP at all", errors.New(`net/http: HTTP/1.x transport connection broken: malformed HTTP response "SSH-2.0-x"`), retryhttp.Final},
		{"no such host", dial(&net.DNSError{Err: "no such host", Name: "h", IsNotFound: true}), retryhttp.Final},
		{"an address that is none", dial(&net.AddrError{Err: "invalid port", Addr: "h:99999"}), retryhttp.Final},
		{"an invalid escape in the URL", &url.Error{Op: "parse", Err: url.EscapeError("%zz")}, retryhttp.Final},
		{"a body that can't be read", fmt.Errorf("write: %w", &replay.ReadError{Err: io.ErrUnexpectedEOF}), retryhttp.Final},

		{"connection refused", dial(syscall.ECONNREFUSED), retryhttp.Unprocessed},
		{"connection refused, wrapped", fmt.Errorf("base: %w", dial(os.NewSyscallError("connect", syscall.ECONNREFUSED))), retryhttp.Unprocessed},
		{"two hosts refused", errors.Join(dial(syscall.ECONNREFUSED), dial(syscall.EHOSTUNREACH)), retryhttp.Unprocessed},
		{"no route", dial(syscall.EHOSTUNREACH), retryhttp.Unprocessed},
		{"dial timeout", dial(os.ErrDeadlineExceeded), retryhttp.Unprocessed},
		{"name server fails", dial(&net.DNSError{Err: "server misbehaving", Name: "h", IsTemporary: true}), retryhttp.Unprocessed},
		{"name server times out", &net.DNSError{Err: "i/o timeout", Name: "h", IsTimeout: true}, retryhttp.Unprocessed},
		{"proxy refuses the connection", &net.OpError{Op: "proxyconnect", Net: "tcp", Err: dial(syscall.ECONNREFUSED)}, retryhttp.Unprocessed},
		{"SOCKS proxy refuses", &net.OpError{Op: "socks connect", Net: "tcp", Err: errors.New("host unreachable")}, retryhttp.Unprocessed},
		{"stream refused, wrapped", fmt.Errorf("base: %w", resetStream(7)), retryhttp.Unprocessed},

		{"stream refused, and then another", hidingMore{hiding{resetStream(7)}}, retryhttp.Retryable},
		{"stream refused after a redirect, hidden", hiding{&url.Error{Op: "Post", URL: "http://h/", Err: resetStream(7)}}, retryhttp.Retryable},
		{"stream canceled, wrapped", fmt.Errorf("base: %w", resetStream(8)), retryhttp.Retryable},
		{"refused after a client's redirect", &url.Error{Op: "Post", URL: "http://h", Err: dial(syscall.ECONNREFUSED)}, retryhttp.Retryable},
		{"one host refused, the other broke", errors.Join(dial(syscall.ECONNREFUSED), io.EOF), retryhttp.Retryable},
		{"one broke, the other host refused", errors.Join(io.EOF, dial(syscall.ECONNREFUSED)), retryhttp.Retryable},
		{"two errors wrapped", fmt.Errorf("%w, then %w", io.EOF, dial(syscall.ECONNREFUSED)), retryhttp.Retryable},
		{"a read that failed for a dial further down", &net.OpError{Op: "read", Err: dial(syscall.ECONNREFUSED)}, retryhttp.Retryable},
		{"a write that failed for a name further down", &net.OpError{Op: "write", Err: &net.DNSError{Err: "server misbehaving"}}, retryhttp.Retryable},
		{"a corrupted TLS record", &net.OpError{Op: "local error", Err: errors.New("tls: bad record MAC")}, retryhttp.Retryable},
		{"reset while reading", &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}, retryhttp.Retryable},
		{"broken pipe", &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}, retryhttp.Retryable},
		{"end of file", io.EOF, retryhttp.Retryable},
		{"unexpected end of file", io.ErrUnexpectedEOF, retryhttp.Retryable},
		{"a deadline that is not the caller's", context.DeadlineExceeded, retryhttp.Retryable},
		{"a cancel that is not the caller's", context.Canceled, retryhttp.Retryable},
		{"an error of unknown kind", errBroken, retryhttp.Retryable},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, retryhttp.Classify(retryhttp.Attempt{Request: get(t, t.Context()), Err: tc.err}))
			assert.Equal(t, tc.want, retryhttp.Classify(retryhttp.Attempt{Err: tc.err}), "without a request")
		})
	}
}

// resetStream is an HTTP/2 error of that code.
func resetStream(code uint32) error { return http2Error{StreamID: 1, Code: code} }

// hiding has another error's As, as the chains of some packages for several errors do.
type hiding struct{ err error }

func (e hiding) Error() string      { return "gateway: " + e.err.Error() }
func (e hiding) As(target any) bool { return errors.As(e.err, target) }

// hidingMore also unwraps.
type hidingMore struct{ hiding }

func (e hidingMore) Unwrap() error { return io.ErrUnexpectedEOF }

func TestAnErrorAfterTheCallersContextEndedIsFinal(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	req := get(t, ctx)
	assert.Equal(t, retryhttp.Retryable, retryhttp.Classify(retryhttp.Attempt{Request: req, Err: errBroken}))
	cancel()
	assert.Equal(t, retryhttp.Final, retryhttp.Classify(retryhttp.Attempt{Request: req, Err: errBroken}))
}

func TestPermanent(t *testing.T) {
	assert.NoError(t, retryhttp.Permanent(nil))
	err := retryhttp.Permanent(errBroken)
	assert.ErrorIs(t, err, errBroken)
	assert.EqualError(t, err, errBroken.Error())
}

// classOf sends req through base, once, and returns how its error is
// classified.
func classOf(t *testing.T, base http.RoundTripper, req *http.Request) (retryhttp.Class, error) {
	t.Helper()
	resp, err := base.RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	require.Error(t, err)
	return retryhttp.Classify(retryhttp.Attempt{Request: req, Err: err}), err
}

// These hold what is known of errors against net/http as it is.

func TestClassifyNetHTTPRequestErrors(t *testing.T) {
	req := func(edit func(*http.Request)) *http.Request {
		r := get(t, t.Context())
		edit(r)
		return r
	}
	cases := map[string]*http.Request{
		"unsupported scheme": req(func(r *http.Request) { r.URL.Scheme = "gopher" }),
		"no host":            req(func(r *http.Request) { r.URL.Host = "" }),
		"no URL":             req(func(r *http.Request) { r.URL = nil }),
		"no header":          req(func(r *http.Request) { r.Header = nil }),
		"invalid method":     req(func(r *http.Request) { r.Method = "GE T" }),
		"invalid name":       req(func(r *http.Request) { r.Header["a b"] = []string{"c"} }),
		"invalid value":      req(func(r *http.Request) { r.Header["A"] = []string{"a\nb"} }),
		"invalid trailer":    req(func(r *http.Request) { r.Trailer = http.Header{"a b": {"c"}} }),
		"invalid port":       req(func(r *http.Request) { r.URL.Host = "127.0.0.1:99999" }),
	}
	for name, req := range cases {
		t.Run(name, func(t *testing.T) {
			class, err := classOf(t, &http.Transport{}, req)
			assert.Equal(t, retryhttp.Final, class, "%v", err)
			_, err = retryhttp.New(nil, retryhttp.Policy{Idempotent: func(*http.Request) bool { return true }}).RoundTrip(req)
			assert.Equal(t, 1, errorOf(t, err).Attempts)
		})
	}
}

func TestClassifyNetHTTPConnectionErrors(t *testing.T) {
	// speak is a server that says something before it closes the connection.
	speak := func(text string) (addr string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Read(make([]byte, 1024))
				_, _ = io.WriteString(c, text)
				_ = c.Close()
			}
		}()
		return l.Addr().String()
	}
	plain := httptest.NewServer(http.HandlerFunc(status(200)))
	t.Cleanup(plain.Close)
	secure := httptest.NewTLSServer(http.HandlerFunc(status(200)))
	secure.Config.ErrorLog = discardLog
	t.Cleanup(secure.Close)
	demanding := httptest.NewUnstartedServer(http.HandlerFunc(status(200)))
	demanding.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12}
	demanding.Config.ErrorLog = discardLog
	demanding.StartTLS()
	t.Cleanup(demanding.Close)
	trusting := demanding.Client().Transport.(*http.Transport)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	refusing := closed.Addr().String()
	require.NoError(t, closed.Close())
	throughProxy := func(addr string) *http.Transport {
		return &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: addr})}
	}

	cases := []struct {
		name string
		base http.RoundTripper
		url  string
		want retryhttp.Class
	}{
		{"refused", &http.Transport{}, "http://" + refusing, retryhttp.Unprocessed},
		{"proxy refused, plain", throughProxy(refusing), "http://host.example", retryhttp.Unprocessed},
		{"proxy refused, tunnel", throughProxy(refusing), "https://host.example", retryhttp.Unprocessed},
		{"SOCKS proxy refused", &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "socks5", Host: refusing})}, "http://host.example", retryhttp.Unprocessed},
		{"unknown authority", &http.Transport{}, secure.URL, retryhttp.Final},
		{"client certificate demanded", trusting, demanding.URL, retryhttp.Final},
		{"HTTP spoken on an https URL", &http.Transport{}, strings.Replace(plain.URL, "http:", "https:", 1), retryhttp.Final},
		{"another protocol", &http.Transport{}, "http://" + speak("SSH-2.0-OpenSSH_9\r\n"), retryhttp.Final},
		{"another version", &http.Transport{}, "http://" + speak("HTTP/x.y 200 OK\r\n\r\n"), retryhttp.Final},
		{"no status", &http.Transport{}, "http://" + speak("HTTP/1.1 abc OK\r\n\r\n"), retryhttp.Final},
		{"a status of four digits", &http.Transport{}, "http://" + speak("HTTP/1.1 2000 OK\r\n\r\n"), retryhttp.Final},
		{"a greeting with a number", &http.Transport{}, "http://" + speak("220 mail.example ESMTP\r\n"), retryhttp.Final},
		{"closed without an answer", &http.Transport{}, "http://" + speak(""), retryhttp.Retryable},
		{"closed in the version", &http.Transport{}, "http://" + speak("HTT"), retryhttp.Retryable},
		{"closed behind the version", &http.Transport{}, "http://" + speak("HTTP/1.1"), retryhttp.Retryable},
		{"closed before the status", &http.Transport{}, "http://" + speak("HTTP/1.1 "), retryhttp.Retryable},
		{"closed in the status line", &http.Transport{}, "http://" + speak("HTTP/1.1 20"), retryhttp.Retryable},
		{"closed in the header", &http.Transport{}, "http://" + speak("HTTP/1.1 200 OK\r\nA: b\r\n"), retryhttp.Retryable},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), "GET", tc.url, nil)
			require.NoError(t, err)
			class, err := classOf(t, tc.base, req)
			assert.Equal(t, tc.want, class, "%v", err)
		})
	}
}

func TestClassifyNetHTTPHandshakeTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer server.Close()
		go func() { _, _ = io.Copy(io.Discard, server) }()
		base := &http.Transport{
			TLSHandshakeTimeout: time.Second,
			DialContext:         func(context.Context, string, string) (net.Conn, error) { return client, nil },
		}
		req, err := http.NewRequest("GET", "https://host.example", nil)
		require.NoError(t, err)
		class, err := classOf(t, base, req)
		assert.Equal(t, retryhttp.Unprocessed, class, "%v", err)
		assert.ErrorContains(t, err, "TLS handshake timeout")
	})
}

func TestNoSuchHostIsNotRetried(t *testing.T) {
	base := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Err: &net.DNSError{Err: "no such host", Name: addr, IsNotFound: true}}
	}}
	_, err := retryhttp.New(base, retryhttp.Policy{}).RoundTrip(get(t, t.Context()))
	assert.Equal(t, 1, errorOf(t, err).Attempts)
}

func TestClassifySeesTheAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen []retryhttp.Attempt
		step := func(s script.Step) script.Step {
			return func(req *http.Request) (*http.Response, error) { time.Sleep(time.Second); return s(req) }
		}
		base := script.New(step(script.Fail(errBroken)), step(script.Status(503)), step(script.Status(200)))
		resp, err := retryhttp.New(base, retryhttp.Policy{Classify: func(a retryhttp.Attempt) retryhttp.Class {
			seen = append(seen, a)
			return retryhttp.Classify(a)
		}}).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Len(t, seen, 3)
		for i, a := range seen {
			assert.Equal(t, i+1, a.Number)
			assert.Equal(t, time.Second, a.Elapsed)
			assert.Zero(t, a.Wait)
			assert.Same(t, base.Requests()[i], a.Request)
		}
		assert.Equal(t, errBroken, seen[0].Err)
		assert.Nil(t, seen[0].Response)
		assert.Equal(t, 503, seen[1].Response.StatusCode)
		assert.NoError(t, seen[1].Err)
	})
}

func TestClassHasAName(t *testing.T) {
	names := []string{retryhttp.Final.String(), retryhttp.Retryable.String(), retryhttp.Unprocessed.String(), retryhttp.Class(7).String()}
	assert.Equal(t, []string{"final", "retryable", "unprocessed", "Class(7)"}, names)
}

// A body that does not fit its ContentLength does not fit it the next time.
func TestContentLengthThatDoesNotFitIsFinal(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for _, tc := range []struct {
			body   string
			length int64
		}{{"more than that", 3}, {"less", 30}} {
			if http2 && tc.length == 30 {
				continue // net/http leaves that to the server
			}
			t.Run(fmt.Sprintf("%s, HTTP/2: %v", tc.body, http2), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					_, base, stop := serve(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, http2)
					defer stop()
					req, err := http.NewRequest("PUT", "http://server/", strings.NewReader(tc.body))
					require.NoError(t, err)
					req.ContentLength = tc.length
					_, err = retryhttp.New(base, noWait).RoundTrip(req)
					e := errorOf(t, err)
					assert.Equal(t, 1, e.Attempts, "%v", err)
					assert.Equal(t, retryhttp.StopFinal, e.Stop)
					time.Sleep(time.Minute) // what net/http keeps for a closed stream
				})
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		_, base, stop := serve(status(200), false)
		defer stop()
		req, err := http.NewRequest("PUT", "http://server/", nil)
		require.NoError(t, err)
		req.ContentLength = 5
		_, err = retryhttp.New(base, noWait).RoundTrip(req)
		assert.Equal(t, 1, errorOf(t, err).Attempts, "%v", err)
	})
}
