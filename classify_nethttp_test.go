package retryhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
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
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/httperr"
	"github.com/retryhttp/retryhttp/internal/test/loopback"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func classOf(t *testing.T, base http.RoundTripper, req *http.Request) (retryhttp.Class, error) {
	t.Helper()
	resp, err := base.RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	require.Error(t, err)
	return retryhttp.Classify(retryhttp.Attempt{Request: req, Err: err}), err
}

// These tests compare Classify with the errors of the net/http in use.

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
	h2, two := loopback.ServeTLS(t, true, status(200))
	pu, _ := url.Parse(h1)
	proxied := &http.Transport{Proxy: http.ProxyURL(pu), DialContext: unread(t, new(net.Dialer).DialContext)}
	plain := &http.Transport{DialContext: unread(t, new(net.Dialer).DialContext)}
	mk := func(u string, edit func(*http.Request)) *http.Request {
		r, err := http.NewRequest("GET", u, nil)
		require.NoError(t, err)
		edit(r)
		return r
	}
	cases := []struct {
		name string
		base http.RoundTripper
		req  *http.Request
	}{
		{"invalid Host header via proxy", proxied, mk("http://h.example", func(r *http.Request) { r.Host = "a b" })},
		{"control char in URL", plain, mk(h1, func(r *http.Request) { r.URL.Opaque = "/a\nb" })},
		{"control char in query", plain, mk(h1, func(r *http.Request) { r.URL.RawQuery = "a\nb" })},
		{"bad idna Host", plain, mk(h1, func(r *http.Request) { r.Host = "xn--\u00ff.example" })},
		{
			"bad idna URL host", plain,
			mk("http://h.example", func(r *http.Request) { r.URL.Host = "xn--\u00ff.example\u202e" }),
		},
		{"trailer key", plain, mk(h1, func(r *http.Request) {
			r.Method = "PUT"
			r.Body = io.NopCloser(strings.NewReader("x"))
			r.ContentLength = -1
			r.Trailer = http.Header{"Content-Length": nil}
		})},
		{"h2 path no slash", two, mk(h2, func(r *http.Request) { r.URL.Path = "foo" })},
		{"h2 opaque", two, mk(h2, func(r *http.Request) { r.URL.Opaque = "foo" })},
		{"h2 trailer key", two, mk(h2, func(r *http.Request) {
			r.Method = "PUT"
			r.Body = io.NopCloser(strings.NewReader("x"))
			r.ContentLength = -1
			r.Trailer = http.Header{"Content-Length": nil}
		})},
		{"h2 Connection", two, mk(h2, func(r *http.Request) { r.Header["Connection"] = []string{"upgrade"} })},
		{"h2 Upgrade", two, mk(h2, func(r *http.Request) { r.Header["Upgrade"] = []string{"x"} })},
		{"h2 Transfer-Encoding", two, mk(h2, func(r *http.Request) { r.Header["Transfer-Encoding"] = []string{"x"} })},
		{"h2 idna Host", two, mk(h2, func(r *http.Request) { r.Host = "xn--\u00ff" })},
		{"h2 bad Host", two, mk(h2, func(r *http.Request) { r.Host = "a b" })},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			resp, err := tc.base.RoundTrip(tc.req)
			if err == nil {
				resp.Body.Close()
			}
			require.Error(t, err)
			c := retryhttp.Classify(retryhttp.Attempt{Request: tc.req, Err: err})
			assert.Equal(t, retryhttp.Final, c, "%v", err)
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
	plain := loopback.Serve(t, status(200))
	secure, _ := loopback.ServeTLS(t, false, status(200))
	demanding := httptest.NewUnstartedServer(status(200))
	demanding.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12}
	demanding.Config.ErrorLog = log.New(io.Discard, "", 0)
	demanding.StartTLS()
	t.Cleanup(demanding.Close)
	trusting := demanding.Client().Transport.(*http.Transport)
	refusing := loopback.Refusing(t)
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
		{
			"SOCKS proxy refused", &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "socks5", Host: refusing})},
			"http://host.example", retryhttp.Unprocessed,
		},
		{"unknown authority", &http.Transport{}, secure, retryhttp.Final},
		{"client certificate demanded", trusting, demanding.URL, retryhttp.Final},
		{"HTTP spoken on an https URL", &http.Transport{}, strings.Replace(plain, "http:", "https:", 1), retryhttp.Final},
		{
			"HTTP spoken in a proxy's tunnel", throughProxy(loopback.Listen(t, tunnelToPlainText).Addr().String()),
			"https://host.example", retryhttp.Final,
		},
		{"another protocol", &http.Transport{}, speak("SSH-2.0-OpenSSH_9\r\n"), retryhttp.Retryable},
		{"another version", &http.Transport{}, speak("HTTP/x.y 200 OK\r\n\r\n"), retryhttp.Retryable},
		{"no status", &http.Transport{}, speak("HTTP/1.1 abc OK\r\n\r\n"), retryhttp.Retryable},
		{"a length with a sign", &http.Transport{}, speak("HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\nabc"), retryhttp.Final},
		{"a status of four digits", &http.Transport{}, speak("HTTP/1.1 2000 OK\r\n\r\n"), retryhttp.Retryable},
		{"a greeting with a number", &http.Transport{}, speak("220 mail.example ESMTP\r\n"), retryhttp.Retryable},
		{"closed without an answer", &http.Transport{}, speak(""), retryhttp.Retryable},
		{"closed in the version", &http.Transport{}, speak("HTT"), retryhttp.Retryable},
		{"closed behind the version", &http.Transport{}, speak("HTTP/1.1"), retryhttp.Retryable},
		{"closed before the status", &http.Transport{}, speak("HTTP/1.1 "), retryhttp.Retryable},
		{"closed in the status line", &http.Transport{}, speak("HTTP/1.1 20"), retryhttp.Retryable},
		{"closed in the header", &http.Transport{}, speak("HTTP/1.1 200 OK\r\nA: b\r\n"), retryhttp.Retryable},
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

