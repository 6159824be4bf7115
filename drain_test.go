package retryhttp_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/loopback"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

func TestResponseBodyIsWrappedOnlyWithAttemptTimeout(t *testing.T) {
	body := bodies.NewSlow(0)
	resp, err := retryhttp.New(script.New(script.Respond(200, body)), retryhttp.Policy{}).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	assert.Same(t, body, resp.Body)

	p := retryhttp.Policy{AttemptTimeout: time.Minute}
	resp, err = retryhttp.New(script.New(script.Respond(200, body)), p).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	assert.NotSame(t, body, resp.Body)
	_, writes := resp.Body.(io.Writer)
	assert.False(t, writes)
	require.NoError(t, resp.Body.Close())
}

// Callers compare a body with http.NoBody.
func TestBodyOfAResponseWithoutABodyIsNotWrapped(t *testing.T) {
	for name, p := range map[string]retryhttp.Policy{
		"AttemptTimeout": {AttemptTimeout: time.Minute}, "StallTimeout": {StallTimeout: time.Minute},
		"Resume": {Resume: true}, "all": {AttemptTimeout: time.Minute, StallTimeout: time.Minute, Resume: true},
	} {
		for _, code := range []int{200, 204, 304, 404} {
			t.Run(fmt.Sprint(name, code), func(t *testing.T) {
				base := script.New(script.Respond(code, http.NoBody))
				resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
				require.NoError(t, err)
				assert.Equal(t, http.NoBody, resp.Body)
				if p.AttemptTimeout > 0 || p.StallTimeout > 0 {
					assert.Error(t, base.Requests()[0].Context().Err(), "nobody needs to close it")
				}
			})
		}
	}
}

// A retry follows a failure without a body at once, too.
func TestFailureWithoutABodyIsRetriedUnderAttemptTimeout(t *testing.T) {
	p := noWait
	p.AttemptTimeout = time.Minute
	base := script.New(script.Respond(503, http.NoBody), script.Respond(200, http.NoBody))
	resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	assert.Equal(t, 200, resp.StatusCode)
	for _, req := range base.Requests() {
		assert.Error(t, req.Context().Err())
	}
}

// conn is a body that is a connection, as a 101's is.
type conn struct {
	io.Reader
	strings.Builder
	closed bool
}

func (c *conn) Close() error { c.closed = true; return nil }

func TestResponseBodyOfA101StaysAConnection(t *testing.T) {
	for _, p := range []retryhttp.Policy{{}, {AttemptTimeout: time.Minute}, {Resume: true}} {
		c := &conn{Reader: strings.NewReader("from the server")}
		resp, err := retryhttp.New(script.New(script.Respond(101, c)), p).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		rwc, ok := resp.Body.(io.ReadWriteCloser)
		require.True(t, ok)
		_, err = io.WriteString(rwc, "to the server")
		require.NoError(t, err)
		assert.Equal(t, "to the server", c.String())
		read, err := io.ReadAll(rwc)
		require.NoError(t, err)
		assert.Equal(t, "from the server", string(read))
		require.NoError(t, rwc.Close())
		assert.True(t, c.closed)
	}
}

// The server has closed its half.
func TestAttemptContextOfA101LastsUntilItIsClosed(t *testing.T) {
	base := script.New(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: &conn{Reader: strings.NewReader("all")}}, nil
	})
	resp, err := retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Minute}).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	_, err = io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.NoError(t, base.Requests()[0].Context().Err())
	require.NoError(t, resp.Body.Close())
	assert.Error(t, base.Requests()[0].Context().Err())
}

