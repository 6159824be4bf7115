package retryhttp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
	synctest.Test(t, func(t *testing.T) {
		body := &bodies.Tracked{Reader: strings.NewReader("x")}
		req, err := http.NewRequest("PUT", "http://host.example/", body)
		require.NoError(t, err)
		base := script.New(func(*http.Request) (*http.Response, error) { return nil, errBroken })
		_, err = retryhttp.New(base, noWait).RoundTrip(req)
		assert.Equal(t, 4, errorOf(t, err).Attempts)
		assert.Equal(t, int32(1), body.Closes.Load())
	})
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
				synctest.Test(t, func(t *testing.T) {
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
			})
		}
	}
}

func TestBodyWhoseClosePanicsDoesNotEndTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // Close has 10 ms, or its panic is dropped
		body := &bodies.Hooked{OnRead: strings.NewReader("x").Read, OnClose: func() { panic("close") }}
		req, err := http.NewRequest("PUT", "http://host.example/", body)
		require.NoError(t, err)
		rt := retryhttp.New(script.New(func(*http.Request) (*http.Response, error) { return nil, errBroken }), noWait)
		assert.PanicsWithValue(t, "close", func() { _, _ = rt.RoundTrip(req) })
	})
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
	synctest.Test(t, func(t *testing.T) {
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
	})
}

func TestGetBodyIsCarriedByAttempts(t *testing.T) {
	// net/http needs it to send a request again that a server refused on
	// HTTP/2, or that met a dead connection.
	for name, request := range bodies.Kinds(t) {
		if name == "stream" {
			continue // it may outgrow what is kept: see below
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				resend := func(code int) script.Step {
					return func(req *http.Request) (*http.Response, error) {
						_, _ = io.ReadFull(req.Body, make([]byte, 5))
						_ = req.Body.Close()
						again, err := req.GetBody()
						require.NoError(t, err)
						all, err := io.ReadAll(again)
						assert.NoError(t, err)
						assert.Equal(t, "0123456789", string(all))
						assert.NoError(t, again.Close())
						return script.Response(req, code), nil
					}
				}
				rt := retryhttp.New(script.New(resend(503), resend(200)), retryhttp.Policy{})
				resp, err := rt.RoundTrip(request([]byte("0123456789")))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, 200, resp.StatusCode)
			})
		})
	}
}

// A base that finds a GetBody counts on it (a signer that hashes the body, say) and
// buffers otherwise. So a stream has one only if all of it will be kept.
func TestGetBodyIsCarriedByAttemptsOfAStreamThatIsKept(t *testing.T) {
	for _, tc := range []struct {
		name           string
		length         int64
		limit          int64
		attemptTimeout time.Duration
		maxAttempts    int
		want           bool
	}{
		{name: "length unknown", length: -1},
		{name: "length unknown, as zero", length: 0},
		{name: "at the default limit", length: 64 << 10, want: true},
		{name: "past the default limit", length: 64<<10 + 1},
		{name: "at a limit", length: 10, limit: 10, want: true},
		{name: "past a limit", length: 11, limit: 10},
		{name: "nothing is kept", length: 1, limit: -1},
		{name: "nothing is kept without retries", length: 1, attemptTimeout: time.Hour, maxAttempts: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			base := script.New(script.Fail(errBroken), script.Status(503))
			p := noWait
			p.RecordBytes, p.AttemptTimeout, p.MaxAttempts = tc.limit, tc.attemptTimeout, tc.maxAttempts
			req, err := http.NewRequest("PUT", "http://host.example/", io.MultiReader(strings.NewReader("x")))
			require.NoError(t, err)
			req.ContentLength = tc.length
			resp, err := retryhttp.New(base, p).RoundTrip(req)
			if err == nil {
				require.NoError(t, resp.Body.Close())
			}
			require.NotEmpty(t, base.Requests())
			for _, r := range base.Requests() {
				assert.Equal(t, tc.want, r.GetBody != nil)
			}
		})
	}
}