// Programs fall back to HTTP if a client says that the server speaks it.
func TestErrorOfAnHTTPServerOnAnHTTPSURLIsTheClientsOwn(t *testing.T) {
	plain := strings.Replace(loopback.Serve(t, status(200)), "http:", "https:", 1)
	for name, p := range map[string]retryhttp.Policy{
		"default": {}, "a time limit": {AttemptTimeout: time.Minute}, "a hedge": {Hedge: &retryhttp.Hedge{After: time.Minute}},
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

type flipConn struct {
	net.Conn
	flip *atomic.Bool
}

func (c flipConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 20 && c.flip.CompareAndSwap(true, false) {
		p[n-1] ^= 1
	}
	return n, err
}

// One bit flips on the way in the middle of a connection: bad record MAC.
func TestClassifyNetHTTPCorruptedRecord(t *testing.T) {
	url, base := loopback.ServeTLS(t, false, status(200))
	var flip atomic.Bool
	base.ForceAttemptHTTP2 = false
	base.DialContext = func(ctx context.Context, n, a string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, n, a)
		return flipConn{c, &flip}, err
	}
	req, _ := http.NewRequest("DELETE", url, nil)
	resp, err := base.RoundTrip(req)
	require.NoError(t, err)
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	flip.Store(true)
	_, err = base.RoundTrip(req)
	require.Error(t, err)
	assert.Equal(t, retryhttp.Retryable, retryhttp.Classify(retryhttp.Attempt{Request: req, Err: err}), "%v", err)
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
	const waiting = 20
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2: %v", http2), func(t *testing.T) {
			arrived, hanging := make(chan struct{}, waiting), atomic.Int32{}
			url, base := loopback.ServeTLS(t, http2, func(_ http.ResponseWriter, r *http.Request) {
				if http2 && hanging.Add(1) <= waiting {
					arrived <- struct{}{}
					<-r.Context().Done()
				}
			})
			base.DisableKeepAlives = !http2 // net/http resends a GET itself if its connection had been used before
			arm := flipping(base)
			p := noWait
			p.Budget = retryhttp.Unlimited{}
			p.OnRetry = func(a retryhttp.Attempt) {
				assert.ErrorContains(t, a.Err, "remote error: tls: bad record MAC")
			}
			rt := retryhttp.New(base, p)
			send := func(method string, flips int32) {
				req, err := http.NewRequestWithContext(arm(t.Context(), flips), method, url, nil)
				require.NoError(t, err)
				resp, err := rt.RoundTrip(req)
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
				all.Go(func() {
					if http2 {
						send("GET", 0)
					} else {
						send("GET", 1)
					}
				})
			}
			if http2 {
				for range waiting {
					<-arrived
				}
			}
			send("PUT", 1)
			all.Wait()

			req, err := http.NewRequestWithContext(arm(t.Context(), 1), "POST", url, nil)
			require.NoError(t, err)
			p.RetryUnprocessed = true
			_, err = retryhttp.New(base, p).RoundTrip(req)
			assert.Equal(t, retryhttp.StopNotIdempotent, errorOf(t, err).Stop)
		})
	}
}

