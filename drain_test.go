package retryhttp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
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
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

func TestDrainIsBounded(t *testing.T) {
	cases := []struct {
		name     string
		interval time.Duration // between bytes of the failed response
		backoff  time.Duration
		elapsed  time.Duration // MaxElapsed
		wait     time.Duration // that came of it
		bytes    int64         // that were read, at most
		stuck    bool          // a Read is under way at the end
	}{
		{name: "an endless body costs 64 KiB", backoff: time.Second, wait: time.Second, bytes: 64 << 10},
		{
			name: "a stalled body costs nothing of a long wait", interval: time.Hour, backoff: time.Second,
			wait: time.Second, stuck: true,
		},
		{
			name: "a stalled body costs 250 ms of a short one", interval: time.Hour, backoff: time.Millisecond,
			wait: 250 * time.Millisecond, stuck: true,
		},
		{
			name: "a stalled body does not use up the deadline", interval: time.Hour, backoff: time.Millisecond,
			elapsed: 100 * time.Millisecond, wait: 10 * time.Millisecond, stuck: true,
		},
		// The Read that is under way then brings the ninth byte.
		{
			name: "a trickle ends after 250 ms", interval: 30 * time.Millisecond, backoff: time.Second,
			wait: time.Second, bytes: 9,
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				body := bodies.NewSlow(tc.interval)
				base := script.New(script.Respond(503, body), script.Status(200))
				p := retryhttp.Policy{Backoff: retryhttp.Constant(tc.backoff), MaxElapsed: tc.elapsed}
				resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, 200, resp.StatusCode)
				assert.Equal(t, []time.Duration{tc.wait}, base.Waits())
				synctest.Wait()
				if tc.stuck {
					assert.Zero(t, body.Closes.Load(), "not beside a Read")
					time.Sleep(tc.interval)
					tc.bytes = 1
				}
				assert.Equal(t, int32(1), body.Closes.Load())
				assert.Equal(t, tc.bytes, body.Bytes.Load())
			})
		})
	}
}

func TestDrainIsNotMadeInVain(t *testing.T) {
	for _, tc := range []struct {
		name   string
		length int64
		took   time.Duration // of the one second that there is
		bytes  int64         // that were read
	}{
		{"as long as what is drained", 64 << 10, 0, 64 << 10},
		{"longer", 64<<10 + 1, 0, 0},
		{"without a moment left", -1, time.Second, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				body := bodies.NewSlow(0)
				base := script.New(func(req *http.Request) (*http.Response, error) {
					time.Sleep(tc.took)
					resp, err := script.Respond(503, body)(req)
					resp.ContentLength = tc.length
					return resp, err
				}, script.Status(200))
				p := retryhttp.Policy{Backoff: retryhttp.Constant(0), MaxElapsed: time.Second}
				resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
				require.NoError(t, err)
				assert.Equal(t, 200, resp.StatusCode)
				synctest.Wait()
				assert.Equal(t, int32(1), body.Closes.Load())
				assert.Equal(t, tc.bytes, body.Bytes.Load())
			})
		})
	}
}

func TestDrainClosesFailedResponsesAndNotTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := []*bodies.Slow{bodies.NewSlow(0), bodies.NewSlow(0), bodies.NewSlow(0)}
		base := script.New(script.Respond(503, failed[0]), script.Respond(500, failed[1]), script.Respond(503, failed[2]))
		resp, err := retryhttp.New(base, retryhttp.Policy{MaxAttempts: 3}).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		assert.Equal(t, int32(1), failed[0].Closes.Load())
		assert.Equal(t, int32(1), failed[1].Closes.Load())
		assert.Same(t, failed[2], resp.Body)
		assert.Zero(t, failed[2].Closes.Load())
		assert.Zero(t, failed[2].Bytes.Load())
	})
}

