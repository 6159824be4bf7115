package retryhttp_test

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
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/httperr"
	"github.com/retryhttp/retryhttp/internal/test/loopback"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestClassifyStatus(t *testing.T) {
	for code := 100; code <= 999; code++ {
		want := retryhttp.Final
		switch {
		case code == 429:
			want = retryhttp.Unprocessed
		case code == 408 || code >= 500 && code <= 599:
			want = retryhttp.Retryable
		}
		got := retryhttp.Classify(retryhttp.Attempt{Response: &http.Response{StatusCode: code}})
		require.Equal(t, want, got, "status %d", code)
	}
	assert.Equal(t, retryhttp.Final, retryhttp.Classify(retryhttp.Attempt{}), "nothing at all")
}

// The conformance vectors have the errors that net/http makes. These are rarer, or wrapped by others.
func TestClassifyErrors(t *testing.T) {
	cases := []struct {
		name string
		err  error
		want retryhttp.Class
	}{
		{"marked permanent, wrapped", fmt.Errorf("breaker: %w", retryhttp.Permanent(errBroken)), retryhttp.Final},
		{"unknown authority", x509.UnknownAuthorityError{}, retryhttp.Final},
		{"wrong host name", httperr.WrongHost, retryhttp.Final},
		{"expired certificate", x509.CertificateInvalidError{Reason: x509.Expired}, retryhttp.Final},
		{"weak signature", x509.InsecureAlgorithmError(x509.MD5WithRSA), retryhttp.Final},
		{"unhandled extension", x509.UnhandledCriticalExtension{}, retryhttp.Final},
		{"constraint violation", x509.ConstraintViolationError{}, retryhttp.Final},
		{"HTTP/2 without TLS that is not enabled", errors.New("http2: unencrypted HTTP/2 not enabled"), retryhttp.Final},
		{"canceled below, wrapped", fmt.Errorf("base: %w", errors.New("net/http: request canceled")), retryhttp.Final},
		{
			"a Timeout of a client below",
			errors.New("net/http: request canceled (Client.Timeout exceeded while awaiting headers)"), retryhttp.Retryable,
		},

		{"connection refused, wrapped", fmt.Errorf("base: %w", httperr.DialRefused), retryhttp.Unprocessed},
		{"name server times out", &net.DNSError{Err: "i/o timeout", Name: "h", IsTimeout: true}, retryhttp.Unprocessed},
		{
			"TLS alert of a proxy, about its connection",
			&net.OpError{Op: "proxyconnect", Err: &net.OpError{Op: "remote error", Err: alert(20)}}, retryhttp.Unprocessed,
		},
		{"stream refused, wrapped", fmt.Errorf("base: %w", resetStream(7)), retryhttp.Unprocessed},

		{"stream refused, and then another", hidingMore{hiding{resetStream(7)}}, retryhttp.Retryable},
		{
			"stream refused after a redirect, hidden", hiding{&url.Error{Op: "Post", URL: "http://h/", Err: resetStream(7)}},
			retryhttp.Retryable,
		},
		{"two errors wrapped", fmt.Errorf("%w, then %w", io.EOF, httperr.DialRefused), retryhttp.Retryable},
		{"a join of nothing", emptyJoin{}, retryhttp.Retryable},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, retryhttp.Classify(retryhttp.Attempt{Request: get(t, t.Context()), Err: tc.err}))
			assert.Equal(t, tc.want, retryhttp.Classify(retryhttp.Attempt{Err: tc.err}), "without a request")
		})
	}
}

func resetStream(code uint32) error { return httperr.HTTP2{StreamID: 1, Code: code} }

// hiding has another error's As, like the error chains of some packages.
type hiding struct{ err error }

func (e hiding) Error() string      { return "gateway: " + e.err.Error() }
func (e hiding) As(target any) bool { return errors.As(e.err, target) }

// hidingMore also unwraps.
type hidingMore struct{ hiding }

func (e hidingMore) Unwrap() error { return io.ErrUnexpectedEOF }

type emptyJoin struct{}

func (emptyJoin) Error() string   { return "every endpoint failed" }
func (emptyJoin) Unwrap() []error { return nil }

// alert has the form of the type that crypto/tls does not export.
type alert uint8

func (a alert) Error() string { return tls.AlertError(a).Error() }