// net/http takes any GET for safe, and sends it again if it has a GetBody.
func TestGetBodyIsNotCarriedByAttemptsOfARefusedMethod(t *testing.T) {
	for _, p := range []retryhttp.Policy{{AttemptTimeout: time.Hour}, {RetryUnprocessed: true}} {
		p.Idempotent = func(*http.Request) bool { return false }
		base := script.New(script.Fail(errBroken))
		req, err := http.NewRequest("GET", "http://host.example/", bodies.ReaderAt(bytes.NewReader([]byte("x"))))
		require.NoError(t, err)
		_, err = retryhttp.New(base, p).RoundTrip(req)
		require.Error(t, err)
		require.Len(t, base.Requests(), 1)
		assert.Nil(t, base.Requests()[0].GetBody)
	}
}

// net/http sends a request that has a key and a GetBody again by itself, unseen.
func TestGetBodyIsNotCarriedByAttemptsOfAnUnacceptedKey(t *testing.T) {
	byMethod := func(req *http.Request) bool { return retryhttp.Idempotent(&http.Request{Method: req.Method}) }
	unprocessed := func(a retryhttp.Attempt) retryhttp.Class {
		if a.Response != nil && a.Response.StatusCode == 429 {
			return retryhttp.Unprocessed
		}
		return retryhttp.Classify(a)
	}
	for name, body := range map[string]func() (io.Reader, func() (io.ReadCloser, error)){
		"in memory": func() (io.Reader, func() (io.ReadCloser, error)) { return strings.NewReader("x"), nil },
		"stream":    func() (io.Reader, func() (io.ReadCloser, error)) { return io.MultiReader(strings.NewReader("x")), nil },
		"seeker": func() (io.Reader, func() (io.ReadCloser, error)) {
			return bodies.ReaderAt(bytes.NewReader([]byte("x"))), nil
		},
		"custom GetBody": func() (io.Reader, func() (io.ReadCloser, error)) {
			get := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("x")), nil }
			return io.MultiReader(strings.NewReader("x")), get
		},
	} {
		for _, p := range []retryhttp.Policy{
			{RetryUnprocessed: true},
			{RetryUnprocessed: true, AttemptTimeout: time.Hour},
			{},
			{MaxAttempts: 1},
		} {
			t.Run(name, func(t *testing.T) {
				p.Idempotent, p.Classify, p.Backoff = byMethod, unprocessed, retryhttp.Constant(0)
				base := script.New(script.Status(429), script.Status(429), script.Status(200))
				reader, getBody := body()
				req, err := http.NewRequest("POST", "http://host.example/", reader)
				require.NoError(t, err)
				req.ContentLength = 1
				if getBody != nil {
					req.GetBody = getBody
				}
				had := req.GetBody != nil
				req.Header.Set("Idempotency-Key", "17")
				resp, err := retryhttp.New(base, p).RoundTrip(req)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				attempts := 1
				if p.RetryUnprocessed {
					attempts = 3
				}
				require.Len(t, base.Requests(), attempts)
				for _, r := range base.Requests() {
					assert.Nil(t, r.GetBody)
				}
				assert.Equal(t, had, req.GetBody != nil, "the caller's request is left alone")
			})
		}
	}
}

func TestGetBodyThatFailsEndsTheRetries(t *testing.T) {
	errGone := errors.New("the file is gone")
	cases := []struct {
		name string
		step script.Step
		body func() (io.ReadCloser, error)
		err  error
	}{
		{"after a response", script.Status(503), func() (io.ReadCloser, error) { return nil, errGone }, nil},
		{"after an error", script.Fail(errBroken), func() (io.ReadCloser, error) { return nil, errGone }, errGone},
		{"neither a body nor an error", script.Fail(errBroken), func() (io.ReadCloser, error) { return nil, nil }, errBroken},
	}
	unprocessed := func(retryhttp.Attempt) retryhttp.Class { return retryhttp.Unprocessed }
	for _, method := range []string{"PUT", "POST"} {
		for _, tc := range cases {
			t.Run(method+" "+tc.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					budget := &countingBudget{}
					retried := 0
					p := retryhttp.Policy{
						Budget: budget, Classify: unprocessed, RetryUnprocessed: true, OnRetry: func(retryhttp.Attempt) { retried++ },
					}
					req, err := http.NewRequest(method, "http://host.example/", strings.NewReader("x"))
					require.NoError(t, err)
					req.GetBody = tc.body
					start := time.Now()
					resp, err := retryhttp.New(script.New(tc.step), p).RoundTrip(req)
					assert.Zero(t, time.Since(start), "no wait")
					assert.Zero(t, retried)
					assert.Equal(t, 1, budget.withdrawn)
					assert.Equal(t, 1, budget.refunded)
					if tc.err == nil {
						require.NoError(t, err)
						got, err := io.ReadAll(resp.Body)
						require.NoError(t, err)
						assert.Equal(t, "body of 503", string(got), "the body comes unread")
						assert.Equal(t, retryhttp.StopBody, retryhttp.OutcomeOf(resp).Stop)
						return
					}
					assert.Nil(t, resp)
					assert.ErrorIs(t, err, errBroken)
					assert.ErrorIs(t, err, tc.err)
					assert.Equal(t, retryhttp.StopBody, errorOf(t, err).Stop)
				})
			})
		}
	}
}