// The server of a stalled response sees that the connection was closed.
func TestDrainClosesNetHTTPsBodyBesideItsRead(t *testing.T) {
	zipped := new(bytes.Buffer)
	w := gzip.NewWriter(zipped)
	_, _ = io.WriteString(w, "all of the answer, and then nothing more comes")
	_ = w.Flush()
	for _, tc := range []struct {
		name    string
		http2   bool
		encoded bool
	}{{"HTTP/1", false, false}, {"HTTP/1, gzip", false, true}, {"HTTP/2", true, false}, {"HTTP/2, gzip", true, true}} {
		for _, timeout := range []time.Duration{0, time.Hour} {
			t.Run(tc.name+" "+timeout.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					start := time.Now()
					var ended time.Duration
					handler := func(w http.ResponseWriter, r *http.Request) {
						if r.Header.Get("Again") != "" {
							return
						}
						body := []byte("a part")
						if tc.encoded {
							w.Header().Set("Content-Encoding", "gzip")
							body = zipped.Bytes()
						}
						memnet.EndConnection(w, r)
						w.WriteHeader(503)
						_, _ = w.Write(body)
						_ = http.NewResponseController(w).Flush()
						<-r.Context().Done()
						ended = time.Since(start)
					}
					_, base, stop := memnet.ServeProtocol(handler, tc.http2)
					defer stop()
					again := script.Step(func(req *http.Request) (*http.Response, error) {
						if retryhttp.AttemptOf(req.Context()).Number > 1 {
							req = req.Clone(req.Context())
							req.Header.Set("Again", "1")
						}
						return base.RoundTrip(req)
					})
					p := retryhttp.Policy{Backoff: retryhttp.Constant(time.Second), AttemptTimeout: timeout}
					resp, err := retryhttp.New(again, p).RoundTrip(get(t, t.Context()))
					require.NoError(t, err)
					assert.Equal(t, 200, resp.StatusCode)
					require.NoError(t, resp.Body.Close())
					assert.Equal(t, 250*time.Millisecond, ended)
					time.Sleep(time.Minute) // what net/http keeps for a closed stream
				})
			})
		}
	}
}

// A closed decoder goes back to its pool. A Close beside its Read would give it to
// another user during the Read.
func TestDrainClosesOtherBodiesAfterTheirRead(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Hour} {
		t.Run(timeout.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reading atomic.Bool
				body := &bodies.Hooked{}
				body.OnRead = func([]byte) (int, error) {
					reading.Store(true)
					defer reading.Store(false)
					time.Sleep(time.Minute)
					return 1, nil
				}
				body.OnClose = func() { assert.False(t, reading.Load()) }
				base := script.New(script.Respond(503, body), script.Status(200))
				p := retryhttp.Policy{Backoff: retryhttp.Constant(time.Second), AttemptTimeout: timeout}
				resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, []time.Duration{time.Second}, base.Waits(), "the retry does not wait for that")
				assert.Zero(t, body.Closes.Load())
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.EqualValues(t, 1, body.Closes.Load())
			})
		})
	}
}

// http.MaxBytesReader belongs to net/http, and wraps any body.
func TestDrainDoesNotTrustWhatWrapsInNetHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := &bodies.Hooked{OnRead: func([]byte) (int, error) { time.Sleep(time.Minute); return 0, io.EOF }}
		base := script.New(script.Respond(503, http.MaxBytesReader(nil, stuck, 10)), script.Status(200))
		resp, err := retryhttp.New(base, noWait).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		synctest.Wait()
		assert.Zero(t, stuck.Closes.Load())
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.EqualValues(t, 1, stuck.Closes.Load())
	})
}

// An attempt with a context of its own ends a Read that hangs, with any base.
func TestDrainEndsTheAttemptsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &bodies.Hooked{}
		base := script.New(func(req *http.Request) (*http.Response, error) {
			body.OnRead = func([]byte) (int, error) { <-req.Context().Done(); return 0, req.Context().Err() }
			return script.Respond(503, body)(req)
		}, script.Status(200))
		p := noWait
		p.AttemptTimeout = time.Hour
		resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		synctest.Wait()
		assert.EqualValues(t, 1, body.Closes.Load())
	})
}

func TestDrainSurvivesAPanicOfRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &bodies.Hooked{OnRead: func([]byte) (int, error) { panic("a decoder's bug") }}
		late := &bodies.Hooked{OnRead: func([]byte) (int, error) { time.Sleep(time.Minute); panic("a decoder's bug") }}
		base := script.New(script.Respond(503, body), script.Respond(503, late), script.Status(200))
		resp, err := retryhttp.New(base, noWait).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, 200, resp.StatusCode)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.EqualValues(t, 1, body.Closes.Load())
		assert.EqualValues(t, 1, late.Closes.Load())
	})
}