// The peer reports some failures of the connection as alerts, too. All other alerts refuse this side.
func TestClassifyTLSAlerts(t *testing.T) {
	aboutTheConnection := map[tls.AlertError]bool{10: true, 20: true, 21: true, 22: true, 50: true, 80: true, 90: true}
	for code := range tls.AlertError(255) {
		want := retryhttp.Final
		if aboutTheConnection[code] {
			want = retryhttp.Retryable
		}
		for name, err := range map[string]error{
			"QUIC": fmt.Errorf("crypto: %w", code), "TCP": httperr.HTTP1(&net.OpError{Op: "remote error", Err: alert(code)}),
		} {
			assert.Equal(t, want, retryhttp.Classify(retryhttp.Attempt{Err: err}), "%v over %s", code, name)
		}
	}
}

func TestPermanent(t *testing.T) {
	assert.NoError(t, retryhttp.Permanent(nil))
	err := retryhttp.Permanent(errBroken)
	assert.ErrorIs(t, err, errBroken)
	assert.EqualError(t, err, errBroken.Error())
}

func TestClassHasAName(t *testing.T) {
	names := []string{
		retryhttp.Final.String(), retryhttp.Retryable.String(), retryhttp.Unprocessed.String(),
		retryhttp.Undecided.String(), retryhttp.Class(7).String(),
	}
	assert.Equal(t, []string{"final", "retryable", "unprocessed", "undecided", "Class(7)"}, names)
}

// The tests that follow compare Classify with the errors of the net/http in use.

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// unread dials connections from which nothing is read until the test is over. When net/http cannot
// write a request, it closes the connection. If the error of its reader came first, net/http would
// report the closed connection, and not what is wrong with the request.
func unread(t *testing.T, dial dialer) dialer {
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return unreadConn{conn, over}, err
	}
}

type unreadConn struct {
	net.Conn
	over <-chan struct{}
}

func (c unreadConn) Read([]byte) (int, error) {
	<-c.over
	return 0, net.ErrClosed
}

func TestClassifyNetHTTPInvalidRequests(t *testing.T) {
	h1 := loopback.Serve(t, status(200))
	h2, two := loopback.ServeTLS(t, true, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	})
	proxy, err := url.Parse(h1)
	require.NoError(t, err)
	plain := &http.Transport{DialContext: unread(t, new(net.Dialer).DialContext)}
	proxied := &http.Transport{DialContext: plain.DialContext, Proxy: http.ProxyURL(proxy)}
	noTLS := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, MaxVersion: tls.VersionTLS12}}
	upload := func(body string, length int64) func(*http.Request) {
		return func(r *http.Request) {
			r.Method, r.Body, r.ContentLength = "PUT", io.NopCloser(strings.NewReader(body)), length
		}
	}
	trailer := func(r *http.Request) {
		upload("x", -1)(r)
		r.Trailer = http.Header{"Content-Length": nil}
	}
	p := noWait
	p.Idempotent = func(*http.Request) bool { return true }
	for _, tc := range []struct {
		name string
		base *http.Transport
		edit func(*http.Request)
	}{
		{"unsupported scheme", plain, func(r *http.Request) { r.URL.Scheme = "gopher" }},
		{"no host", plain, func(r *http.Request) { r.URL.Host = "" }},
		{"no URL", plain, func(r *http.Request) { r.URL = nil }},
		{"no header", plain, func(r *http.Request) { r.Header = nil }},
		{"invalid method", plain, func(r *http.Request) { r.Method = "GE T" }},
		{"invalid name", plain, func(r *http.Request) { r.Header["a b"] = []string{"c"} }},
		{"invalid value", plain, func(r *http.Request) { r.Header["A"] = []string{"a\nb"} }},
		{"invalid trailer", plain, func(r *http.Request) { r.Trailer = http.Header{"a b": {"c"}} }},
		{"invalid port", plain, func(r *http.Request) { r.URL.Host = "127.0.0.1:99999" }},
		{"invalid Host through a proxy", proxied, func(r *http.Request) { r.Host = "a b" }},
		{"control character in the URL", plain, func(r *http.Request) { r.URL.Opaque = "/a\nb" }},
		{"control character in the query", plain, func(r *http.Request) { r.URL.RawQuery = "a\nb" }},
		{"Host that IDNA forbids", plain, func(r *http.Request) { r.Host = "xn--\u00ff.example" }},
		{"host that IDNA forbids", plain, func(r *http.Request) { r.URL.Host = "xn--\u00ff.example\u202e" }},
		{"TLS versions that exclude each other", noTLS, func(r *http.Request) { r.URL.Scheme = "https" }},
		{"forbidden trailer", plain, trailer},
		{"body longer than its length", plain, upload("more than that", 3)},
		{"body shorter than its length", plain, upload("less", 30)},
		{"length without a body", plain, func(r *http.Request) { r.ContentLength = 5 }},
		{"HTTP/2: path without a slash", two, func(r *http.Request) { r.URL.Path = "foo" }},
		{"HTTP/2: opaque URL", two, func(r *http.Request) { r.URL.Opaque = "foo" }},
		{"HTTP/2: forbidden trailer", two, trailer},
		{"HTTP/2: Connection", two, func(r *http.Request) { r.Header["Connection"] = []string{"upgrade"} }},
		{"HTTP/2: Upgrade", two, func(r *http.Request) { r.Header["Upgrade"] = []string{"x"} }},
		{"HTTP/2: Transfer-Encoding", two, func(r *http.Request) { r.Header["Transfer-Encoding"] = []string{"x"} }},
		{"HTTP/2: Host that IDNA forbids", two, func(r *http.Request) { r.Host = "xn--\u00ff" }},
		{"HTTP/2: invalid Host", two, func(r *http.Request) { r.Host = "a b" }},
		{"HTTP/2: body longer than its length", two, upload("more than that", 3)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := getURL(t, map[bool]string{false: h1, true: h2}[tc.base == two])
			tc.edit(req)
			_, err := retryhttp.New(tc.base, p).RoundTrip(req)
			assert.Equal(t, retryhttp.StopFinal, errorOf(t, err).Stop, "%v", err)
			assert.Equal(t, 1, errorOf(t, err).Attempts)
		})
	}
}