// A request may be canceled in ways that are deprecated, and that its context does not show.
func TestRequestThatIsCanceledBelowIsNotRetried(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for name, cancel := range map[string]func(base *http.Transport, sent *http.Request, channel chan struct{}){
			"CancelRequest": func(base *http.Transport, sent *http.Request, _ chan struct{}) {
				base.CancelRequest(sent) //lint:ignore SA1019 some still use it
			},
			"Cancel": func(_ *http.Transport, _ *http.Request, channel chan struct{}) { close(channel) },
		} {
			for _, connected := range []bool{true, false} {
				if http2 && name == "CancelRequest" && connected {
					continue // it does nothing there, as net/http documents
				}
				t.Run(fmt.Sprintf("%s, HTTP/2: %v, connected: %v", name, http2, connected), func(t *testing.T) {
					arrived := make(chan struct{}, 1)
					url, base := loopback.ServeTLS(t, http2, func(_ http.ResponseWriter, r *http.Request) {
						arrived <- struct{}{}
						<-r.Context().Done()
						panic(http.ErrAbortHandler) // an answer might still overtake the end of the connection
					})
					if !connected {
						base.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
							arrived <- struct{}{}
							<-ctx.Done()
							return nil, ctx.Err()
						}
					}
					below := script.Step(func(req *http.Request) (*http.Response, error) {
						channel := make(chan struct{})
						sent := req.WithContext(req.Context())
						if name == "Cancel" {
							sent.Cancel = channel //lint:ignore SA1019 some still use it
						}
						go func() { <-arrived; cancel(base, sent, channel) }()
						return base.RoundTrip(sent)
					})
					_, err := retryhttp.New(below, noWait).RoundTrip(getURL(t, url))
					e := errorOf(t, err)
					assert.Equal(t, retryhttp.StopFinal, e.Stop, "%v", err)
					assert.Equal(t, 1, e.Attempts)
					assert.ErrorContains(t, err, "net/http: request canceled")
				})
			}
		}
	}
}

func TestUnprocessedIsRetriedForAnyMethodOnlyIfAsked(t *testing.T) {
	unprocessed := func(retryhttp.Attempt) retryhttp.Class { return retryhttp.Unprocessed }
	cases := []struct {
		name     string
		method   string
		policy   retryhttp.Policy
		attempts int
	}{
		{"a GET without being asked", "GET", retryhttp.Policy{Classify: unprocessed, MaxAttempts: 3}, 3},
		{"a POST without being asked", "POST", retryhttp.Policy{Classify: unprocessed, MaxAttempts: 3}, 1},
		{"a POST when asked", "POST", retryhttp.Policy{Classify: unprocessed, MaxAttempts: 3, RetryUnprocessed: true}, 3},
		{"a POST that may have been processed", "POST", retryhttp.Policy{MaxAttempts: 3, RetryUnprocessed: true}, 1},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				req := get(t, t.Context())
				req.Method = tc.method
				_, err := retryhttp.New(script.New(script.Fail(errBroken)), tc.policy).RoundTrip(req)
				e := errorOf(t, err)
				assert.Equal(t, tc.attempts, e.Attempts)
				assert.Equal(t, strings.HasSuffix(tc.name, "may have been processed"), e.Ambiguous)
			})
		})
	}
}

