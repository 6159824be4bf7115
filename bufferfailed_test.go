package retryhttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
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

// A failed response that says no more does not hold up the retry.
func TestFailedResponseIsBufferedForAMoment(t *testing.T) {
	for _, code := range []int{408, 429, 500, 503, 599} {
		for _, timeout := range []time.Duration{0, time.Hour} {
			t.Run(fmt.Sprint(code, timeout), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					requests := 0
					_, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if requests++; requests > 1 {
							_, _ = io.WriteString(w, object)
							return
						}
						memnet.EndConnection(w, r)
						w.WriteHeader(code)
						_, _ = io.WriteString(w, "a part")
						_ = http.NewResponseController(w).Flush()
						<-r.Context().Done()
					}))
					defer stop()
					p := buffers
					p.Backoff = retryhttp.Constant(300 * time.Millisecond)
					p.AttemptTimeout, p.StallTimeout = timeout, timeout
					judged := 0
					p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
						if judged++; judged == 1 {
							assert.NoError(t, a.Err)
							assert.Equal(t, code, a.Response.StatusCode)
							assert.Nil(t, a.Body)
							assert.Equal(t, 250*time.Millisecond, a.Elapsed)
						}
						return retryhttp.Classify(a)
					}
					began := time.Now()
					got, err := download(t, base, p)
					require.NoError(t, err)
					assert.Equal(t, object, got)
					assert.Equal(t, 2, judged)
					assert.Equal(t, 550*time.Millisecond, time.Since(began))
				})
			})
		}
	}
}

// The moment is over when the retry's wait begins. A wait that is shorter than the moment does not
// begin another moment.
func TestFailedResponseThatStallsIsWaitedForOnce(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			requests := 0
			_, base, stop := memnet.ServeProtocol(func(w http.ResponseWriter, r *http.Request) {
				if requests++; requests > 1 {
					_, _ = io.WriteString(w, object)
					return
				}
				memnet.EndConnection(w, r)
				w.WriteHeader(503)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}, http2)
			defer stop()
			p := buffers
			p.Backoff = retryhttp.Constant(10 * time.Millisecond)
			began := time.Now()
			got, err := download(t, base, p)
			require.NoError(t, err)
			assert.Equal(t, object, got)
			assert.Equal(t, 260*time.Millisecond, time.Since(began))
		})
	}
}

// A Read sets the Trailer, and the caller may look at the Trailer while it does not read.
func TestTrailerOfAFailedResponseComesWithTheEndThatTheCallerReads(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			_, base, stop := memnet.ServeProtocol(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Trailer", "A")
				w.WriteHeader(503)
				_, _ = io.WriteString(w, object)
				_ = http.NewResponseController(w).Flush()
				time.Sleep(time.Second)
				w.Header().Set("A", "announced")
				w.Header().Set(http.TrailerPrefix+"B", "not announced")
			}, http2)
			defer stop()
			p := buffers
			p.MaxAttempts = 1
			resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
			time.Sleep(time.Minute)
			assert.Equal(t, http.Header{"A": nil}, resp.Trailer)
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Equal(t, object, string(got))
			assert.Equal(t, http.Header{"A": {"announced"}, "B": {"not announced"}}, resp.Trailer)
			require.NoError(t, resp.Body.Close())
		})
	}
}

// trickles is a body that brings the object in pieces, and then end, each after a pause.
func trickles(pause time.Duration, piece int, end error) *bodies.Hooked {
	rest := object
	return &bodies.Hooked{OnRead: func(p []byte) (int, error) {
		time.Sleep(pause)
		if rest == "" {
			return 0, end
		}
		n := copy(p, rest[:min(piece, len(rest))])
		rest = rest[n:]
		return n, nil
	}}
}

// The Read that is under way when the moment is over brings bytes that are not lost.
func TestLastFailedResponseIsHandedOverWhole(t *testing.T) {
	for pause := 10 * time.Millisecond; pause <= 300*time.Millisecond; pause += 10 * time.Millisecond {
		for _, late := range []time.Duration{0, 20 * time.Millisecond, time.Hour} {
			for _, end := range []error{io.EOF, errLost} {
				synctest.Test(t, func(t *testing.T) {
					p := buffers
					p.MaxAttempts = 1
					body := trickles(pause, 5, end)
					began := time.Now()
					resp, err := retryhttp.New(script.New(script.Respond(503, body)), p).RoundTrip(get(t, t.Context()))
					require.NoError(t, err)
					assert.LessOrEqual(t, time.Since(began), 250*time.Millisecond)
					time.Sleep(late)
					got, err := io.ReadAll(resp.Body)
					assert.Equal(t, object, string(got))
					if end == io.EOF {
						assert.NoError(t, err)
					} else {
						assert.Equal(t, end, err)
					}
					require.NoError(t, resp.Body.Close())
					assert.EqualValues(t, 1, body.Closes.Load())
				})
			}
		}
	}
}

