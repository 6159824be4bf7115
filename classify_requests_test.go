package retryhttp_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

func TestInvalidRequestsAreFinal(t *testing.T) {
	h1 := httptest.NewServer(http.HandlerFunc(status(200)))
	defer h1.Close()
	h2 := httptest.NewUnstartedServer(http.HandlerFunc(status(200)))
	h2.EnableHTTP2 = true
	h2.StartTLS()
	defer h2.Close()
	pu, _ := url.Parse(h1.URL)
	proxied := &http.Transport{Proxy: http.ProxyURL(pu)}
	plain := &http.Transport{}
	two := h2.Client().Transport
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
		{"control char in URL", plain, mk(h1.URL, func(r *http.Request) { r.URL.Opaque = "/a\nb" })},
		{"control char in query", plain, mk(h1.URL, func(r *http.Request) { r.URL.RawQuery = "a\nb" })},
		{"bad idna Host", plain, mk(h1.URL, func(r *http.Request) { r.Host = "xn--\u00ff.example" })},
		{"bad idna URL host", plain, mk("http://h.example", func(r *http.Request) { r.URL.Host = "xn--\u00ff.example\u202e" })},
		{"trailer key", plain, mk(h1.URL, func(r *http.Request) {
			r.Method = "PUT"
			r.Body = io.NopCloser(strings.NewReader("x"))
			r.ContentLength = -1
			r.Trailer = http.Header{"Content-Length": nil}
		})},
		{"h2 path no slash", two, mk(h2.URL, func(r *http.Request) { r.URL.Path = "foo" })},
		{"h2 opaque", two, mk(h2.URL, func(r *http.Request) { r.URL.Opaque = "foo" })},
		{"h2 trailer key", two, mk(h2.URL, func(r *http.Request) {
			r.Method = "PUT"
			r.Body = io.NopCloser(strings.NewReader("x"))
			r.ContentLength = -1
			r.Trailer = http.Header{"Content-Length": nil}
		})},
		{"h2 Connection", two, mk(h2.URL, func(r *http.Request) { r.Header["Connection"] = []string{"upgrade"} })},
		{"h2 Upgrade", two, mk(h2.URL, func(r *http.Request) { r.Header["Upgrade"] = []string{"x"} })},
		{"h2 Transfer-Encoding", two, mk(h2.URL, func(r *http.Request) { r.Header["Transfer-Encoding"] = []string{"x"} })},
		{"h2 idna Host", two, mk(h2.URL, func(r *http.Request) { r.Host = "xn--\u00ff" })},
		{"h2 bad Host", two, mk(h2.URL, func(r *http.Request) { r.Host = "a b" })},
		{"proxy of an unsupported scheme", &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "gopher", Host: pu.Host})}, mk("https://h.example", func(*http.Request) {})},
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
func TestCorruptedRecordIsRetryable(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(status(200)))
	srv.Config.ErrorLog = discardLog
	defer srv.Close()
	var flip atomic.Bool
	base := srv.Client().Transport.(*http.Transport)
	base.ForceAttemptHTTP2 = false
	base.DialContext = func(ctx context.Context, n, a string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, n, a)
		return flipConn{c, &flip}, err
	}
	req, _ := http.NewRequest("DELETE", srv.URL, nil)
	resp, err := base.RoundTrip(req)
	require.NoError(t, err)
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	flip.Store(true)
	_, err = base.RoundTrip(req)
	require.Error(t, err)
	assert.Equal(t, retryhttp.Retryable, retryhttp.Classify(retryhttp.Attempt{Request: req, Err: err}), "%v", err)
}

func TestIdempotencyKeyInAnotherCase(t *testing.T) {
	var keys []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { keys = r.Header["Idempotency-Key"] }))
	defer srv.Close()
	req, _ := http.NewRequest("POST", srv.URL, nil)
	req.Header["idempotency-key"] = []string{"mine"}
	resp, err := retryhttp.New(&http.Transport{}, retryhttp.Policy{IdempotencyKey: retryhttp.RandomKey}).RoundTrip(req)
	require.NoError(t, err)
	resp.Body.Close()
	assert.Equal(t, []string{"mine"}, keys)
}
