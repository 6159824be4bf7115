package replicas_test

import (
	"context"
	"io"
	"net"
	"net/http"
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

// onADetour runs do with a client that has the response of a detour, whose body is unread. A value in goOn
// lets its server go on.
func onADetour(t *testing.T, do func(t *testing.T, w *replicas.World, c *detoured, resp *http.Response, goOn chan<- struct{})) {
	for _, p := range []replicas.Protocol{replicas.HTTP1, replicas.HTTP2} {
		t.Run(p.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := replicas.New(p, 1)
				t.Cleanup(w.Close)
				goOn := make(chan struct{}, 9)
				w.Replicas[0].Serve(everySecondFails(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.WriteString(w, "hel")
					_ = http.NewResponseController(w).Flush()
					select {
					case <-goOn:
					case <-r.Context().Done():
					}
					_, _ = io.WriteString(w, "lo")
				}))
				c := newDetoured(t, w.Transport(), w.URL(), retryhttp.Policy{})
				resp, err := c.RoundTrip(c.request(http.MethodGet, nil))
				require.NoError(t, err)
				require.True(t, c.last.Load().Detour)
				do(t, w, c, resp, goOn)
			})
		})
	}
}

// everySecondFails answers 503 to the first attempt of each request, which takes the pool.
func everySecondFails(serve http.HandlerFunc) http.HandlerFunc {
	var n atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1)%2 == 1 {
			broken(w, r)
			return
		}
		serve(w, r)
	}
}

func finish(t *testing.T, resp *http.Response) {
	t.Helper()
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, "hello", string(got))
	synctest.Wait()
}

// As with HTTP/1 in net/http, what is in use when idle connections are closed closes when it is idle.
func TestDetourInUseWhenIdleConnectionsAreClosedClosesAfterwards(t *testing.T) {
	onADetour(t, func(t *testing.T, w *replicas.World, c *detoured, resp *http.Response, goOn chan<- struct{}) {
		c.CloseIdleConnections()
		synctest.Wait()
		assert.Equal(t, 1, w.Open(), "the detour, whose body is being read")
		goOn <- struct{}{}
		finish(t, resp)
		assert.Zero(t, w.Open())
	})
}

// Nobody needs to close a body that is read to its end.
func TestDetourIsFreeOnceItsBodyIsRead(t *testing.T) {
	onADetour(t, func(t *testing.T, w *replicas.World, c *detoured, resp *http.Response, goOn chan<- struct{}) {
		goOn <- struct{}{}
		_, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		synctest.Wait()
		c.CloseIdleConnections()
		synctest.Wait()
		assert.Zero(t, w.Open())
	})
}

func TestDetourIsFreeOnceItsBodyIsClosed(t *testing.T) {
	onADetour(t, func(t *testing.T, w *replicas.World, c *detoured, resp *http.Response, _ chan<- struct{}) {
		require.NoError(t, resp.Body.Close())
		time.Sleep(time.Second) // net/http may read the rest for a while
		c.CloseIdleConnections()
		synctest.Wait()
		assert.Zero(t, w.Open())
	})
}

// A failed response is drained before the next attempt. A drain that waits for long lets the stream go.
func TestStalledFailureOnADetourIsLeft(t *testing.T) {
	for _, p := range []replicas.Protocol{replicas.HTTP1, replicas.HTTP2} {
		t.Run(p.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := replicas.New(p, 1)
				t.Cleanup(w.Close)
				var n, left atomic.Int64
				w.Replicas[0].Serve(func(w http.ResponseWriter, r *http.Request) {
					if n.Add(1) == 2 { // on a detour
						memnet.EndConnection(w, r)
						w.WriteHeader(http.StatusServiceUnavailable)
						_ = http.NewResponseController(w).Flush()
						<-r.Context().Done()
						left.Add(1)
						return
					}
					broken(w, r)
				})
				c := newDetoured(t, w.Transport(), w.URL(), retryhttp.Policy{MaxAttempts: 3})
				resp, err := c.RoundTrip(c.request(http.MethodGet, nil))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.EqualValues(t, 3, n.Load())
				require.Positive(t, c.took.Load())
				synctest.Wait()
				assert.EqualValues(t, 1, left.Load(), "the stalled response is still read")
			})
		})
	}
}