// tunnelToPlainText is a proxy that opens a tunnel to a server that does not speak TLS.
func tunnelToPlainText(c net.Conn) {
	r := bufio.NewReader(c)
	_ = loopback.ReadRequest(r)
	loopback.Say("HTTP/1.1 200 OK\r\n\r\n")(c)
	_, _ = r.Peek(1) // the handshake
	loopback.Say("HTTP/1.1 400 Bad Request\r\n\r\n")(c)
}

func TestClassifyNetHTTPConnectionErrors(t *testing.T) {
	speak := func(text string) (url string) { return loopback.ServeRaw(t, loopback.Say(text)) }
	secure, _ := loopback.ServeTLS(t, false, status(200))
	demanding := httptest.NewUnstartedServer(status(200))
	demanding.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12}
	demanding.Config.ErrorLog = log.New(io.Discard, "", 0)
	demanding.StartTLS()
	t.Cleanup(demanding.Close)
	trusting := demanding.Client().Transport.(*http.Transport)
	refusing := loopback.Refusing(t)
	through := func(scheme, addr string) *http.Transport {
		return &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: scheme, Host: addr})}
	}
	tunnel := loopback.Listen(t, tunnelToPlainText).Addr().String()
	silent := loopback.Listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }).Addr().String()
	direct := &http.Transport{}
	for _, tc := range []struct {
		name string
		base *http.Transport
		url  string
		want retryhttp.Class
	}{
		{"refused", direct, "http://" + refusing, retryhttp.Unprocessed},
		{"proxy refused, plain", through("http", refusing), "http://host.example", retryhttp.Unprocessed},
		{"proxy refused, tunnel", through("http", refusing), "https://host.example", retryhttp.Unprocessed},
		{"SOCKS proxy refused", through("socks5", refusing), "http://host.example", retryhttp.Unprocessed},
		{"TLS handshake timeout", &http.Transport{TLSHandshakeTimeout: 1}, "https://" + silent, retryhttp.Unprocessed},
		{"unknown authority", direct, secure, retryhttp.Final},
		{"client certificate demanded", trusting, demanding.URL, retryhttp.Final},
		{"HTTP spoken in a proxy's tunnel", through("http", tunnel), "https://host.example", retryhttp.Final},
		{"a length with a sign", direct, speak("HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\nabc"), retryhttp.Final},
		{"another protocol", direct, speak("SSH-2.0-OpenSSH_9\r\n"), retryhttp.Retryable},
		{"closed without an answer", direct, speak(""), retryhttp.Retryable},
		{"closed in the status line", direct, speak("HTTP/1.1 20"), retryhttp.Retryable},
		{"closed in the header", direct, speak("HTTP/1.1 200 OK\r\nA: b\r\n"), retryhttp.Retryable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := getURL(t, tc.url)
			_, err := tc.base.RoundTrip(req) //nolint:bodyclose // there is none
			require.Error(t, err)
			assert.Equal(t, tc.want, retryhttp.Classify(retryhttp.Attempt{Request: req, Err: err}), "%v", err)
		})
	}
}

