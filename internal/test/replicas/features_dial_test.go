package replicas_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/replicas"
)

// tunnels is a proxy that knows CONNECT.
type tunnels struct {
	*replicas.World
	made atomic.Int64
	open sync.WaitGroup
}

func (p *tunnels) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect || r.Header.Get("Proxy-Authorization") == "" {
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	p.made.Add(1)
	server, err := p.Dial(r.Context(), "tcp", r.Host)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
	forward := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_ = to.Close()
	}
	p.open.Go(func() { forward(server, client) })
	p.open.Go(func() { forward(client, server) })
}

func TestDetourGoesThroughAProxy(t *testing.T) {
	for _, protocol := range []replicas.Protocol{replicas.HTTP1TLS, replicas.HTTP2TLS} {
		synctest.Test(t, func(t *testing.T) {
			p := &tunnels{World: replicas.New(protocol, 1)}
			t.Cleanup(p.Close)
			p.Replicas[0].Serve(firstFails(well))
			transport := p.Transport()
			transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.example:3128", User: url.UserPassword("a", "b")})
			t.Cleanup(memnet.New().Run(&http.Server{Handler: p}, transport))
			c := newDetoured(t, transport, p.URL(), retryhttp.Policy{})
			_, got := c.send(c.request(http.MethodGet, nil))
			assert.Equal(t, "hello", got, protocol)
			assert.EqualValues(t, 2, p.made.Load(), protocol)
			assert.Equal(t, 2, p.Dials(), protocol)
		})
	}
}

// A detour would send it to the server, and not to the proxy.
func TestRequestWithAnotherProxyThanItsHostTakesNoDetour(t *testing.T) {
	var proxied []string
	onABase(t, []replicas.Protocol{replicas.HTTP1}, func(_ http.ResponseWriter, r *http.Request) {
		proxied = append(proxied, r.RequestURI)
	}, func(t *testing.T, base *retryhttp.Base, url string) {
		for range 5 {
			require.Equal(t, http.StatusOK, statusOf(t, base, url+"private"))
		}
		require.Len(t, proxied, 5)
		for _, target := range proxied {
			assert.Equal(t, url+"private", target)
		}
	})
}

type connNumber struct{}

// A server that takes one stream of a connection has many connections.
func TestDetoursOfOneStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var conns, detours atomic.Int64
		srv := &http.Server{
			Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1},
			ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
				return context.WithValue(ctx, connNumber{}, conns.Add(1))
			},
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Context().Value(connNumber{}) == int64(1) {
					broken(w, r)
					return
				}
				well(w, r)
			}),
		}
		base := &http.Transport{Protocols: new(http.Protocols)}
		srv.Protocols.SetUnencryptedHTTP2(true)
		base.Protocols.SetUnencryptedHTTP2(true)
		t.Cleanup(memnet.New().Run(srv, base))
		rt := retryhttp.New(base, retryhttp.Policy{Budget: retryhttp.Unlimited{}, OnDone: func(a retryhttp.Attempt, _ retryhttp.Outcome) {
			if a.Detour {
				detours.Add(1)
			}
		}})
		t.Cleanup(rt.CloseIdleConnections)
		get := func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://service.example/", nil)
			assert.NoError(t, err)
			resp, err := rt.RoundTrip(req)
			if assert.NoError(t, err) {
				assert.Equal(t, http.StatusOK, resp.StatusCode)
				_, err = io.Copy(io.Discard, resp.Body)
				assert.NoError(t, err)
				assert.NoError(t, resp.Body.Close())
			}
		}
		get()
		for range 20 {
			var all sync.WaitGroup
			for range 10 {
				all.Go(get)
			}
			all.Wait()
			time.Sleep(100 * time.Millisecond)
		}
		require.Positive(t, detours.Load())
	})
}
