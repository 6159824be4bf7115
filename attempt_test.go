package retryhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

func TestAttemptTimeoutEndsAtTheHeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			for range 5 {
				time.Sleep(time.Second)
				_, _ = io.WriteString(w, "part ")
				_ = http.NewResponseController(w).Flush()
			}
		}))
		defer stop()
		resp, err := retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Second / 2}).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, "part part part part part ", string(body))
	})
}

func TestAttemptTimeoutIsATimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, base, stop := memnet.Serve(http.HandlerFunc(hang))
		defer stop()
		client := &http.Client{Transport: retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Second, MaxAttempts: 1})}
		_, err := client.Get("http://server/") //nolint:bodyclose // there is none
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, context.Canceled)
		var timeout net.Error
		require.ErrorAs(t, err, &timeout)
		assert.True(t, timeout.Timeout())
		assert.ErrorContains(t, err, "no response header within 1s")
	})
}

func TestAttemptTimeoutIsFoundInTheAttemptsContextOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, "caller's")
		var attempts []retryhttp.Attempt
		var sent []context.Context
		rt := retryhttp.New(script.New(func(req *http.Request) (*http.Response, error) {
			sent = append(sent, req.Context())
			<-req.Context().Done()
			return nil, req.Context().Err()
		}), retryhttp.Policy{AttemptTimeout: time.Second, MaxAttempts: 2, OnRetry: func(a retryhttp.Attempt) { attempts = append(attempts, a) }})
		_, err := rt.RoundTrip(get(t, ctx))
		assert.Equal(t, 2, errorOf(t, err).Attempts)
		assert.ErrorIs(t, err, context.DeadlineExceeded, "also where the base returns context.Canceled")
		require.Len(t, attempts, 1)
		assert.NoError(t, attempts[0].Request.Context().Err(), "the Attempt has the caller's context")
		assert.Equal(t, time.Second, attempts[0].Elapsed)
		for _, ctx := range sent {
			assert.Equal(t, "caller's", ctx.Value(key{}))
		}
	})
}

func TestAttemptContextIsReleased(t *testing.T) {
	cases := []struct {
		name    string
		release func(*http.Response, context.CancelFunc)
	}{
		{"by closing the body", func(r *http.Response, _ context.CancelFunc) { _ = r.Body.Close() }},
		{"by reading it", func(r *http.Response, _ context.CancelFunc) { _, _ = io.Copy(io.Discard, r.Body) }},
		{"with the caller's context", func(_ *http.Response, cancel context.CancelFunc) { cancel() }},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				base := script.New(script.Status(200))
				resp, err := retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Minute}).RoundTrip(get(t, ctx))
				require.NoError(t, err)
				attempt := base.Requests()[0].Context()
				time.Sleep(time.Hour)
				require.NoError(t, attempt.Err(), "the timer was stopped at the header")
				tc.release(resp, cancel)
				synctest.Wait()
				assert.Error(t, attempt.Err())
			})
		})
	}
}

// Over HTTP/2 a server may end its answer, and still read the request.
func TestAttemptContextLastsAsLongAsTheResponseAndTheUpload(t *testing.T) {
	read := func(resp *http.Response, _ *http.Request) { _, _ = io.Copy(io.Discard, resp.Body) }
	closed := func(resp *http.Response, _ *http.Request) { _ = resp.Body.Close() }
	sent := func(_ *http.Response, req *http.Request) { _ = req.Body.Close() }
	opened := func(_ *http.Response, req *http.Request) { // as by a signer, who forgets one of two
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
		"the response is read first":   {read, sent},
		"the response is closed first": {closed, sent},
		"the upload is sent first":     {sent, closed},
		"sent first, and then read":    {sent, read},
		"GetBody is called as well":    {opened, read, opened, sent},
	} {
		for kind, set := range requests {
			t.Run(name+"/"+kind, func(t *testing.T) {
				var attempt *http.Request
				rt := retryhttp.New(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
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

// The other side has closed its half.
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

// Net/http looks at what these bodies are.
func TestAttemptTimeoutLeavesNoBodyAndSmallOnesAsTheyAre(t *testing.T) {
	for _, body := range []io.Reader{http.NoBody, strings.NewReader("small"), bytes.NewBufferString("small"), bytes.NewReader(make([]byte, 64<<10-1))} {
		var seen io.ReadCloser
		rt := retryhttp.New(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
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

// Nobody has closed it, nor must they: net/http does not hold on to it either.
func TestAttemptContextOfAnUploadIsReleasedByReadingTheResponse(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(w, r.Body)
		}))
		srv.EnableHTTP2 = http2
		srv.StartTLS()
		defer srv.Close()
		for kind, request := range bodyKinds(t) {
			var attempt context.Context
			rt := retryhttp.New(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
				attempt = req.Context()
				return srv.Client().Transport.RoundTrip(req)
			}), retryhttp.Policy{AttemptTimeout: time.Minute})
			req := request(bytes.Repeat([]byte("x"), 100<<10))
			req.URL, req.Host = getURL(t, srv.URL).URL, ""
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

func TestAttemptContextIsReleasedAfterAnError(t *testing.T) {
	base := script.New(script.Fail(errBroken))
	_, err := retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Minute, MaxAttempts: 1}).RoundTrip(get(t, t.Context()))
	assert.ErrorIs(t, err, errBroken)
	assert.Error(t, base.Requests()[0].Context().Err())
}

func TestAResponseThatComesTooLateIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		body := newSlowBody(0)
		rt := retryhttp.New(script.New(func(req *http.Request) (*http.Response, error) {
			time.Sleep(2 * time.Second) // a base that does not look at its context
			return respond(200, body)(req)
		}), retryhttp.Policy{AttemptTimeout: time.Second, MaxAttempts: 1})
		_, err := rt.RoundTrip(get(t, t.Context()))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, int32(1), body.closes.Load())
	})
}

