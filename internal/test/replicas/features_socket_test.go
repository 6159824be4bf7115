package replicas_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

func TestDetourShowsTheClientsCertificate(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		srv := httptest.NewUnstartedServer(firstFails(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.Organization[0]+" "+r.Proto)
		}))
		srv.EnableHTTP2 = http2
		srv.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
		srv.StartTLS()
		t.Cleanup(srv.Close)
		transport := srv.Client().Transport.(*http.Transport)
		transport.TLSClientConfig.Certificates = srv.TLS.Certificates
		c := newDetoured(t, transport, srv.URL, retryhttp.Policy{})
		resp, got := c.send(c.request(http.MethodGet, nil))
		assert.Equal(t, "Acme Co "+resp.Proto, got)
		assert.Equal(t, http2, resp.ProtoMajor == 2)
	}
}

func TestDetourDialsAUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	srv := httptest.NewUnstartedServer(firstFails(well))
	_ = srv.Listener.Close()
	srv.Listener = listener
	srv.Start()
	t.Cleanup(srv.Close)
	c := newDetoured(t, &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}, "http://unix.example/", retryhttp.Policy{})
	_, got := c.send(c.request(http.MethodGet, nil))
	assert.Equal(t, "hello", got)
}

// A Proxy may return its proxies in turn. To ask it changes which of them a request gets.
func TestProxiesInTurnAreAskedOnceForEachAttempt(t *testing.T) {
	var proxies []*url.URL
	for i := range 3 {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if i == 0 {
				broken(w, r)
			}
		}))
		t.Cleanup(srv.Close)
		u, err := url.Parse(srv.URL)
		require.NoError(t, err)
		proxies = append(proxies, u)
	}
	var asked atomic.Int64
	client := retryhttp.New(&http.Transport{Proxy: func(*http.Request) (*url.URL, error) {
		return proxies[(asked.Add(1)-1)%3], nil
	}}, retryhttp.Policy{Budget: retryhttp.Unlimited{}, Backoff: retryhttp.Constant(0)})
	t.Cleanup(client.CloseIdleConnections)
	for range 30 {
		assert.Equal(t, http.StatusOK, statusOf(t, client, "http://service.example/"))
	}
	assert.Less(t, asked.Load(), int64(50))
}

// An HTTP/2 of another module may make no ClientConn. net/http dials, and leaves the connection open.
func TestHTTP2WithoutClientConnsIsAskedOnce(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(broken))
	srv.EnableHTTP2 = true
	var conns atomic.Int64
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	below := srv.Client().Transport.(*http.Transport)
	transport := &http.Transport{TLSClientConfig: below.TLSClientConfig, ForceAttemptHTTP2: false}
	transport.TLSClientConfig.NextProtos = []string{"h2"}
	transport.RegisterProtocol("https", hidden{below})
	client := retryhttp.New(transport, retryhttp.Policy{Budget: retryhttp.Unlimited{}, Backoff: retryhttp.Constant(0)})
	t.Cleanup(client.CloseIdleConnections)
	for range 10 {
		assert.Equal(t, http.StatusServiceUnavailable, statusOf(t, client, srv.URL))
	}
	assert.LessOrEqual(t, conns.Load(), int64(2))
}
