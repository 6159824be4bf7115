package retryhttp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// The server's end of a stalled response sees that the connection was closed.
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
						w.WriteHeader(503)
						_, _ = w.Write(body)
						_ = http.NewResponseController(w).Flush()
						<-r.Context().Done()
						ended = time.Since(start)
					}
					_, base, stop := serve(handler, tc.http2)
					defer stop()
					again := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
						if retryhttp.AttemptNumber(req.Context()) > 1 {
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

// serve is memnet.Serve, over HTTP/2 if that is asked for.
func serve(h http.HandlerFunc, http2 bool) (*memnet.Network, *http.Transport, func()) {
	n := memnet.New()
	srv := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	base := &http.Transport{DialContext: n.Dial, Protocols: new(http.Protocols)}
	for _, p := range []*http.Protocols{srv.Protocols, base.Protocols} {
		p.SetHTTP1(!http2)
		p.SetUnencryptedHTTP2(http2)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(n) // always http.ErrServerClosed
	}()
	return n, base, func() {
		base.CloseIdleConnections()
		_ = srv.Close()
		<-served
	}
}

// hookedBody is a response body that does what its hooks do.
type hookedBody struct {
	read   func([]byte) (int, error)
	close  func()
	closes atomic.Int32
}

func (b *hookedBody) Read(p []byte) (int, error) { return b.read(p) }

func (b *hookedBody) Close() error {
	b.closes.Add(1)
	if b.close != nil {
		b.close()
	}
	return nil
}

// A decoder goes back to its pool when it is closed. A Close beside its Read
// hands it to somebody else while it is read.
func TestDrainClosesOtherBodiesAfterTheirRead(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Hour} {
		t.Run(timeout.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reading atomic.Bool
				body := &hookedBody{}
				body.read = func([]byte) (int, error) {
					reading.Store(true)
					defer reading.Store(false)
					time.Sleep(time.Minute)
					return 1, nil
				}
				body.close = func() { assert.False(t, reading.Load()) }
				base := script.New(respond(503, body), script.Status(200))
				p := retryhttp.Policy{Backoff: retryhttp.Constant(time.Second), AttemptTimeout: timeout}
				resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, []time.Duration{time.Second}, base.Waits(), "the retry does not wait for that")
				assert.Zero(t, body.closes.Load())
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.EqualValues(t, 1, body.closes.Load())
			})
		})
	}
}

// http.MaxBytesReader is of net/http, and wraps whatever it is given.
func TestDrainDoesNotTrustWhatWrapsInNetHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := &hookedBody{read: func([]byte) (int, error) { time.Sleep(time.Minute); return 0, io.EOF }}
		base := script.New(respond(503, http.MaxBytesReader(nil, stuck, 10)), script.Status(200))
		resp, err := retryhttp.New(base, noWait).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		synctest.Wait()
		assert.Zero(t, stuck.closes.Load())
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.EqualValues(t, 1, stuck.closes.Load())
	})
}

// An attempt with a context of its own ends a Read that hangs, whatever the base.
func TestDrainEndsTheAttemptsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &hookedBody{}
		base := script.New(func(req *http.Request) (*http.Response, error) {
			body.read = func([]byte) (int, error) { <-req.Context().Done(); return 0, req.Context().Err() }
			return respond(503, body)(req)
		}, script.Status(200))
		p := noWait
		p.AttemptTimeout = time.Hour
		resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		synctest.Wait()
		assert.EqualValues(t, 1, body.closes.Load())
	})
}

func TestDrainSurvivesAPanicOfRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &hookedBody{read: func([]byte) (int, error) { panic("a decoder's bug") }}
		late := &hookedBody{read: func([]byte) (int, error) { time.Sleep(time.Minute); panic("a decoder's bug") }}
		base := script.New(respond(503, body), respond(503, late), script.Status(200))
		resp, err := retryhttp.New(base, noWait).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, 200, resp.StatusCode)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.EqualValues(t, 1, body.closes.Load())
		assert.EqualValues(t, 1, late.closes.Load())
	})
}

func TestDrainPanicsInTheCallerWhereCloseDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &hookedBody{
			read:  func([]byte) (int, error) { return 0, io.EOF },
			close: func() { panic("a decoder's bug") },
		}
		budget := &countingBudget{}
		rt := retryhttp.New(script.New(respond(503, body)), retryhttp.Policy{Budget: budget})
		assert.PanicsWithValue(t, "a decoder's bug", func() { _, _ = rt.RoundTrip(get(t, t.Context())) })
		assert.EqualValues(t, 1, body.closes.Load())
		assert.Equal(t, 1, budget.refunded)
		// What the Transport keeps for the next request is as new.
		_, err := retryhttp.New(script.New(respond(503, newSlowBody(0)), script.Status(200)), noWait).
			RoundTrip(get(t, t.Context()))
		assert.NoError(t, err)
	})
}

func TestDrainDropsThePanicOfALateClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &hookedBody{
			read:  func([]byte) (int, error) { return 0, io.EOF },
			close: func() { time.Sleep(time.Minute); panic("a decoder's bug") },
		}
		base := script.New(respond(503, body), script.Status(200))
		resp, err := retryhttp.New(base, noWait).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		time.Sleep(time.Hour)
	})
}

func TestDrainGivesUpOnReadsThatBringNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		body := &hookedBody{read: func([]byte) (int, error) { reads++; return 0, nil }}
		resp, err := retryhttp.New(script.New(respond(503, body), script.Status(200)), noWait).
			RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, 100, reads)
		assert.EqualValues(t, 1, body.closes.Load())
	})
}

// A body that is too long to be drained is closed at once, and that may hang too.
func TestDrainDoesNotWaitForACloseThatHangs(t *testing.T) {
	for _, length := range []int64{-1, 64<<10 + 1} {
		synctest.Test(t, func(t *testing.T) {
			body := &hookedBody{
				read:  func([]byte) (int, error) { return 0, io.EOF },
				close: func() { time.Sleep(time.Minute) },
			}
			base := script.New(func(req *http.Request) (*http.Response, error) {
				resp, err := respond(503, body)(req)
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