// Programs fall back to HTTP if a client says that the server speaks it.
func TestErrorOfAnHTTPServerOnAnHTTPSURLIsTheClientsOwn(t *testing.T) {
	plain := strings.Replace(loopback.Serve(t, status(200)), "http:", "https:", 1)
	for name, p := range map[string]retryhttp.Policy{
		"default":      {},
		"a time limit": {AttemptTimeout: time.Minute},
		"a hedge":      {Hedge: &retryhttp.Hedge{After: time.Minute}},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP/2: %v", name, http2), func(t *testing.T) {
				base := &http.Transport{ForceAttemptHTTP2: http2}
				_, bare := (&http.Client{Transport: base}).Get(plain) //nolint:bodyclose // there is none
				require.ErrorIs(t, bare, http.ErrSchemeMismatch)

				rt := retryhttp.New(retryhttp.New(base, p), p)
				_, err := (&http.Client{Transport: rt}).Get(plain) //nolint:bodyclose // there is none
				assert.ErrorIs(t, err, http.ErrSchemeMismatch)
				assert.EqualError(t, err, bare.Error())
				var record tls.RecordHeaderError
				require.ErrorAs(t, err, &record)
				assert.Equal(t, "HTTP/", string(record.RecordHeader[:]))
				e := errorOf(t, err)
				assert.Equal(t, 1, e.Attempts)
				assert.Equal(t, retryhttp.StopFinal, e.Stop)
			})
		}
	}
}

func TestErrorOfAnotherProtocolOnAnHTTPSURLIsNoSchemeMismatch(t *testing.T) {
	mail := strings.Replace(loopback.ServeRaw(t, loopback.Say("220 mail.example ESMTP\r\n")), "http:", "https:", 1)
	_, err := retryhttp.New(&http.Transport{}, retryhttp.Policy{}).RoundTrip(getURL(t, mail))
	assert.NotErrorIs(t, err, http.ErrSchemeMismatch)
	assert.Equal(t, retryhttp.StopFinal, errorOf(t, err).Stop)
}

// flippingConn flips a bit of the next Write if it is armed.
type flippingConn struct {
	net.Conn
	armed atomic.Bool
}

func (c *flippingConn) Write(p []byte) (int, error) {
	if c.armed.CompareAndSwap(true, false) {
		p = bytes.Clone(p)
		p[len(p)-1] ^= 1
	}
	return c.Conn.Write(p)
}

// flipping makes base flip a bit of what the request sends with the context that arm returns.
func flipping(base *http.Transport) (arm func(ctx context.Context, times int32) context.Context) {
	base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &flippingConn{Conn: c}, err
	}
	return func(ctx context.Context, times int32) context.Context {
		var armed atomic.Int32
		return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
			if armed.Add(1) <= times {
				info.Conn.(*tls.Conn).NetConn().(*flippingConn).armed.Store(true)
			}
		}})
	}
}

// The server answers the flipped bit with an alert, bad_record_mac. Over HTTP/2 the alert ends all
// requests that wait on the connection.
func TestAlertAboutAFlippedBitIsRetried(t *testing.T) {
	for protocol, waiting := range map[string]int32{"HTTP/1": 0, "HTTP/2": 20} {
		t.Run(protocol, func(t *testing.T) {
			arrived, hanging := make(chan struct{}, waiting), atomic.Int32{}
			url, base := loopback.ServeTLS(t, protocol == "HTTP/2", func(_ http.ResponseWriter, r *http.Request) {
				if hanging.Add(1) <= waiting {
					arrived <- struct{}{}
					<-r.Context().Done()
				}
			})
			// Over HTTP/1 net/http resends a GET itself if its connection had been used before.
			base.DisableKeepAlives = protocol == "HTTP/1"
			arm := flipping(base)
			p := noWait
			p.OnRetry = func(a retryhttp.Attempt) {
				assert.ErrorContains(t, a.Err, "remote error: tls: bad record MAC")
			}
			send := func(method string, flips int32) {
				req := getURL(t, url).WithContext(arm(t.Context(), flips))
				req.Method = method
				resp, err := retryhttp.New(base, p).RoundTrip(req)
				if !assert.NoError(t, err) {
					return
				}
				assert.NoError(t, resp.Body.Close())
				o := retryhttp.OutcomeOf(resp)
				assert.Equal(t, 2, o.Attempts)
				assert.Equal(t, method == "PUT", o.Ambiguous, "the server may have processed what it had read")
			}
			var all sync.WaitGroup
			for range waiting {
				all.Go(func() { send("GET", 0) })
			}
			for range waiting {
				<-arrived
			}
			send("PUT", 1)
			all.Wait()
			send("GET", 1)

			req := getURL(t, url).WithContext(arm(t.Context(), 1))
			req.Method, p.RetryUnprocessed = "POST", true
			_, err := retryhttp.New(base, p).RoundTrip(req)
			assert.Equal(t, retryhttp.StopNotIdempotent, errorOf(t, err).Stop)
		})
	}
}

