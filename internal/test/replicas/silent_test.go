package replicas_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/replicas"
)

// registry remembers which of the connections that an http.Transport has dialed are open. Without
// pings, the first one, of the pool, outlives a server that falls silent.
type registry struct {
	mu   sync.Mutex
	open map[int]bool
	n    int
}

type registered struct {
	net.Conn
	*registry
	number int
}

func (r *registry) watch(t *http.Transport) {
	r.open = map[int]bool{}
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.n++
		r.open[r.n] = true
		return &registered{conn, r, r.n}, nil
	}
}

func (c *registered) Close() error {
	c.mu.Lock()
	delete(c.open, c.number)
	c.mu.Unlock()
	return c.Conn.Close()
}

// detours returns how many connections but the first are open.
func (r *registry) detours() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.open)
	if r.open[1] {
		n--
	}
	return n
}

// brokenPool returns a World whose first connection, of the pool, reaches a broken replica. All others
// reach one that is well.
func brokenPool(p replicas.Protocol) (*replicas.World, *http.Transport, *registry) {
	w := replicas.New(p, 2)
	w.Choose = func(n int) int { return min(n-1, 1) }
	w.Replicas[0].Serve(broken)
	transport, r := w.Transport(), new(registry)
	r.watch(transport)
	return w, transport, r
}

// A silent server accepts a connection over HTTP/2 and then says nothing. A stream that was reset is
// in flight until the server says something.
func TestDetoursToASilentServerAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var serving sync.WaitGroup
		defer serving.Wait()
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetUnencryptedHTTP2(true)
		var servers []net.Conn
		transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			servers = append(servers, server)
			serving.Go(func() { _, _ = io.Copy(io.Discard, server) })
			serving.Go(func() { _, _ = server.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}) }) // SETTINGS
			return client, nil
		}
		var r registry
		r.watch(transport)
		client := retryhttp.New(transport, retryhttp.Policy{AttemptTimeout: 50 * time.Millisecond})
		for range 15 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://service.example/", nil)
			require.NoError(t, err)
			_, err = client.RoundTrip(req)
			require.Error(t, err)
			cancel()
		}
		require.Greater(t, r.n, 1)
		client.CloseIdleConnections()
		synctest.Wait()
		assert.Zero(t, r.detours())
		for _, server := range servers {
			_ = server.Close()
		}
	})
}

// A detour that has served many requests at once falls silent.
func TestDetourThatFallsSilentIsClosed(t *testing.T) {
	for _, p := range []replicas.Protocol{replicas.HTTP2, replicas.HTTP2TLS} {
		synctest.Test(t, func(t *testing.T) {
			w, transport, r := brokenPool(p)
			defer w.Close()
			client := retryhttp.New(transport, retryhttp.Policy{AttemptTimeout: 100 * time.Millisecond, Budget: retryhttp.Unlimited{}})
			load := replicas.Load{Rate: 100, For: time.Second, Deadline: 5 * time.Second}
			require.EqualValues(t, 1, w.Drive(client, load).Success(), p)
			require.Positive(t, r.detours(), p)
			w.Freeze()
			dialed := r.n
			load.Deadline = 300 * time.Millisecond
			w.Drive(client, load)
			require.Greater(t, r.n, dialed, p)
			client.CloseIdleConnections()
			time.Sleep(time.Second)
			assert.Zero(t, r.detours(), p)
		})
	}
}

// A body that is left open is over when its context ends.
func TestDetourWithAnOpenBodyIsClosedWhenTheContextEnds(t *testing.T) {
	for _, p := range everyProtocol {
		synctest.Test(t, func(t *testing.T) {
			w, transport, r := brokenPool(p)
			defer w.Close()
			w.Replicas[1].Serve(func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).Flush()
				replicas.Hang(w, r)
			})
			base := retryhttp.NewBase(transport)
			client := retryhttp.New(base, retryhttp.Policy{})
			ctx, cancel := context.WithCancel(t.Context())
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.URL(), nil)
			require.NoError(t, err)
			resp, err := client.RoundTrip(req)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, resp.StatusCode, p)
			client.CloseIdleConnections()
			synctest.Wait()
			require.Equal(t, 1, r.detours(), p)
			w.Freeze()
			cancel()
			time.Sleep(time.Second)
			client.CloseIdleConnections()
			synctest.Wait()
			assert.Zero(t, r.detours(), p)
			assert.NoError(t, resp.Body.Close(), p)
		})
	}
}

