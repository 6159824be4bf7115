package pooled_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/pooled"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
)

// mute is a listener whose first connection reads everything and answers nothing.
type mute struct {
	net.Listener
	spoken bool
}

func (m *mute) Accept() (net.Conn, error) {
	c, err := m.Listener.Accept()
	if err != nil || m.spoken {
		return c, err
	}
	m.spoken = true
	go func() {
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}()
	return m.Listener.Accept()
}

// net/http sends all attempts on one HTTP/2 connection, so a dead one must be
// detected.
func TestTransportLeavesADeadHTTP2Connection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		srv := &http.Server{Protocols: new(http.Protocols), Handler: handler}
		srv.Protocols.SetUnencryptedHTTP2(true)
		go func() { _ = srv.Serve(&mute{Listener: n}) }()
		base := pooled.Transport()
		base.DialContext, base.Protocols = n.Dial, srv.Protocols
		rt := retryhttp.New(base, retryhttp.Policy{
			AttemptTimeout: time.Second, Backoff: retryhttp.Constant(time.Second),
			MaxAttempts: -1, MaxElapsed: time.Hour, Budget: retryhttp.Unlimited{},
		})
		req, err := http.NewRequest("GET", "http://server/", nil)
		require.NoError(t, err)
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.LessOrEqual(t, retryhttp.OutcomeOf(resp).Elapsed, pooled.PingAfter+pooled.PingTimeout+2*time.Second)
		assert.Equal(t, 2, n.Dials())
		rt.CloseIdleConnections()
		require.NoError(t, srv.Close())
		time.Sleep(time.Minute) // what net/http keeps for a closed stream
	})
}

func TestTransportKeepsIdleConnectionsForEachHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		arrived, release := new(sync.WaitGroup), make(chan struct{})
		srv := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			arrived.Done()
			<-release
		})}
		base := pooled.Transport()
		stop := n.Run(srv, base)
		defer stop()
		const hosts = pooled.MaxIdleConns / pooled.IdleConnsPerHost
		for range 2 {
			arrived.Add(hosts * pooled.IdleConnsPerHost)
			var clients sync.WaitGroup
			for i := range hosts * pooled.IdleConnsPerHost {
				clients.Go(func() { fetch(t, base, fmt.Sprintf("http://host%d/", i%hosts)) })
			}
			arrived.Wait()
			for range hosts * pooled.IdleConnsPerHost {
				release <- struct{}{}
			}
			clients.Wait()
			synctest.Wait()
		}
		assert.Equal(t, hosts*pooled.IdleConnsPerHost, n.Dials())
	})
}

// fetch sends a GET through rt, closes the response's body, and returns the response.
func fetch(t *testing.T, rt http.RoundTripper, url string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if !assert.NoError(t, err) {
		return nil
	}
	resp, err := rt.RoundTrip(req)
	if !assert.NoError(t, err) {
		return nil
	}
	_, err = io.Copy(io.Discard, resp.Body)
	assert.NoError(t, err)
	assert.NoError(t, resp.Body.Close())
	return resp
}

// fleet is a balancer of TCP connections, with two replicas behind it.
type fleet struct {
	url         string
	pools       *pooled.Pools // they trust the replicas
	connections atomic.Int32  // that the balancer has had
}

// newFleet returns a fleet whose connections of these numbers, from 1, go to a replica that
// hangs. The replica reads requests, and answers nothing except HTTP/2 pings.
func newFleet(t *testing.T, hang ...int32) *fleet {
	t.Helper()
	f := &fleet{pools: pooled.New()}
	well := f.replica(t, func(http.ResponseWriter, *http.Request) {})
	hung := f.replica(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			to := well
			if slices.Contains(hang, f.connections.Add(1)) {
				to = hung
			}
			wg.Go(func() {
				defer context.AfterFunc(t.Context(), func() { _ = c.Close() })()
				carry(c, to)
			})
		}
	})
	f.url = "https://" + l.Addr().String()
	return f
}

// replica starts a server over TLS and HTTP/2, which the pools trust.
func (f *fleet) replica(t *testing.T, h http.HandlerFunc) (addr string) {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	trusting := srv.Client().Transport.(*http.Transport).TLSClientConfig
	f.pools.First.TLSClientConfig, f.pools.Second.TLSClientConfig = trusting.Clone(), trusting.Clone()
	return srv.Listener.Addr().String()
}

// carry passes bytes between a client's connection and a replica, until either ends.
func carry(client net.Conn, addr string) {
	replica, err := net.Dial("tcp", addr)
	if err != nil {
		_ = client.Close()
		return
	}
	end := func() {
		_ = client.Close()
		_ = replica.Close()
	}
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, replica}, {replica, client}} {
		wg.Go(func() {
			defer end()
			_, _ = io.Copy(way[0], way[1])
		})
	}
	wg.Wait()
}

// impatient is a Policy whose attempts end soon.
var impatient = retryhttp.Policy{AttemptTimeout: 100 * time.Millisecond, Backoff: retryhttp.Constant(0)}

func TestAttemptAfterATimeoutLeavesAReplicaThatHangs(t *testing.T) {
	f := newFleet(t, 1)
	resp := fetch(t, retryhttp.New(f.pools, impatient), f.url)
	assert.Equal(t, 2, resp.ProtoMajor)
	assert.Equal(t, 2, retryhttp.OutcomeOf(resp).Attempts)
	assert.EqualValues(t, 2, f.connections.Load())
}

func TestAttemptsAlternateBetweenPoolsWhileTheyTimeOut(t *testing.T) {
	f := newFleet(t, 1, 2)
	var used []string
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { used = append(used, info.Conn.LocalAddr().String()) },
	})
	req, err := http.NewRequestWithContext(ctx, "GET", f.url, nil)
	require.NoError(t, err)
	_, err = retryhttp.New(f.pools, impatient).RoundTrip(req)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	require.Len(t, used, 4)
	assert.NotEqual(t, used[0], used[1])
	assert.Equal(t, used[:2], used[2:])
}

func TestAttemptAfterAnotherFailureStaysInItsPool(t *testing.T) {
	var requests atomic.Int32
	f := &fleet{pools: pooled.New()}
	addr := f.replica(t, func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	defer f.pools.CloseIdleConnections()
	var reused []bool
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { reused = append(reused, info.Reused) },
	})
	req, err := http.NewRequestWithContext(ctx, "GET", "https://"+addr, nil)
	require.NoError(t, err)
	p := impatient
	p.AttemptTimeout = time.Hour
	resp, err := retryhttp.New(f.pools, p).RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, []bool{false, true}, reused)
}

func TestIdleConnectionsOfBothPoolsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		pools := pooled.New()
		stop := n.Run(&http.Server{Handler: http.NotFoundHandler()}, pools.First)
		defer stop()
		pools.Second.DialContext = n.Dial
		fetch(t, pools, "http://host/")
		fetch(t, pools.Second, "http://host/")
		synctest.Wait()
		require.Equal(t, 2, n.Conns())
		retryhttp.New(pools, retryhttp.Policy{}).CloseIdleConnections()
		synctest.Wait()
		assert.Zero(t, n.Conns())
	})
}
