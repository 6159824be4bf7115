package retryhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/loopback"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

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
		"the response is read first":   {read, sent},
		"the response is closed first": {closed, sent},
		"the upload is sent first":     {sent, closed},
		"sent first, and then read":    {sent, read},
		"GetBody is called as well":    {opened, read, opened, sent},
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

// Callers do not close a response without a body, and some check only for
// http.NoBody.
func TestAttemptContextOfAResponseWithoutABodyIsReleased(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for _, tc := range []struct {
			method string
			code   int
		}{{"HEAD", 200}, {"GET", 204}, {"GET", 304}, {"PUT", 204}} {
			t.Run(fmt.Sprintf("%s %d, HTTP/2: %v", tc.method, tc.code, http2), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					_, base, stop := memnet.ServeProtocol(func(w http.ResponseWriter, r *http.Request) {
						_, _ = io.Copy(io.Discard, r.Body)
						w.WriteHeader(tc.code)
					}, http2)
					defer stop()
					var ctx context.Context
					rt := retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
						ctx = req.Context()
						return base.RoundTrip(req)
					}), retryhttp.Policy{AttemptTimeout: time.Hour})
					req, err := http.NewRequest(tc.method, "http://server/", nil)
					if tc.method == "PUT" {
						req, err = http.NewRequest(tc.method, "http://server/", bodies.Seeker(strings.NewReader("x")))
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

// A status alone does not mean that there is no body: over HTTP/2 a 204 may go on.
func TestAttemptContextOfA204ThatGoesOnIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended error
		_, base, stop := memnet.ServeProtocol(func(w http.ResponseWriter, r *http.Request) {
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