// conn is a body that is a connection, as a 101's is.
type conn struct {
	io.Reader
	strings.Builder
	closed bool
}

func (c *conn) Close() error { c.closed = true; return nil }

func TestBodyOfA101StaysAConnection(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Minute} {
		c := &conn{Reader: strings.NewReader("from the server")}
		resp, err := retryhttp.New(script.New(respond(101, c)), retryhttp.Policy{AttemptTimeout: timeout}).RoundTrip(get(t, t.Context()))
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

func TestOnlyAttemptTimeoutWrapsTheBody(t *testing.T) {
	body := newSlowBody(0)
	resp, err := retryhttp.New(script.New(respond(200, body)), retryhttp.Policy{}).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	assert.Same(t, body, resp.Body)

	resp, err = retryhttp.New(script.New(respond(200, body)), retryhttp.Policy{AttemptTimeout: time.Minute}).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	assert.NotSame(t, body, resp.Body)
	_, writes := resp.Body.(io.Writer)
	assert.False(t, writes)
	require.NoError(t, resp.Body.Close())
}

func TestABaseThatBreaksTheRules(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Minute} {
		bubble(t, func(t *testing.T) {
			t.Log("attempt timeout", timeout)
			nothing := script.New(func(*http.Request) (*http.Response, error) { return nil, nil })
			_, err := retryhttp.New(nothing, retryhttp.Policy{AttemptTimeout: timeout}).RoundTrip(get(t, t.Context()))
			e := errorOf(t, err)
			assert.Equal(t, 4, e.Attempts, "neither a response nor an error is retried")
			assert.ErrorContains(t, err, "neither a response nor an error")

			body := newSlowBody(0)
			both := script.New(func(req *http.Request) (*http.Response, error) {
				resp, _ := respond(200, body)(req)
				return resp, errBroken
			})
			resp, err := retryhttp.New(both, retryhttp.Policy{AttemptTimeout: timeout, MaxAttempts: 1}).RoundTrip(get(t, t.Context()))
			assert.Nil(t, resp)
			assert.ErrorIs(t, err, errBroken)
			assert.Equal(t, int32(1), body.closes.Load())

			noBody := script.New(respond(503, nil), respond(200, nil))
			resp, err = retryhttp.New(noBody, retryhttp.Policy{AttemptTimeout: timeout}).RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
			assert.Equal(t, 200, resp.StatusCode)
			assert.Equal(t, 2, retryhttp.OutcomeOf(resp).Attempts)
		})
	}
}

func TestCancelWinsOverAttemptTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, base, stop := memnet.Serve(http.HandlerFunc(hang))
		defer stop()
		cause := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		_, err := retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Minute}).RoundTrip(get(t, ctx))
		e := errorOf(t, err)
		assert.Equal(t, retryhttp.StopCanceled, e.Stop)
		assert.ErrorIs(t, err, cause)
		assert.ErrorIs(t, err, context.Canceled)
		assert.False(t, e.Timeout())
	})
}