// Over HTTP/2 a server may end its answer, and still read the request.
func TestAttemptContextLastsAsLongAsTheResponseAndTheUpload(t *testing.T) {
	read := func(resp *http.Response, _ *http.Request) { _, _ = io.Copy(io.Discard, resp.Body) }
	closed := func(resp *http.Response, _ *http.Request) { _ = resp.Body.Close() }
	sent := func(_ *http.Response, req *http.Request) { _ = req.Body.Close() }
	taken := func(_ *http.Response, req *http.Request) { _, _ = io.Copy(io.Discard, req.Body) }
	opened := func(_ *http.Response, req *http.Request) { // as by a signer that forgets one of two
		for range 2 {
			body, err := req.GetBody()
			require.NoError(t, err)
			defer body.Close()
		}
		_, err := req.GetBody()
		require.NoError(t, err)
	}
	type step = func(*http.Response, *http.Request)
	reader := func() *strings.Reader { return strings.NewReader("upload") }
	requests := map[string]func(*http.Request){
		"large":                          func(req *http.Request) { req.ContentLength = 64 << 10 },
		"small, of unknown length":       func(req *http.Request) { req.ContentLength = -1 },
		"small, from a stream":           func(req *http.Request) { req.GetBody = nil },
		"small, from elsewhere":          func(req *http.Request) { req.Body = io.NopCloser(io.LimitReader(reader(), 6)) },
		"small, from elsewhere, WriteTo": func(req *http.Request) { req.Body = io.NopCloser(bufio.NewReader(reader())) },
		"small, of another type":         func(req *http.Request) { req.Body = struct{ io.ReadCloser }{req.Body} },
	}
	for name, steps := range map[string][]step{
		"the response is read first":     {read, sent},
		"the response is closed first":   {closed, sent},
		"the upload is sent first":       {sent, closed},
		"sent first, and then read":      {sent, read},
		"the last bytes wait to be sent": {read, taken, sent},
		"they wait for the response":     {taken, read, sent},
		"GetBody is called as well":      {opened, read, opened, sent},
	} {
		for kind, set := range requests {
			t.Run(name+"/"+kind, func(t *testing.T) {
				var attempt *http.Request
				rt := retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
					attempt = req // and go on sending it
					return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("answer"))}, nil
				}), retryhttp.Policy{AttemptTimeout: time.Minute})
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://host.example/", reader())
				require.NoError(t, err)
				set(req)
				resp, err := rt.RoundTrip(req)
				require.NoError(t, err)
				for _, step := range steps {
					assert.NoError(t, attempt.Context().Err())
					step(resp, attempt)
				}
				assert.Error(t, attempt.Context().Err())
			})
		}
	}
}

// The caller need not close a response that it read to the end: net/http has let
// go of it.
func TestAttemptContextOfAnUploadIsReleasedByReadingTheResponse(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		url, base := loopback.ServeTLS(t, http2, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(w, r.Body)
		})
		for kind, request := range bodies.Kinds(t) {
			var attempt context.Context
			rt := retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
				attempt = req.Context()
				return base.RoundTrip(req)
			}), retryhttp.Policy{AttemptTimeout: time.Minute})
			req := request(bytes.Repeat([]byte("x"), 100<<10))
			req.URL, req.Host = getURL(t, url).URL, ""
			resp, err := rt.RoundTrip(req)
			require.NoError(t, err, kind)
			_, err = io.Copy(io.Discard, resp.Body)
			require.NoError(t, err, kind)
			select {
			case <-attempt.Done():
			case <-time.After(20 * time.Second):
				t.Errorf("%s, HTTP/2 %t: it is kept", kind, http2)
			}
		}
	}
}

