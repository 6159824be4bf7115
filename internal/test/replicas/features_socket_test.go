package replicas_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
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