// A request that comes afterwards shows that connections are wanted again.
func TestDetourThatIsUsedAgainStaysOpen(t *testing.T) {
	onADetour(t, func(t *testing.T, w *replicas.World, c *detoured, resp *http.Response, goOn chan<- struct{}) {
		if w.Protocol == replicas.HTTP1 {
			goOn <- struct{}{} // it serves one request at a time, so nothing is in use
			finish(t, resp)
			assert.Equal(t, 2, w.Open())
			return
		}
		c.CloseIdleConnections()
		next, err := c.RoundTrip(c.request(http.MethodGet, nil))
		require.NoError(t, err)
		require.True(t, c.last.Load().Detour)
		goOn <- struct{}{}
		goOn <- struct{}{}
		finish(t, resp)
		finish(t, next)
		assert.Equal(t, 2, w.Open(), "the pool's connection, and the detour")
	})
}

// The attempt takes the pool after a second. Nobody waits for its dial when the idle connections are closed.
func TestDialThatEndsAfterIdleConnectionsAreClosedLeavesNoConnection(t *testing.T) {
	for _, p := range []replicas.Protocol{replicas.HTTP1, replicas.HTTP2} {
		synctest.Test(t, func(t *testing.T) {
			w := replicas.New(p, 1)
			t.Cleanup(w.Close)
			c := newDetoured(t, w.Transport(), w.URL(), retryhttp.Policy{MaxAttempts: 2})
			get := func(status int) {
				resp, err := c.RoundTrip(c.request(http.MethodGet, nil))
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, status, resp.StatusCode)
			}
			get(http.StatusOK)
			w.Replicas[0].Serve(broken)
			w.DialTime = 3 * time.Second
			get(http.StatusServiceUnavailable)
			require.Equal(t, 2, w.Dials())
			c.CloseIdleConnections()
			synctest.Wait()
			require.Zero(t, w.Open(), p)
			time.Sleep(5 * time.Second)
			assert.Zero(t, w.Open(), p)
		})
	}
}

// A detour is given up when its host is no longer in trouble. Until then, a long answer does not make it idle.
func TestDetourServesItsRequestsToTheirEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, transport, r := brokenPool(replicas.HTTP2)
		defer w.Close()
		w.Choose = func(n int) int { return (n + 1) % 2 } // the second connection reaches the replica that is well
		transport.IdleConnTimeout = 20 * time.Second
		goOn := make(chan struct{})
		w.Replicas[1].Serve(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "hel")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-goOn:
			case <-r.Context().Done():
			}
			_, _ = io.WriteString(w, "lo")
		})
		c := newDetoured(t, transport, w.URL(), retryhttp.Policy{})
		var answers []*http.Response
		for range 2 {
			resp, err := c.RoundTrip(c.request(http.MethodGet, nil))
			require.NoError(t, err)
			require.True(t, c.last.Load().Detour)
			answers = append(answers, resp)
			time.Sleep(25 * time.Second)
		}
		require.Equal(t, 3, w.Dials(), "the pool's first one was idle")
		time.Sleep(5 * time.Minute)
		require.NoError(t, answers[0].Body.Close())
		time.Sleep(time.Second)
		require.Equal(t, 1, r.detours())
		close(goOn)
		finish(t, answers[1])
		synctest.Wait()
		assert.Zero(t, r.detours())
	})
}

// The attempt takes the pool after half of its time. The detour is for a later attempt.
func TestDialThatIsLateServesALaterAttempt(t *testing.T) {
	for _, p := range everyProtocol {
		synctest.Test(t, func(t *testing.T) {
			w, transport, _ := brokenPool(p)
			defer w.Close()
			w.Replicas[0].Serve(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(300 * time.Millisecond)
				broken(w, r)
			})
			dial, n := transport.DialContext, 0
			transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				if n++; n > 1 {
					time.Sleep(600 * time.Millisecond)
				}
				return dial(ctx, network, address)
			}
			c := newDetoured(t, transport, w.URL(), retryhttp.Policy{AttemptTimeout: time.Second})
			c.send(c.request(http.MethodGet, nil))
			assert.Equal(t, 3, c.last.Load().Number, p)
			assert.Equal(t, 2, n, p)
		})
	}
}