// The caller's Read gets the bytes and the end that come after the moment. The attempt's result
// does not change.
func TestEndOfAFailedResponseAfterTheMomentIsItsReaders(t *testing.T) {
	for name, tc := range map[string]struct {
		n    int
		end  error
		want string
	}{
		"bytes with the end":      {5, io.EOF, object[:5]},
		"bytes with an error":     {5, errLost, object[:5]},
		"an error alone":          {0, errLost, ""},
		"the end alone":           {0, io.EOF, ""},
		"more than BufferBytes":   {37, io.EOF, object + "!"},
		"no bytes, and no error":  {0, nil, ""},
		"bytes, and more of them": {5, nil, object[:5] + "more"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reads := 0
				body := &bodies.Hooked{OnRead: func(p []byte) (int, error) {
					reads++
					switch {
					case reads == 1:
						time.Sleep(time.Second)
						return copy(p, (object + "!")[:tc.n]), tc.end
					case tc.want == object[:5]+"more" && reads == 2:
						return copy(p, "more"), nil
					}
					return 0, io.EOF
				}}
				p := buffers
				p.MaxAttempts = 1
				p.OnDone = func(a retryhttp.Attempt, o retryhttp.Outcome) {
					assert.NoError(t, a.Err)
					assert.Equal(t, retryhttp.StopAttempts, o.Stop)
				}
				resp, err := retryhttp.New(script.New(script.Respond(503, body)), p).RoundTrip(get(t, t.Context()))
				require.NoError(t, err)
				got, err := io.ReadAll(resp.Body)
				assert.Equal(t, tc.want, string(got))
				if tc.end == errLost {
					assert.Equal(t, errLost, err)
				} else {
					assert.NoError(t, err)
				}
				require.NoError(t, resp.Body.Close())
			})
		})
	}
}

// Only the body's own Read or the attempt's context ends a Read of a body that is not net/http's.
func TestCloseOfAFailedResponseIsNotBesideARead(t *testing.T) {
	for _, closable := range []bool{false, true} {
		for _, waits := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				var reading atomic.Bool
				body := &mayClose{closable: closable, freed: make(chan struct{})}
				body.OnRead = func([]byte) (int, error) {
					reading.Store(true)
					defer reading.Store(false)
					select {
					case <-time.After(time.Minute):
					case <-body.freed:
					}
					return 0, io.EOF
				}
				body.OnClose = func() {
					assert.Equal(t, closable, reading.Load())
					close(body.freed)
				}
				p := buffers
				p.MaxAttempts = 1
				resp, err := retryhttp.New(script.New(script.Respond(503, body)), p).RoundTrip(get(t, t.Context()))
				require.NoError(t, err)
				began := time.Now()
				if waits {
					time.AfterFunc(time.Second, func() { _ = resp.Body.Close() })
					_, err = resp.Body.Read(make([]byte, 1))
					assert.Equal(t, time.Second, time.Since(began))
					assert.Equal(t, http.ErrBodyReadAfterClose, err)
				} else {
					require.NoError(t, resp.Body.Close())
				}
				synctest.Wait()
				if !closable {
					assert.Zero(t, body.Closes.Load())
					time.Sleep(time.Minute)
					synctest.Wait()
				}
				assert.EqualValues(t, 1, body.Closes.Load())
			})
		}
	}
}

// mayClose is a body that says whether it may be closed while it is read.
type mayClose struct {
	bodies.Hooked
	closable bool
	freed    chan struct{}
}

func (b *mayClose) ClosableWhileRead() bool { return b.closable }

func TestPanicOfAFailedResponsesReadSurfaces(t *testing.T) {
	for after, surfaces := range map[time.Duration]string{0: "in RoundTrip", time.Second: "in Read"} {
		synctest.Test(t, func(t *testing.T) {
			body := &bodies.Hooked{OnRead: func([]byte) (int, error) { time.Sleep(after); panic("a decoder's bug") }}
			p := buffers
			p.MaxAttempts = 1
			send := func() *http.Response {
				resp, err := retryhttp.New(script.New(script.Respond(503, body)), p).RoundTrip(get(t, t.Context()))
				assert.NoError(t, err)
				return resp
			}
			if surfaces == "in RoundTrip" {
				assert.PanicsWithValue(t, "a decoder's bug", func() { send() })
			} else {
				resp := send()
				assert.PanicsWithValue(t, "a decoder's bug", func() { _, _ = resp.Body.Read(make([]byte, 1)) })
				require.NoError(t, resp.Body.Close())
			}
			synctest.Wait()
			assert.EqualValues(t, 1, body.Closes.Load())
		})
	}
}