// The body has a GetBody, and its Read fails with a dial error after half of it
// was sent.
func TestUnprocessedIsNotABodyReadThatDials(t *testing.T) {
	for name, failure := range map[string]error{
		"dial": httperr.DialRefused,
		"dns":  &net.DNSError{Err: "server misbehaving", Name: "source", IsTemporary: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, acted := make(chan string, 10), make(chan struct{}, 10)
			url := loopback.Serve(t, func(w http.ResponseWriter, r *http.Request) {
				b := make([]byte, 100)
				n, _ := io.ReadAtLeast(r.Body, b, 1)
				got <- string(b[:n])
				acted <- struct{}{}
				_, _ = io.Copy(io.Discard, r.Body)
			})
			body := func() (io.ReadCloser, error) {
				pr, pw := io.Pipe()
				go func() {
					_, _ = io.WriteString(pw, "transfer 100; ")
					<-acted
					_ = pw.CloseWithError(fmt.Errorf("next part: %w", failure))
				}()
				return pr, nil
			}
			req, _ := http.NewRequest("POST", url, nil)
			req.Body, _ = body()
			req.GetBody = body
			req.ContentLength = -1
			p := retryhttp.Policy{RetryUnprocessed: true, Backoff: retryhttp.Constant(0)}
			_, err := retryhttp.New(&http.Transport{}, p).RoundTrip(req)
			require.Error(t, err)
			assert.Equal(t, 1, errorOf(t, err).Attempts, "%v", err)
			assert.Len(t, got, 1, "the server acted on how many uploads?")
		})
	}
}

// The base is an http.Client. The POST took effect, and its 303 leads to a host
// that is down.
func TestUnprocessedIsNotARedirectedPost(t *testing.T) {
	dead := loopback.Refusing(t)
	var payments atomic.Int32
	url := loopback.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		payments.Add(1)
		http.Redirect(w, r, "http://"+dead+"/receipt", http.StatusSeeOther)
	})
	client := &http.Client{}
	base := script.Step(func(req *http.Request) (*http.Response, error) {
		return client.Do(req)
	})
	req, _ := http.NewRequest("POST", url, nil)
	_, err := retryhttp.New(base, retryhttp.Policy{RetryUnprocessed: true, Backoff: retryhttp.Constant(0)}).RoundTrip(req)
	require.Error(t, err)
	assert.EqualValues(t, 1, payments.Load(), "%v", err)
}

// The base is an http.Client that followed a redirect, so the refused stream is
// not the POST.
func TestUnprocessedIsNotARefusedStreamAfterARedirect(t *testing.T) {
	payments := 0
	client := &http.Client{Transport: script.Step(func(r *http.Request) (*http.Response, error) {
		if r.Method == "GET" {
			return nil, httperr.HTTP2{StreamID: 3, Code: 7}
		}
		payments++
		return script.Response(r, 303, "Location", "/receipt"), nil
	})}
	req, err := http.NewRequest("POST", "http://host.example/", nil)
	require.NoError(t, err)
	p := retryhttp.Policy{RetryUnprocessed: true, Backoff: retryhttp.Constant(0)}
	rt := retryhttp.New(script.Step(client.Do), p)
	_, err = rt.RoundTrip(req)
	assert.Equal(t, retryhttp.StopNotIdempotent, errorOf(t, err).Stop)
	assert.Equal(t, 1, payments)
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
	for _, body := range []string{"", "pay"} {
		var payments atomic.Int32
		url := loopback.Serve(t, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			payments.Add(1)
		})
		base := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return deafConn{c}, err
		}}
		for _, timeout := range []time.Duration{0, time.Hour} {
			payments.Store(0)
			p := noWait
			p.RetryUnprocessed, p.AttemptTimeout = true, timeout
			req, err := http.NewRequest("POST", url, strings.NewReader(body))
			require.NoError(t, err)
			_, err = retryhttp.New(base, p).RoundTrip(req)
			assert.Equal(t, retryhttp.StopNotIdempotent, errorOf(t, err).Stop)
			assert.EqualValues(t, 1, payments.Load())
		}
		base.CloseIdleConnections()
	}
}