func TestDrainPanicsInTheCallerWhereCloseDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &bodies.Hooked{
			OnRead:  func([]byte) (int, error) { return 0, io.EOF },
			OnClose: func() { panic("a decoder's bug") },
		}
		budget := &countingBudget{}
		rt := retryhttp.New(script.New(script.Respond(503, body)), retryhttp.Policy{Budget: budget})
		assert.PanicsWithValue(t, "a decoder's bug", func() { _, _ = rt.RoundTrip(get(t, t.Context())) })
		assert.EqualValues(t, 1, body.Closes.Load())
		assert.Equal(t, 1, budget.refunded)
		// The Transport's pooled state is as good as new.
		_, err := retryhttp.New(script.New(script.Respond(503, bodies.NewSlow(0)), script.Status(200)), noWait).
			RoundTrip(get(t, t.Context()))
		assert.NoError(t, err)
	})
}

func TestDrainDropsThePanicOfALateClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &bodies.Hooked{
			OnRead:  func([]byte) (int, error) { return 0, io.EOF },
			OnClose: func() { time.Sleep(time.Minute); panic("a decoder's bug") },
		}
		base := script.New(script.Respond(503, body), script.Status(200))
		resp, err := retryhttp.New(base, noWait).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		time.Sleep(time.Hour)
	})
}

func TestDrainGivesUpOnReadsThatBringNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		body := &bodies.Hooked{OnRead: func([]byte) (int, error) { reads++; return 0, nil }}
		resp, err := retryhttp.New(script.New(script.Respond(503, body), script.Status(200)), noWait).
			RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, 100, reads)
		assert.EqualValues(t, 1, body.Closes.Load())
	})
}

func TestDrainOfABodyThatHangsDoesNotHoldUpTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		body := &bodies.Hooked{
			OnRead:  func([]byte) (int, error) { <-release; return 0, io.EOF },
			OnClose: func() { <-release },
		}
		base := script.New(script.Respond(503, body), script.Respond(503, body), script.Status(200))
		p := retryhttp.Policy{Backoff: retryhttp.Constant(time.Second)}
		resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, []time.Duration{time.Second, time.Second}, base.Waits())

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		start := time.Now()
		_, err = retryhttp.New(script.New(script.Respond(503, body)), retryhttp.Policy{}).RoundTrip(get(t, ctx))
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, 100*time.Millisecond, time.Since(start), "a cancel during the drain is prompt too")
		close(release)
	})
}

// A body that is too long to be drained is closed at once. That may hang too.
func TestDrainDoesNotWaitForACloseThatHangs(t *testing.T) {
	for _, length := range []int64{-1, 64<<10 + 1} {
		synctest.Test(t, func(t *testing.T) {
			body := &bodies.Hooked{
				OnRead:  func([]byte) (int, error) { return 0, io.EOF },
				OnClose: func() { time.Sleep(time.Minute) },
			}
			base := script.New(func(req *http.Request) (*http.Response, error) {
				resp, err := script.Respond(503, body)(req)
				resp.ContentLength = length
				return resp, err
			})
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			start := time.Now()
			_, err := retryhttp.New(base, retryhttp.Policy{Backoff: retryhttp.Constant(time.Second)}).RoundTrip(get(t, ctx))
			assert.ErrorIs(t, err, context.Canceled)
			assert.Equal(t, 100*time.Millisecond, time.Since(start))
			time.Sleep(time.Hour)
		})
	}
}

func TestDrainEndsWithTheContext(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			_, base, stop := memnet.ServeProtocol(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(503)
				_, _ = io.WriteString(w, "a part")
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}, http2)
			defer stop()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			start := time.Now()
			p := retryhttp.Policy{Backoff: retryhttp.Constant(time.Second)}
			_, err := retryhttp.New(base, p).RoundTrip(get(t, ctx))
			assert.ErrorIs(t, err, context.Canceled)
			assert.Equal(t, 100*time.Millisecond, time.Since(start))
			time.Sleep(time.Minute) // what net/http keeps for a closed stream
		})
	}
}

func TestDrainIsOverBeforeALongWait(t *testing.T) {
	for _, tc := range []struct{ takes, closed time.Duration }{
		{100 * time.Millisecond, 100 * time.Millisecond},
		{time.Minute, time.Minute}, // its own Read ends it, long after the retry
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			var closed time.Duration
			body := &bodies.Hooked{
				OnRead:  func([]byte) (int, error) { time.Sleep(tc.takes); return 0, io.EOF },
				OnClose: func() { closed = time.Since(start) },
			}
			base := script.New(script.Respond(503, body), script.Respond(503, bodies.NewSlow(0)), script.Status(200))
			p := retryhttp.Policy{Backoff: retryhttp.Constant(time.Second)}
			resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, []time.Duration{time.Second, time.Second}, base.Waits())
			time.Sleep(time.Hour)
			synctest.Wait()
			assert.Equal(t, tc.closed, closed)
			assert.EqualValues(t, 1, body.Closes.Load())
		})
	}
}