// A hook of net/http/httptrace that panics takes no place on the detour with it.
func TestDetourOutlivesAHookThatPanics(t *testing.T) {
	for _, p := range everyProtocol {
		synctest.Test(t, func(t *testing.T) {
			w, transport, r := brokenPool(p)
			defer w.Close()
			client := retryhttp.New(transport, retryhttp.Policy{})
			var gotten atomic.Int64
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
				if gotten.Add(1) == 2 {
					panic("a hook")
				}
			}})
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.URL(), nil)
			require.NoError(t, err)
			assert.PanicsWithValue(t, "a hook", func() { _, _ = client.RoundTrip(req) }, p)
			require.Equal(t, 1, r.detours(), p)
			for range 3 {
				assert.Equal(t, http.StatusOK, statusOf(t, client, w.URL()), p)
			}
			assert.Equal(t, 1, r.detours(), "%v: the detour serves the next request", p)
			client.CloseIdleConnections()
			time.Sleep(time.Second)
			assert.Zero(t, r.detours(), p)
		})
	}
}

// A hook that panics costs the dial, and no other.
func TestDialsGoOnAfterAHookThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, transport, _ := brokenPool(replicas.HTTP1)
		defer w.Close()
		client := retryhttp.New(transport, retryhttp.Policy{Budget: retryhttp.Unlimited{}})
		defer client.CloseIdleConnections()
		for range 3 {
			var asked atomic.Int64
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GetConn: func(string) {
				if asked.Add(1) == 2 {
					panic("a hook")
				}
			}})
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.URL(), nil)
			require.NoError(t, err)
			assert.PanicsWithValue(t, "a hook", func() { _, _ = client.RoundTrip(req) })
		}
		f := w.Drive(client, replicas.Load{Rate: 1, For: 80 * time.Second, Deadline: 5 * time.Second})
		assert.Greater(t, f.Success(), 0.9)
	})
}

func TestHooksHearOfADetourThatIsUsedAgain(t *testing.T) {
	for _, p := range everyProtocol {
		synctest.Test(t, func(t *testing.T) {
			w, transport, _ := brokenPool(p)
			defer w.Close()
			client := retryhttp.New(transport, retryhttp.Policy{})
			defer client.CloseIdleConnections()
			for range 5 {
				require.Equal(t, http.StatusOK, statusOf(t, client, w.URL()))
			}
			var heard []string
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				GetConn: func(address string) { heard = append(heard, address) },
				GotConn: func(i httptrace.GotConnInfo) { heard = append(heard, strconv.FormatBool(i.Reused)) },
			})
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.URL(), nil)
			require.NoError(t, err)
			resp, err := client.RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			port := map[string]string{"http": ":80", "https": ":443"}[p.Scheme()]
			assert.Equal(t, []string{"service.example" + port, "true"}, heard, p)
		})
	}
}

// An HTTP/1 ClientConn does not look at the context before it sends.
func TestRequestWhoseContextHasEndedCostsNoDetour(t *testing.T) {
	for _, p := range everyProtocol {
		synctest.Test(t, func(t *testing.T) {
			w, transport, r := brokenPool(p)
			defer w.Close()
			base := retryhttp.NewBase(transport)
			client := retryhttp.New(base, retryhttp.Policy{})
			for range 5 {
				require.Equal(t, http.StatusOK, statusOf(t, client, w.URL()))
			}
			dials, requests := w.Dials(), w.Requests()
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			for range 20 {
				req, err := http.NewRequestWithContext(ended, http.MethodPost, w.URL(), nil)
				require.NoError(t, err)
				_, err = base.RoundTrip(req)
				require.ErrorIs(t, err, context.Canceled)
			}
			require.Equal(t, http.StatusOK, statusOf(t, client, w.URL()))
			assert.Equal(t, requests+1, w.Requests(), p)
			assert.Equal(t, dials, w.Dials(), p)
			client.CloseIdleConnections()
			synctest.Wait()
			assert.Zero(t, r.detours(), p)
		})
	}
}