// A panic that nobody waits for does not end the process.
func TestPanicOfAFailedResponseThatIsRetriedIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &bodies.Hooked{
			OnRead:  func([]byte) (int, error) { time.Sleep(time.Minute); panic("a decoder's bug") },
			OnClose: func() { panic("another") },
		}
		base := script.New(script.Respond(503, body), script.Respond(200, http.NoBody))
		resp, err := retryhttp.New(base, buffers).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		time.Sleep(time.Hour)
		assert.EqualValues(t, 1, body.Closes.Load())

		p := buffers
		p.MaxAttempts = 1
		body.Closes.Store(0)
		resp, err = retryhttp.New(script.New(script.Respond(503, body)), p).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		time.Sleep(time.Hour)
		assert.EqualValues(t, 1, body.Closes.Load())
	})
}

// A test's double may end its goroutine, as t.FailNow does.
func TestGoexitOfAFailedResponsesReadEndsItsCaller(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			body := &bodies.Hooked{OnRead: func([]byte) (int, error) { time.Sleep(after); runtime.Goexit(); return 0, nil }}
			p := buffers
			p.MaxAttempts = 1
			ended, returned := make(chan struct{}), false
			go func() {
				defer close(ended)
				resp, err := retryhttp.New(script.New(script.Respond(503, body)), p).RoundTrip(get(t, t.Context()))
				if err == nil {
					_, _ = io.ReadAll(resp.Body)
				}
				returned = true
			}()
			<-ended
			assert.False(t, returned)
		})
	}
}

// The time of a StallTimeout runs while somebody waits.
func TestStallTimeoutBesideTheMomentOfAFailedResponse(t *testing.T) {
	for name, tc := range map[string]struct {
		stall   time.Duration
		silent  time.Duration
		caller  time.Duration // takes its time before it reads
		stalls  bool
		elapsed time.Duration // of the Read
	}{
		"within the moment":               {100 * time.Millisecond, time.Minute, 0, true, 0},
		"a caller that reads at once":     {time.Second, time.Minute, 0, true, time.Second},
		"a caller that takes its time":    {time.Second, 3 * time.Second, time.Minute, false, 0},
		"and for which nothing comes":     {time.Second, time.Hour, time.Minute, true, time.Second},
		"something comes just in time":    {time.Second, 1249 * time.Millisecond, 0, false, 999 * time.Millisecond},
		"something comes soon afterward":  {time.Second, 30500 * time.Millisecond, 30 * time.Second, false, 250 * time.Millisecond},
		"a caller that never reads it on": {time.Second, 500 * time.Millisecond, time.Hour, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.WriteHeader(503)
					_ = http.NewResponseController(w).Flush()
					select {
					case <-r.Context().Done():
					case <-time.After(tc.silent):
						_, _ = io.WriteString(w, object)
					}
				}))
				defer stop()
				p := buffers
				p.MaxAttempts, p.StallTimeout = 1, tc.stall
				resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
				require.NoError(t, err)
				time.Sleep(tc.caller)
				began := time.Now()
				got, err := io.ReadAll(resp.Body)
				assert.Equal(t, tc.elapsed, time.Since(began))
				if tc.stalls {
					assert.ErrorIs(t, err, context.DeadlineExceeded)
				} else {
					assert.NoError(t, err)
					assert.Equal(t, object, string(got))
				}
				require.NoError(t, resp.Body.Close())
			})
		})
	}
}

// The Read of a closed body that still goes on is not waited for, and is no stall.
func TestStallTimeoutEndsWithTheCloseOfAFailedResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		body := &bodies.Hooked{}
		base := script.New(func(req *http.Request) (*http.Response, error) {
			body.OnRead = func([]byte) (int, error) {
				<-req.Context().Done()
				cause = context.Cause(req.Context())
				return 0, cause
			}
			return script.Respond(503, body)(req)
		})
		p := buffers
		p.MaxAttempts, p.StallTimeout = 1, time.Minute
		resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, context.Canceled, cause)
		assert.EqualValues(t, 1, body.Closes.Load())
	})
}