// A request may be canceled in ways that are deprecated, and that its context does not show.
func TestRequestThatIsCanceledBelowIsNotRetried(t *testing.T) {
	for _, tc := range []struct {
		way              string
		http2, connected bool
	}{
		{"Cancel", false, true}, {"Cancel", false, false}, {"Cancel", true, true}, {"Cancel", true, false},
		{"CancelRequest", false, true}, {"CancelRequest", false, false}, {"CancelRequest", true, false},
	} {
		t.Run(fmt.Sprintf("%s, HTTP/2: %v, connected: %v", tc.way, tc.http2, tc.connected), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, base, stop := memnet.ServeProtocol(hang, tc.http2)
				defer stop()
				if !tc.connected {
					base.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
						<-ctx.Done()
						return nil, ctx.Err()
					}
				}
				below := script.Step(func(req *http.Request) (*http.Response, error) {
					channel := make(chan struct{})
					sent := req.WithContext(req.Context())
					cancel := func() { base.CancelRequest(sent) } //lint:ignore SA1019 some still use it
					if tc.way == "Cancel" {
						sent.Cancel = channel //lint:ignore SA1019 some still use it
						cancel = func() { close(channel) }
					}
					time.AfterFunc(time.Second, cancel)
					return base.RoundTrip(sent)
				})
				_, err := retryhttp.New(below, noWait).RoundTrip(get(t, t.Context()))
				assert.Equal(t, retryhttp.StopFinal, errorOf(t, err).Stop, "%v", err)
				assert.Equal(t, 1, errorOf(t, err).Attempts)
				assert.ErrorContains(t, err, "net/http: request canceled")
			})
		})
	}
}

// The body has a GetBody, and its Read fails with a dial error after half of it was sent.
func TestUnprocessedIsNotABodyReadThatDials(t *testing.T) {
	for _, failure := range []error{httperr.DialRefused, &net.DNSError{Err: "server misbehaving", IsTemporary: true}} {
		req := uploadOf(t, nil)
		req.GetBody = func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader("transfer 100"), iotest.ErrReader(failure))), nil
		}
		req.Method = "POST"
		req.Body, _ = req.GetBody()
		p := noWait
		p.RetryUnprocessed = true
		base := script.New(script.Status(200))
		_, err := retryhttp.New(base, p).RoundTrip(req)
		assert.ErrorIs(t, err, failure)
		assert.Equal(t, retryhttp.StopNotIdempotent, errorOf(t, err).Stop)
	}
}

// A POST over an http.Client takes effect, and its 303 leads to a failed dial, or to a refused stream.
func TestUnprocessedIsNotARedirectedPost(t *testing.T) {
	for _, failure := range []error{httperr.DialRefused, resetStream(7)} {
		payments := 0
		client := &http.Client{Transport: script.Step(func(r *http.Request) (*http.Response, error) {
			if r.Method == "GET" {
				return nil, failure
			}
			payments++
			return script.Response(r, 303, "Location", "/receipt"), nil
		})}
		p := noWait
		p.RetryUnprocessed = true
		_, err := retryhttp.New(script.Step(client.Do), p).RoundTrip(requestOf(t, "POST", nil))
		assert.ErrorIs(t, err, failure)
		assert.Equal(t, retryhttp.StopNotIdempotent, errorOf(t, err).Stop)
		assert.Equal(t, 1, payments)
	}
}

// deafConn fails every Read with a dial error, after the server has executed the
// request. A connection through a tunnel may do so.
type deafConn struct{ net.Conn }

func (c deafConn) Read([]byte) (int, error) {
	b := make([]byte, 1)
	_, _ = io.ReadFull(c.Conn, b) // the server has answered
	return 0, httperr.DialRefused
}