// A signer looks at a body before the base below sends the other, and net/http sends a request again.
func TestAttemptContextLastsAsLongAsTheBodyThatIsSent(t *testing.T) {
	reopen := func(t *testing.T, req *http.Request) io.ReadCloser {
		body, err := req.GetBody()
		require.NoError(t, err)
		return body
	}
	for name, sent := range map[string]func(*testing.T, *http.Request) io.ReadCloser{
		"a signer closes what it has read": func(t *testing.T, req *http.Request) io.ReadCloser {
			body := reopen(t, req)
			_, _ = io.Copy(io.Discard, body)
			_ = body.Close()
			return req.Body
		},
		"a signer closes it when the other has been read": func(t *testing.T, req *http.Request) io.ReadCloser {
			body := reopen(t, req)
			_, _ = io.Copy(io.Discard, body)
			_, _ = io.Copy(io.Discard, req.Body)
			_ = body.Close()
			return req.Body
		},
		"a signer forgets it": func(t *testing.T, req *http.Request) io.ReadCloser {
			_, _ = io.Copy(io.Discard, reopen(t, req))
			return req.Body
		},
		"a copy is sent, and the own body is closed before": func(t *testing.T, req *http.Request) io.ReadCloser {
			body := reopen(t, req)
			_ = req.Body.Close()
			return body
		},
		"a signer closes what it has read, and a copy is sent": func(t *testing.T, req *http.Request) io.ReadCloser {
			body := reopen(t, req)
			_, _ = io.Copy(io.Discard, body)
			_ = body.Close()
			return reopen(t, req)
		},
		"a copy is sent, and the own body is closed meanwhile": func(t *testing.T, req *http.Request) io.ReadCloser {
			body := reopen(t, req)
			_, _ = io.Copy(io.Discard, body)
			_ = req.Body.Close()
			return body
		},
		"it is sent again": func(t *testing.T, req *http.Request) io.ReadCloser {
			_, _ = req.Body.Read(make([]byte, 1))
			_ = req.Body.Close()
			return reopen(t, req)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var ctx context.Context
			var body io.ReadCloser
			rt := retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
				ctx, body = req.Context(), sent(t, req)
				_, _ = io.Copy(io.Discard, body) // and go on sending it
				return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("answer"))}, nil
			}), retryhttp.Policy{AttemptTimeout: time.Minute})
			req, err := http.NewRequest(http.MethodPut, "http://host.example/", bytes.NewReader(make([]byte, 100<<10)))
			require.NoError(t, err)
			resp, err := rt.RoundTrip(req)
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, resp.Body)
			require.NoError(t, err)
			assert.NoError(t, ctx.Err())
			require.NoError(t, body.Close())
			assert.Error(t, ctx.Err())
		})
	}
}

// Some bases send what GetBody returns, and never look at the body.
func TestAttemptContextIsReleasedThoughTheBaseUsesGetBody(t *testing.T) {
	for name, use := range map[string]func(*http.Request) (io.ReadCloser, error){
		"sends a clone": func(req *http.Request) (io.ReadCloser, error) { return req.GetBody() },
		"reads a clone to its end first": func(req *http.Request) (io.ReadCloser, error) {
			clone, err := req.GetBody()
			_, _ = io.Copy(io.Discard, clone)
			return req.Body, err
		},
		"opens a clone in vain": func(req *http.Request) (io.ReadCloser, error) {
			_, _ = io.Copy(io.Discard, req.Body)
			clone, err := req.GetBody()
			_ = clone.Close()
			return req.Body, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var ctx context.Context
			base := script.New(func(req *http.Request) (*http.Response, error) {
				ctx = req.Context()
				body, err := use(req)
				require.NoError(t, err)
				clone := req.Clone(ctx)
				clone.Body = body
				return script.Status(200)(clone)
			})
			req, err := http.NewRequest("PUT", "http://host.example/", bytes.NewReader(make([]byte, 100<<10)))
			require.NoError(t, err)
			resp, err := retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Hour}).RoundTrip(req)
			require.NoError(t, err)
			assert.NoError(t, ctx.Err())
			require.NoError(t, resp.Body.Close())
			assert.Error(t, ctx.Err())
		})
	}
}

// net/http treats bodies of these types specially.
func TestAttemptTimeoutLeavesNoBodyAndSmallOnesAsTheyAre(t *testing.T) {
	for _, body := range []io.Reader{
		http.NoBody, strings.NewReader("small"), bytes.NewBufferString("small"), bytes.NewReader(make([]byte, 64<<10-1)),
	} {
		var seen io.ReadCloser
		rt := retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
			seen = req.Body
			return &http.Response{StatusCode: 200, Body: http.NoBody}, req.Body.Close()
		}), retryhttp.Policy{AttemptTimeout: time.Minute})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://host.example/", body)
		require.NoError(t, err)
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, req.Body, seen)
	}
}