func TestGetBodyThatPanicsDoesNotCloseTheFirstBodyTwice(t *testing.T) {
	body := &bodies.Tracked{Reader: strings.NewReader("x")}
	req, _ := http.NewRequest("PUT", "http://server/", body)
	req.GetBody = func() (io.ReadCloser, error) { panic(http.ErrAbortHandler) }
	assert.Panics(t, func() { retryhttp.New(script.New(script.Status(503)), retryhttp.Policy{}).RoundTrip(req) })
	assert.Equal(t, int32(1), body.Closes.Load())
}

func TestGetBodyIsCalledBeforeTheWaitAndClosedOnCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		opened := &bodies.Tracked{Reader: strings.NewReader("x")}
		original := &bodies.Tracked{Reader: strings.NewReader("x")}
		start := time.Now()
		var openedAt time.Time
		req, err := http.NewRequestWithContext(ctx, "PUT", "http://host.example/", original)
		require.NoError(t, err)
		req.GetBody = func() (io.ReadCloser, error) { openedAt = time.Now(); return opened, nil }
		time.AfterFunc(time.Second, cancel)
		p := retryhttp.Policy{Backoff: retryhttp.Constant(time.Minute)}
		_, err = retryhttp.New(script.New(script.Status(503)), p).RoundTrip(req)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, start, openedAt)
		assert.Equal(t, int32(1), opened.Closes.Load())
		assert.Equal(t, int32(1), original.Closes.Load())
	})
}

// stalledUpload is a PUT whose body has a GetBody and stalls, and a base that still
// reads it when it returns an error.
func stalledUpload(t *testing.T, ctx context.Context) (*http.Request, *script.Transport, func()) {
	t.Helper()
	release := make(chan struct{})
	get := func() (io.ReadCloser, error) {
		return &bodies.Hooked{OnRead: func([]byte) (int, error) { <-release; return 0, io.EOF }}, nil
	}
	body, _ := get()
	req, err := http.NewRequestWithContext(ctx, "PUT", "http://host.example/", body)
	require.NoError(t, err)
	req.GetBody = get
	base := script.New(func(req *http.Request) (*http.Response, error) {
		go func() { _, _ = io.ReadAll(req.Body); _ = req.Body.Close() }()
		synctest.Wait()
		return nil, errBroken
	})
	return req, base, func() { close(release) }
}

func TestGetBodyWaitsForAStalledReadWithinTheTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		req, base, release := stalledUpload(t, t.Context())
		defer release()
		p := retryhttp.Policy{
			MaxElapsed: 100 * time.Millisecond, Backoff: retryhttp.Constant(10 * time.Millisecond), MaxAttempts: 2,
		}
		_, err := retryhttp.New(base, p).RoundTrip(req)
		require.Error(t, err)
		assert.Equal(t, []time.Duration{10 * time.Millisecond}, base.Waits())
	})
}

func TestGetBodyThatWaitsIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		req, base, release := stalledUpload(t, ctx)
		defer release()
		time.AfterFunc(100*time.Millisecond, cancel)
		start := time.Now()
		budget := &countingBudget{}
		p := retryhttp.Policy{Budget: budget, Backoff: retryhttp.Constant(time.Second)}
		_, err := retryhttp.New(base, p).RoundTrip(req)
		assert.Equal(t, retryhttp.StopCanceled, errorOf(t, err).Stop)
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
		assert.Equal(t, budget.withdrawn, budget.refunded)
	})
}
