package retryhttp_test

import (
	"bytes"
	"context"
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
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

func TestBodyIsNotClosedWhileTheLastAttemptReadsIt(t *testing.T) {
	// A server may answer before it has read the request. RoundTrip returns
	// then, and the transport goes on sending.
	synctest.Test(t, func(t *testing.T) {
		for _, code := range []int{200, 503} {
			body := &bodies.Tracked{Reader: strings.NewReader("0123456789")}
			goOn, sent := make(chan struct{}), make(chan string)
			req, err := http.NewRequest("PUT", "http://host.example/", body)
			require.NoError(t, err)
			rt := retryhttp.New(script.New(func(req *http.Request) (*http.Response, error) {
				go func() {
					<-goOn
					all, _ := io.ReadAll(req.Body)
					_ = req.Body.Close()
					sent <- string(all)
				}()
				return script.Response(req, code), nil
			}), retryhttp.Policy{MaxAttempts: 1})
			resp, err := rt.RoundTrip(req)
			require.NoError(t, err)
			assert.Zero(t, body.Closes.Load())
			close(goOn)
			assert.Equal(t, "0123456789", <-sent)
			assert.Equal(t, int32(1), body.Closes.Load())
			assert.Zero(t, body.Misuses.Load())
			require.NoError(t, resp.Body.Close())
		}
	})
}

func TestBodyIsClosedWhereAFailingBaseForgetsIt(t *testing.T) {
	body := &bodies.Tracked{Reader: strings.NewReader("x")}
	req, err := http.NewRequest("PUT", "http://host.example/", body)
	require.NoError(t, err)
	base := script.New(func(*http.Request) (*http.Response, error) { return nil, errBroken })
	_, err = retryhttp.New(base, noWait).RoundTrip(req)
	assert.Equal(t, 4, errorOf(t, err).Attempts)
	assert.Equal(t, int32(1), body.Closes.Load())
}

// trackedSeeker can be rewound, and counts its closes.
type trackedSeeker struct {
	*bytes.Reader
	io.Closer
}

// Some bases send only what GetBody returns, and some read it to sign and forget it.
func TestBodyIsClosedThoughTheBaseForgetsAReader(t *testing.T) {
	for name, base := range map[string]script.Step{
		"sends a clone and never looks at the first": func(req *http.Request) (*http.Response, error) {
			clone := req.Clone(req.Context())
			clone.Body, _ = req.GetBody()
			return script.Status(200)(clone)
		},
		"reads a clone to its end": func(req *http.Request) (*http.Response, error) {
			clone, _ := req.GetBody()
			_, _ = io.Copy(io.Discard, clone)
			return script.Status(200)(req)
		},
		"reads to the end": func(req *http.Request) (*http.Response, error) {
			_, _ = io.Copy(io.Discard, req.Body)
			return script.Response(req, 200), nil
		},
	} {
		for kind, getBody := range map[string]bool{"seeker": false, "GetBody": true} {
			t.Run(name+", "+kind, func(t *testing.T) {
				closes := &bodies.Tracked{Reader: strings.NewReader("content")}
				req, err := http.NewRequest("PUT", "http://host.example/",
					trackedSeeker{bytes.NewReader([]byte("content")), closes})
				require.NoError(t, err)
				if getBody {
					req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("content")), nil }
				}
				resp, err := retryhttp.New(script.New(base), retryhttp.Policy{}).RoundTrip(req)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				assert.EqualValues(t, 1, closes.Closes.Load())
			})
		}
	}
}

func TestBodyWhoseClosePanicsDoesNotEndTheProcess(t *testing.T) {
	body := &bodies.Hooked{OnRead: strings.NewReader("x").Read, OnClose: func() { panic("close") }}
	req, err := http.NewRequest("PUT", "http://host.example/", body)
	require.NoError(t, err)
	rt := retryhttp.New(script.New(func(*http.Request) (*http.Response, error) { return nil, errBroken }), noWait)
	assert.PanicsWithValue(t, "close", func() { _, _ = rt.RoundTrip(req) })
}

func TestBodyWhoseCloseIsSlowDoesNotHoldUpTheResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, base, stop := memnet.Serve(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
		}))
		defer stop()
		for _, rt := range []http.RoundTripper{base, retryhttp.New(base, retryhttp.Policy{})} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			free := make(chan struct{})
			go func() { time.Sleep(time.Hour); close(free) }()
			body := &bodies.Hooked{OnRead: strings.NewReader("x").Read, OnClose: func() { <-free }}
			req, _ := http.NewRequestWithContext(ctx, "POST", "http://server/", body)
			req.ContentLength = 1
			start := time.Now()
			resp, err := rt.RoundTrip(req)
			assert.Less(t, time.Since(start), time.Minute, "%T", rt)
			if err == nil {
				resp.Body.Close()
			}
			cancel()
			time.Sleep(2 * time.Hour)
		}
	})
}

func TestBodyCannotBeReadByAnAttemptThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var old io.ReadCloser
		var oldGetBody func() (io.ReadCloser, error)
		base := script.New(
			func(req *http.Request) (*http.Response, error) {
				old, oldGetBody = req.Body, req.GetBody
				_, err := io.ReadFull(old, make([]byte, 3))
				assert.NoError(t, err)
				return script.Response(req, 503), nil
			},
			func(req *http.Request) (*http.Response, error) {
				_, err := old.Read(make([]byte, 3))
				assert.Error(t, err, "the old reader is cut off")
				_, err = oldGetBody()
				assert.Error(t, err)
				all, err := io.ReadAll(req.Body)
				assert.NoError(t, err)
				assert.Equal(t, "0123456789", string(all))
				assert.NoError(t, old.Close())
				assert.NoError(t, req.Body.Close())
				return script.Response(req, 200), nil
			})
		body := &bodies.Tracked{Reader: strings.NewReader("0123456789")}
		req, err := http.NewRequest("PUT", "http://host.example/", body)
		require.NoError(t, err)
		req.ContentLength = 10
		resp, err := retryhttp.New(base, retryhttp.Policy{}).RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, int32(1), body.Closes.Load())
	})
}