// stallOnce is a handler whose first response stalls after a part of its body.
func stallOnce() http.HandlerFunc {
	var attempts atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) {
		if attempts.Add(1) > 1 {
			return
		}
		memnet.EndConnection(w, r)
		w.WriteHeader(503)
		_, _ = io.WriteString(w, "a part")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

// lingeringConn is a net.Conn whose Close ends no Read, like a channel of x/crypto/ssh whose
// other end is gone.
type lingeringConn struct{ net.Conn }

func (lingeringConn) Close() error { return nil }

func TestDrainOverAConnWhoseCloseEndsNoRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, base, stop := memnet.ServeProtocol(stallOnce(), false)
		defer stop()
		var conns []net.Conn
		base.DialContext = func(ctx context.Context, netw, addr string) (net.Conn, error) {
			c, err := network.Dial(ctx, netw, addr)
			conns = append(conns, c)
			return lingeringConn{c}, err
		}
		start := time.Now()
		resp, err := retryhttp.New(base, retryhttp.Policy{Backoff: retryhttp.Constant(time.Second)}).
			RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, time.Second, time.Since(start))
		for _, c := range conns {
			_ = c.Close()
		}
	})
}

// A base may run its attempts with a context of their own.
func TestDrainEndsWithTheContextThatTheBaseDoesNotSee(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, base, stop := memnet.ServeProtocol(stallOnce(), false)
		defer stop()
		detached := script.Step(func(req *http.Request) (*http.Response, error) {
			return base.RoundTrip(req.WithContext(context.WithoutCancel(req.Context())))
		})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		start := time.Now()
		_, err := retryhttp.New(detached, retryhttp.Policy{Backoff: retryhttp.Constant(time.Second)}).RoundTrip(get(t, ctx))
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
	})
}

func TestDrainStopsReadingWhenTheCallerHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		body := &bodies.Hooked{OnRead: func(p []byte) (int, error) {
			reads++
			time.Sleep(30 * time.Millisecond)
			return 1, nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		rt := retryhttp.New(script.New(script.Respond(503, body)), retryhttp.Policy{Backoff: retryhttp.Constant(time.Second)})
		_, err := rt.RoundTrip(get(t, ctx))
		assert.ErrorIs(t, err, context.Canceled)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 1, reads)
		assert.EqualValues(t, 1, body.Closes.Load())
	})
}

// The drain has a tenth of the time that is left when it begins.
func TestDrainDoesNotUseUpWhatOnRetryLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &bodies.Hooked{OnRead: func([]byte) (int, error) { time.Sleep(time.Hour); return 0, io.EOF }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p := noWait
		p.OnRetry = func(retryhttp.Attempt) { time.Sleep(900 * time.Millisecond) }
		base := script.New(script.Respond(503, body), script.Status(200))
		resp, err := retryhttp.New(base, p).RoundTrip(get(t, ctx))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.InDelta(t, 910*time.Millisecond, base.Waits()[0], float64(time.Microsecond))
		time.Sleep(2 * time.Hour)
	})
}

// In virtual time, because net/http waits for at most 50 ms until its other goroutine reports that
// the request was written, and otherwise closes the connection: a busy machine takes longer.
func TestConnectionIsOneForAllRetries(t *testing.T) {
	for _, size := range []int{0, 1 << 10, 60 << 10} {
		t.Run(fmt.Sprintf("%d bytes", size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const requests = 1000
				failure := bytes.Repeat([]byte("x"), size)
				var n atomic.Int64
				network, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if n.Add(1)%3 != 0 {
						w.WriteHeader(http.StatusServiceUnavailable)
						_, _ = w.Write(failure)
					}
				}))
				defer stop()
				p := retryhttp.Policy{Backoff: retryhttp.Constant(0), Budget: retryhttp.Unlimited{}}
				client := &http.Client{Transport: retryhttp.New(withoutDetours{base}, p)}
				for range requests {
					resp, err := client.Get("http://server/")
					require.NoError(t, err)
					_, err = io.Copy(io.Discard, resp.Body)
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					require.Equal(t, 200, resp.StatusCode)
				}
				assert.Equal(t, int64(3*requests), n.Load())
				assert.Equal(t, 1, network.Dials())
			})
		})
	}
}