func TestRequestThatEndsWhileItsDetourIsDialedIsCanceled(t *testing.T) {
	for _, p := range everyProtocol {
		synctest.Test(t, func(t *testing.T) {
			w, transport, r := brokenPool(p)
			defer w.Close()
			dial := transport.DialContext
			transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				if w.Dials() > 0 {
					<-ctx.Done()
				}
				return dial(ctx, network, address)
			}
			client := retryhttp.New(transport, retryhttp.Policy{Backoff: retryhttp.Constant(0)})
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(500*time.Millisecond, cancel)
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.URL(), nil)
			require.NoError(t, err)
			began := time.Now()
			_, err = client.RoundTrip(req)
			require.ErrorIs(t, err, context.Canceled)
			assert.Equal(t, 500*time.Millisecond, time.Since(began), p)
			client.CloseIdleConnections()
			synctest.Wait()
			assert.Zero(t, r.detours(), p)
		})
	}
}

// Few callers close the empty body of an answer to a HEAD.
func TestDetourIsClosedAfterAnEmptyBodyThatIsNot(t *testing.T) {
	for _, p := range everyProtocol {
		synctest.Test(t, func(t *testing.T) {
			w, transport, r := brokenPool(p)
			defer w.Close()
			client := retryhttp.New(transport, retryhttp.Policy{})
			for range 5 {
				req, err := http.NewRequest(http.MethodHead, w.URL(), nil)
				require.NoError(t, err)
				resp, err := client.RoundTrip(req)
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, resp.StatusCode)
			}
			require.Equal(t, 1, r.detours(), p)
			client.CloseIdleConnections()
			time.Sleep(time.Second)
			assert.Zero(t, r.detours(), p)
		})
	}
}

// A server closes what is idle, and a detour is looked for only a few times in its IdleConnTimeout.
func TestDetourThatIsIdleForTooLongIsNotUsed(t *testing.T) {
	for _, p := range everyProtocol {
		synctest.Test(t, func(t *testing.T) {
			w, transport, _ := brokenPool(p)
			defer w.Close()
			transport.IdleConnTimeout = 20 * time.Second
			client := retryhttp.New(transport, retryhttp.Policy{Backoff: retryhttp.Constant(0)})
			defer client.CloseIdleConnections()
			require.Equal(t, http.StatusOK, statusOf(t, client, w.URL()))
			dials := w.Dials()
			for _, idle := range []time.Duration{16 * time.Second, 15 * time.Second} {
				time.Sleep(idle)
				require.Equal(t, http.StatusOK, statusOf(t, client, w.URL()))
				require.Equal(t, dials, w.Dials(), "%v: it has been idle for %v", p, idle)
			}
			time.Sleep(22 * time.Second)
			require.Equal(t, http.StatusOK, statusOf(t, client, w.URL()))
			assert.Equal(t, dials+1, w.Dials(), p)
		})
	}
}

// The host of a pool with a very short IdleConnTimeout is looked after 20 times a second at the most.
// In a bubble, a timer that spins never lets the time pass.
func TestShortIdleTimeoutClosesDetours(t *testing.T) {
	for _, p := range everyProtocol {
		synctest.Test(t, func(t *testing.T) {
			w, transport, r := brokenPool(p)
			defer w.Close()
			transport.IdleConnTimeout = time.Nanosecond
			client := retryhttp.New(transport, retryhttp.Policy{})
			begin := time.Now()
			assert.Equal(t, http.StatusOK, statusOf(t, client, w.URL()), p)
			require.Equal(t, 1, r.detours(), p)
			time.Sleep(60 * time.Millisecond)
			assert.Zero(t, r.detours(), p)
			time.Sleep(5 * time.Minute)
			assert.Less(t, time.Since(begin), 6*time.Minute)
		})
	}
}