func TestBodyIsSentOnThoughItsResponseIsReturned(t *testing.T) {
	// The old reader is cut off only when the retry is certain: here the
	// budget refuses it, and the server may still want the rest.
	synctest.Test(t, func(t *testing.T) {
		var reader io.ReadCloser
		rt := retryhttp.New(script.New(func(req *http.Request) (*http.Response, error) {
			reader = req.Body
			return script.Response(req, 503), nil
		}), retryhttp.Policy{Budget: &countingBudget{refuse: true}})
		req, err := http.NewRequest("PUT", "http://host.example/", io.MultiReader(strings.NewReader("0123456789")))
		require.NoError(t, err)
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err)
		all, err := io.ReadAll(reader)
		require.NoError(t, err)
		assert.Equal(t, "0123456789", string(all))
		require.NoError(t, reader.Close())
		require.NoError(t, resp.Body.Close())
	})
}

func TestBodyThatStallsIsFreedByCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
		}))
		defer stop()
		r, w := io.Pipe() // nobody ever writes
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "PUT", "http://server/", r)
		require.NoError(t, err)
		_, err = retryhttp.New(base, retryhttp.Policy{}).RoundTrip(req)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		_, err = w.Write([]byte("x"))
		assert.ErrorIs(t, err, io.ErrClosedPipe)
	})
}

func TestBodyThatStallsIsEndedByAttemptTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, body := range map[string]func(io.Reader) io.Reader{
			"stream": func(r io.Reader) io.Reader { return r },
			"seeker": func(r io.Reader) io.Reader { return stalledSeeker{r, strings.NewReader("")} },
		} {
			_, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
			}))
			r, w := io.Pipe() // nobody ever writes
			req, err := http.NewRequest("PUT", "http://server/", body(r))
			require.NoError(t, err)
			start := time.Now()
			p := retryhttp.Policy{AttemptTimeout: time.Second, MaxAttempts: 2, Backoff: retryhttp.Constant(time.Second)}
			_, err = retryhttp.New(base, p).RoundTrip(req)
			assert.ErrorIs(t, err, context.DeadlineExceeded, name)
			assert.Equal(t, 2, errorOf(t, err).Attempts, name)
			assert.Equal(t, 3*time.Second, time.Since(start), name)
			stop()
			assert.NoError(t, w.Close())
		}
	})
}

// stalledSeeker has a position, and reads from elsewhere.
type stalledSeeker struct {
	io.Reader
	io.Seeker
}

// No retry can follow, but the body is wrapped, so that the attempt's timeout can
// end a Read that hangs.
func TestBodyThatIsSentOnceIsEndedByAttemptTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipe, w := io.Pipe()
		base := script.New(func(req *http.Request) (*http.Response, error) {
			_, err := req.Body.Read(make([]byte, 1))
			_ = req.Body.Close()
			return nil, err
		})
		req, err := http.NewRequest("POST", "http://host.example/", pipe)
		require.NoError(t, err)
		start := time.Now()
		_, err = retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Second}).RoundTrip(req)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
		_ = w.Close()
	})
}

func TestBodyThatStallsIsWaitedForByTheNextAttempt(t *testing.T) {
	// The first attempt's Read is in flight when its time is up. Its bytes belong
	// to the second attempt.
	synctest.Test(t, func(t *testing.T) {
		srv := &server{answers: play(200)}
		_, base, stop := memnet.Serve(srv)
		defer stop()
		r, w := io.Pipe()
		go func() {
			_, _ = w.Write([]byte("first "))
			time.Sleep(3 * time.Second)
			_, _ = w.Write([]byte("second"))
			_ = w.Close()
		}()
		req, err := http.NewRequest("PUT", "http://server/", r)
		require.NoError(t, err)
		p := retryhttp.Policy{AttemptTimeout: 2 * time.Second, Backoff: retryhttp.Constant(500 * time.Millisecond)}
		resp, err := retryhttp.New(base, p).RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, 2, retryhttp.OutcomeOf(resp).Attempts)
		assert.Equal(t, "first second", srv.got[len(srv.got)-1].body)
	})
}

func TestBodyIsClosedWhereAHookAndTheResponsesClosePanic(t *testing.T) {
	body := &bodies.Tracked{Reader: strings.NewReader("x")}
	req, err := http.NewRequest("PUT", "http://host.example/", body)
	require.NoError(t, err)
	failed := &bodies.Hooked{OnRead: strings.NewReader("busy").Read, OnClose: func() { panic("Close") }}
	p := noWait
	p.OnRetry = func(retryhttp.Attempt) { panic("OnRetry") }
	rt := retryhttp.New(script.New(script.Respond(503, failed)), p)
	assert.Panics(t, func() { _, _ = rt.RoundTrip(req) }) //nolint:bodyclose // there is none
	assert.Equal(t, int32(1), body.Closes.Load())
	assert.Positive(t, failed.Closes.Load())
}