func TestUnprocessedIsNotAFailedDialThatARequestWasWrittenTo(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Hour} {
		var payments atomic.Int32
		url := loopback.Serve(t, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			payments.Add(1)
		})
		base := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return deafConn{c}, err
		}}
		p := noWait
		p.RetryUnprocessed, p.AttemptTimeout = true, timeout
		req, err := http.NewRequest("POST", url, strings.NewReader("pay"))
		require.NoError(t, err)
		_, err = retryhttp.New(base, p).RoundTrip(req)
		assert.Equal(t, retryhttp.StopNotIdempotent, errorOf(t, err).Stop)
		assert.EqualValues(t, 1, payments.Load())
		base.CloseIdleConnections()
	}
}

// frame is a frame of HTTP/2 (RFC 9113, section 4.1) on a client's first stream, or on none.
func frame(kind, flags, stream byte, payload string) string {
	return string([]byte{0, 0, byte(len(payload)), kind, flags, 0, 0, 0, stream}) + payload
}

// declaresTen is a base whose server answers one request with a declared length of 10 and a tag. It sends
// body, with the flags of its last frame, and answers no pings.
func declaresTen(flags byte, body string) (base *http.Transport, stop func()) {
	const (
		status = "\x88"               // 200, from the table of RFC 7541, appendix A
		length = "\x0f\x0d\x0210"     // Content-Length: 10
		tag    = "\x0f\x13\x04\"v1\"" // ETag: "v1"
	)
	answer := frame(4, 0, 0, "") + frame(4, 1, 0, "") + frame(1, 4, 1, status+length+tag) + frame(0, flags, 1, body)
	client, conn := net.Pipe()
	base = &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return client, nil },
		HTTP2:       &http.HTTP2Config{SendPingTimeout: time.Second, PingTimeout: time.Second},
		Protocols:   new(http.Protocols),
	}
	base.Protocols.SetUnencryptedHTTP2(true)
	go func() {
		// The client's headers frame ends its request: flags 5 on stream 1.
		for got, part := []byte(nil), make([]byte, 1024); !bytes.Contains(got, []byte{1, 5, 0, 0, 0, 1}); {
			n, err := conn.Read(part)
			if err != nil {
				return
			}
			got = append(got, part[:n]...)
		}
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		_, _ = io.WriteString(conn, answer)
	}()
	return base, func() {
		base.CloseIdleConnections()
		conn.Close()
	}
}

const endOfStream = 1

// net/http counts the bytes, and says so if there are more than were declared.
func TestMoreBytesThanDeclaredAreAnErrorOverHTTP2(t *testing.T) {
	inBubbles(t, map[string]retryhttp.Policy{
		"as it comes": {},
		"buffered":    {BufferBytes: 100, MaxAttempts: 1},
		"resumed":     {Resume: true},
		"peeked":      {PeekBytes: 100, MaxAttempts: 1},
	}, func(t *testing.T, p retryhttp.Policy) {
		base, stop := declaresTen(endOfStream, "0123456789abcde")
		defer stop()
		got, err := download(t, base, p)
		assert.ErrorContains(t, err, "more than declared Content-Length")
		assert.Equal(t, "0123456789", got)
	})
}

// A connection that is lost after the last byte takes nothing away.
func TestConnectionLostAfterTheLastDeclaredByteIsTheEnd(t *testing.T) {
	inBubbles(t, map[string]retryhttp.Policy{
		"buffered": {BufferBytes: 100, MaxAttempts: 1},
		"resumed":  {Resume: true},
	}, func(t *testing.T, p retryhttp.Policy) {
		base, stop := declaresTen(0, "0123456789")
		defer stop()
		began := time.Now()
		got, err := download(t, base, p)
		require.NoError(t, err)
		assert.Equal(t, "0123456789", got)
		assert.Equal(t, 2*time.Second, time.Since(began), "the connection answers no ping")
	})
}

// Over HTTP/2 a stream may go on after the last byte that was declared.
func TestAttemptTimeoutAfterTheLastByteLeavesAWholeBody(t *testing.T) {
	text := strings.Repeat("x", 100)
	overBoth(t, play(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}), func(t *testing.T, base http.RoundTripper, srv *server) {
		got, err := download(t, base, retryhttp.Policy{BufferBytes: 1000, AttemptTimeout: time.Second})
		require.NoError(t, err)
		assert.Equal(t, text, got)
		assert.Len(t, srv.got, 1)
	})
}