// Nobody closes a response that has no body, and some check only for http.NoBody.
func TestAttemptContextOfAResponseWithoutABodyIsReleased(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for _, tc := range []struct {
			method string
			code   int
		}{{"HEAD", 200}, {"GET", 204}, {"GET", 304}, {"PUT", 204}} {
			t.Run(fmt.Sprintf("%s %d, HTTP/2: %v", tc.method, tc.code, http2), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					_, base, stop := serve(func(w http.ResponseWriter, r *http.Request) {
						_, _ = io.Copy(io.Discard, r.Body)
						w.WriteHeader(tc.code)
					}, http2)
					defer stop()
					var ctx context.Context
					rt := retryhttp.New(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
						ctx = req.Context()
						return base.RoundTrip(req)
					}), retryhttp.Policy{AttemptTimeout: time.Hour})
					req, err := http.NewRequest(tc.method, "http://server/", nil)
					if tc.method == "PUT" {
						req, err = http.NewRequest(tc.method, "http://server/", seekBody{strings.NewReader("x")})
					}
					require.NoError(t, err)
					_, err = rt.RoundTrip(req) //nolint:bodyclose // that is the point
					require.NoError(t, err)
					synctest.Wait()
					assert.Error(t, ctx.Err())
					time.Sleep(time.Minute) // what net/http keeps for a closed stream
				})
			})
		}
	}
}

func TestRequestCancelEndsTheRetries(t *testing.T) {
	closed := make(chan struct{})
	base := script.New(func(req *http.Request) (*http.Response, error) {
		close(closed)
		return nil, errBroken
	})
	req := get(t, t.Context())
	req.Cancel = closed //lint:ignore SA1019 some still use it
	_, err := retryhttp.New(base, noWait).RoundTrip(req)
	e := errorOf(t, err)
	assert.Equal(t, 1, e.Attempts)
	assert.Equal(t, retryhttp.StopCanceled, e.Stop)
	assert.ErrorIs(t, err, errBroken)
	assert.EqualError(t, err, "connection broken, then the request's Cancel channel was closed")
}

// http.Client.Timeout closes Request.Cancel, too, and that ends the attempt a
// moment before the context notices.
func TestClientTimeoutDuringAnAttemptIsCanceled(t *testing.T) {
	var log bytes.Buffer
	for range 50 {
		var stop retryhttp.Stop
		var failure error
		client := &http.Client{Timeout: 2 * time.Millisecond, Transport: retryhttp.New(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			<-req.Cancel //lint:ignore SA1019 http.Client sets it
			return nil, errBroken
		}), retryhttp.Policy{
			Backoff: retryhttp.Constant(time.Hour),
			Logger:  slog.New(slog.NewTextHandler(&log, nil)),
			OnDone:  func(_ retryhttp.Attempt, o retryhttp.Outcome) { stop = o.Stop },
		})}
		_, failure = client.Get("http://host.example/") //nolint:bodyclose // there is none
		require.Error(t, failure)
		require.Equal(t, retryhttp.StopCanceled, stop)
	}
	assert.Empty(t, log.String())
}

// A deadline counts from its moment, though the context has not noticed.
func TestDeadlineThatHasPassedIsCanceled(t *testing.T) {
	ctx := lateContext{t.Context(), time.Now().Add(-time.Second)}
	req := get(t, ctx)
	_, err := retryhttp.New(script.New(script.Fail(errBroken)), noWait).RoundTrip(req)
	e := errorOf(t, err)
	assert.Equal(t, retryhttp.StopCanceled, e.Stop)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorIs(t, err, errBroken)
	assert.True(t, e.Timeout())
}

// lateContext has a deadline that it does not keep.
type lateContext struct {
	context.Context
	deadline time.Time
}

func (c lateContext) Deadline() (time.Time, bool) { return c.deadline, true }

// A status alone does not tell that there is no body: over HTTP/2 a 204 may go on.
func TestAttemptContextOfA204ThatGoesOnIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended error
		_, base, stop := serve(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(204)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Second)
			ended = r.Context().Err()
		}, true)
		defer stop()
		resp, err := retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Minute}).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		assert.NoError(t, err)
		assert.NoError(t, ended)
		require.NoError(t, resp.Body.Close())
		time.Sleep(time.Minute) // what net/http keeps for a closed stream
	})
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
		"reads a clone to its end and forgets it": func(req *http.Request) (io.ReadCloser, error) {
			clone, err := req.GetBody()
			_, _ = io.Copy(io.Discard, clone)
			return http.NoBody, err
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
