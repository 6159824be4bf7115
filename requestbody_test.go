package retryhttp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

func TestBodyIsSentWholeByEveryAttempt(t *testing.T) {
	for name, request := range bodies.Kinds(t) {
		for _, size := range []int{0, 1, 4096, 64 << 10} {
			t.Run(name, func(t *testing.T) {
				content := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
				synctest.Test(t, func(t *testing.T) {
					srv := &server{answers: play(503, hangUp, 200)}
					_, base, stop := memnet.Serve(srv)
					defer stop()
					resp, err := retryhttp.New(base, retryhttp.Policy{}).RoundTrip(request(content))
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					require.Equal(t, 200, resp.StatusCode)
					require.Len(t, srv.got, 3)
					for _, got := range srv.got {
						require.Equal(t, string(content), got.body)
					}
				})
			})
		}
	}
}

func TestBodyThatNoRetryCanFollowIsSentAsItIs(t *testing.T) {
	for _, tc := range []struct {
		name    string
		method  string
		key     bool
		getBody bool
		policy  retryhttp.Policy
		asItIs  bool
	}{
		{"not idempotent", "POST", false, false, retryhttp.Policy{}, true},
		{"not idempotent, GetBody", "POST", false, true, retryhttp.Policy{}, true},
		{"one attempt", "PUT", false, false, retryhttp.Policy{MaxAttempts: 1}, true},
		{"one attempt of a keyed request", "POST", true, false, retryhttp.Policy{MaxAttempts: 1}, true},
		{"not idempotent, GetBody, AttemptTimeout", "POST", false, true, retryhttp.Policy{AttemptTimeout: time.Hour}, true},
		{"not idempotent, AttemptTimeout", "POST", false, false, retryhttp.Policy{AttemptTimeout: time.Hour}, false},
		{"idempotent", "PUT", false, false, retryhttp.Policy{}, false},
		{"idempotent, GetBody", "PUT", false, true, retryhttp.Policy{}, false},
		{"keyed", "POST", true, false, retryhttp.Policy{}, false},
		{"retried if unprocessed", "POST", false, false, retryhttp.Policy{RetryUnprocessed: true}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				body := &bodies.Tracked{Reader: strings.NewReader("x")}
				req, err := http.NewRequest(tc.method, "http://host.example/", body)
				require.NoError(t, err)
				if tc.key {
					req.Header.Set("Idempotency-Key", "17")
				}
				if tc.getBody {
					req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("x")), nil }
				}
				var sent *http.Request
				base := script.Step(func(req *http.Request) (*http.Response, error) {
					sent = req
					return script.Status(200)(req)
				})
				resp, err := retryhttp.New(base, tc.policy).RoundTrip(req)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				if tc.policy.AttemptTimeout == 0 {
					assert.Equal(t, tc.asItIs, sent == req)
				}
				assert.Equal(t, tc.getBody, sent.GetBody != nil)
				assert.EqualValues(t, 1, body.Closes.Load())
			})
		})
	}
}

// The caller set the body of a request that was made without content.
func TestBodyIsNotReplacedByAnEmptyOne(t *testing.T) {
	req, err := http.NewRequest("PUT", "http://host.example/", new(bytes.Buffer))
	require.NoError(t, err)
	req.Body = io.NopCloser(strings.NewReader("precious"))
	resp, err := retryhttp.New(script.New(script.Status(503), script.Status(200)), noWait).RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, 503, resp.StatusCode)
	assert.Equal(t, retryhttp.StopBody, retryhttp.OutcomeOf(resp).Stop)
}

func TestBodyThatIsAStreamPastTheLimitIsSentOnceAndWhole(t *testing.T) {
	cases := []struct {
		name     string
		limit    int64
		size     int
		attempts int
		stop     retryhttp.Stop
	}{
		{"at the default limit", 0, 64 << 10, 2, retryhttp.StopFinal},
		{"past the default limit", 0, 64<<10 + 1, 1, retryhttp.StopBody},
		{"at a limit", 10, 10, 2, retryhttp.StopFinal},
		{"past a limit", 10, 11, 1, retryhttp.StopBody},
		{"nothing is kept", -1, 1, 1, retryhttp.StopBody},
		{"nothing needs to be kept", -1, 0, 2, retryhttp.StopFinal},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := &server{answers: play(503, 200)}
				_, base, stop := memnet.Serve(srv)
				defer stop()
				content := strings.Repeat("x", tc.size)
				body := &bodies.Tracked{Reader: strings.NewReader(content)}
				req, err := http.NewRequest("PUT", "http://server/", body)
				require.NoError(t, err)
				resp, err := retryhttp.New(base, retryhttp.Policy{RecordBytes: tc.limit}).RoundTrip(req)
				require.NoError(t, err)
				got, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				assert.NotEmpty(t, got, "the response is returned with its body")
				o := retryhttp.OutcomeOf(resp)
				assert.Equal(t, tc.attempts, o.Attempts)
				assert.Equal(t, tc.stop, o.Stop)
				assert.Len(t, srv.got, tc.attempts)
				for _, got := range srv.got {
					assert.Equal(t, content, got.body)
				}
				synctest.Wait()
				assert.Equal(t, int32(1), body.Closes.Load())
				assert.Zero(t, body.Misuses.Load())
			})
		})
	}
}

func TestBodyThatIsAStreamAndWasNotReadCanBeSentAgain(t *testing.T) {
	// The bytes that were read decide, not the length.
	synctest.Test(t, func(t *testing.T) {
		base := script.New(script.Fail(errBroken), func(req *http.Request) (*http.Response, error) {
			defer req.Body.Close()
			got, err := io.ReadAll(req.Body)
			assert.NoError(t, err)
			assert.Len(t, got, 1<<20)
			return script.Response(req, 200), nil
		})
		req, err := http.NewRequest("PUT", "http://server/", io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20))))
		require.NoError(t, err)
		req.ContentLength = 1 << 20
		resp, err := retryhttp.New(base, retryhttp.Policy{}).RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, 2, retryhttp.OutcomeOf(resp).Attempts)
		assert.Equal(t, int64(1<<20), base.Requests()[1].ContentLength)
	})
}

type openFile struct{ *os.File }

func (openFile) Close() error { return nil }

func TestBodyThatIsAnUnreadFileIsWhereItWas(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(name, []byte("content"), 0o600))
	for _, mode := range []string{"bare", "retryhttp"} {
		f, err := os.Open(name)
		require.NoError(t, err)
		defer f.Close()
		var got []string
		base := script.New(
			script.Fail(&net.OpError{Op: "dial", Err: errBroken}), // nothing was read
			func(r *http.Request) (*http.Response, error) {
				b, _ := io.ReadAll(r.Body)
				got = append(got, string(b))
				r.Body.Close()
				return script.Response(r, 200), nil
			})
		var rt http.RoundTripper = base
		if mode == "retryhttp" {
			rt = retryhttp.New(base, retryhttp.Policy{})
		}
		for range 2 {
			req, _ := http.NewRequest("POST", "http://server/", openFile{f})
			_, _ = rt.RoundTrip(req)
		}
		assert.Equal(t, []string{"content"}, got, mode)
	}
}

type nullSeeker struct{ io.Reader }

func (nullSeeker) Seek(int64, int) (int64, error) { return 0, nil }
func (nullSeeker) Close() error                   { return nil }

type forwardOnly struct{ n *bytes.Reader }

func (f forwardOnly) Read(p []byte) (int, error) { return f.n.Read(p) }
func (f forwardOnly) Close() error               { return nil }

func (f forwardOnly) Seek(off int64, whence int) (int64, error) {
	if whence == io.SeekCurrent && off == 0 {
		return f.n.Seek(0, io.SeekCurrent)
	}
	return 0, errors.New("cannot seek")
}

func TestBodyThatCannotBeRewoundReturnsTheLastResponse(t *testing.T) {
	for name, body := range map[string]io.Reader{
		"Seek does nothing":       nullSeeker{strings.NewReader("content")},
		"Seek only tells":         forwardOnly{bytes.NewReader([]byte("content"))},
		"a stream that has ended": io.NopCloser(io.MultiReader(strings.NewReader("x"), iotest.ErrReader(errBroken))),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				req, _ := http.NewRequest("PUT", "http://server/", body)
				base := script.New(func(r *http.Request) (*http.Response, error) {
					defer r.Body.Close()
					_, err := io.ReadAll(r.Body)
					if name != "a stream that has ended" && err != nil {
						return nil, err
					}
					return script.Response(r, 503), nil
				}, script.Status(503))
				resp, err := retryhttp.New(base, retryhttp.Policy{}).RoundTrip(req)
				require.NoError(t, err, "the server answered 503, and the bare base returns that")
				assert.Equal(t, retryhttp.StopBody, retryhttp.OutcomeOf(resp).Stop)
			})
		})
	}
}

func TestBodyThatFailsToReadIsFinalWithoutGetBody(t *testing.T) {
	errRead := errors.New("disk error")
	broken := func() io.ReadCloser {
		return &bodies.Tracked{Reader: io.MultiReader(strings.NewReader("half"), iotest.ErrReader(errRead))}
	}
	for _, tc := range []struct {
		name     string
		getBody  bool
		attempts int
	}{{"without", false, 1}, {"with", true, 4}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, base, stop := memnet.Serve(http.HandlerFunc(status(200)))
				defer stop()
				body := broken().(*bodies.Tracked)
				req, err := http.NewRequest("PUT", "http://server/", body)
				require.NoError(t, err)
				if tc.getBody {
					req.GetBody = func() (io.ReadCloser, error) { return broken(), nil }
				}
				_, err = retryhttp.New(base, retryhttp.Policy{}).RoundTrip(req)
				assert.ErrorIs(t, err, errRead)
				assert.Equal(t, tc.attempts, errorOf(t, err).Attempts)
				synctest.Wait()
				assert.GreaterOrEqual(t, body.Closes.Load(), int32(1))
			})
		})
	}
}

func TestBodyThatPanicsReachesTheCaller(t *testing.T) {
	// The base reads the body in the caller's goroutine, perhaps to sign it.
	body := &bodies.Hooked{OnRead: func([]byte) (int, error) { panic(http.ErrAbortHandler) }}
	req, err := http.NewRequest("PUT", "http://server/", body)
	require.NoError(t, err)
	rt := retryhttp.New(script.New(script.Status(200)), retryhttp.Policy{})
	assert.PanicsWithValue(t, http.ErrAbortHandler, func() {
		_, _ = rt.RoundTrip(req) //nolint:bodyclose // there is none
	})
}

func TestBodyThatCallsGoexitIsAnErrorOfTheBody(t *testing.T) {
	body := &bodies.Hooked{OnRead: func([]byte) (int, error) { runtime.Goexit(); return 0, nil }}
	req, err := http.NewRequest("PUT", "http://server/", body)
	require.NoError(t, err)
	rt := retryhttp.New(script.New(script.Status(200)), retryhttp.Policy{})
	_, err = rt.RoundTrip(req) //nolint:bodyclose // there is none
	assert.Equal(t, retryhttp.StopFinal, errorOf(t, err).Stop)
	assert.ErrorContains(t, err, "Read ended its goroutine")
}

func TestTrailerGoesWithEveryAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var trailers []http.Header
		_, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			trailers = append(trailers, r.Trailer.Clone())
			if len(trailers) < 3 {
				w.WriteHeader(503)
			}
		}))
		defer stop()
		req, err := http.NewRequest("PUT", "http://server/", nil)
		require.NoError(t, err)
		req.Trailer = http.Header{"X-Sum": nil}
		req.Body = &trailerBody{strings.NewReader("content"), req}
		req.ContentLength = -1
		resp, err := retryhttp.New(base, retryhttp.Policy{}).RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		want := http.Header{"X-Sum": {"sum of content"}}
		assert.Equal(t, []http.Header{want, want, want}, trailers)
	})
}

func TestTrailerIsEachAttemptsOwn(t *testing.T) {
	// An attempt reads its map's keys while the previous attempt's body may still
	// set values.
	synctest.Test(t, func(t *testing.T) {
		step := func(code int) script.Step {
			return func(req *http.Request) (*http.Response, error) {
				assert.Equal(t, http.Header{"X-Sum": nil}, req.Trailer, "before the body was read")
				resp, err := script.Status(code)(req)
				assert.Equal(t, http.Header{"X-Sum": {"sum of content"}}, req.Trailer)
				return resp, err
			}
		}
		req, err := http.NewRequest("PUT", "http://server/", nil)
		require.NoError(t, err)
		req.Trailer = http.Header{"X-Sum": nil}
		req.Body = &trailerBody{strings.NewReader("content"), req}
		resp, err := retryhttp.New(script.New(step(503), step(200)), retryhttp.Policy{}).RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	})
}

// An attempt that is over may still read its body to the end, which sets the trailer.
func TestTrailerIsEachAttemptsOwnWithGetBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		req, err := http.NewRequest("PUT", "http://server/", nil)
		require.NoError(t, err)
		req.Trailer = http.Header{"X-Sum": nil}
		req.Body = &trailerBody{strings.NewReader("content"), req}
		req.GetBody = func() (io.ReadCloser, error) { return &trailerBody{strings.NewReader("content"), req}, nil }
		step := func(code int) script.Step {
			return func(req *http.Request) (*http.Response, error) {
				assert.Equal(t, http.Header{"X-Sum": nil}, req.Trailer, "before the body was read")
				resp, err := script.Status(code)(req)
				assert.Equal(t, http.Header{"X-Sum": {"sum of content"}}, req.Trailer)
				return resp, err
			}
		}
		resp, err := retryhttp.New(script.New(step(503), step(200)), retryhttp.Policy{}).RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	})
}

// lateTrailerBody adds a trailer, which it did not announce, when it has been
// read.
type lateTrailerBody struct {
	io.Reader
	req *http.Request
}

func (b *lateTrailerBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		b.req.Trailer = http.Header{"X-Sum": {"sum of content"}}
	}
	return n, err
}

func (b *lateTrailerBody) Close() error { return nil }

func TestTrailerThatWasNotAnnouncedIsNotSent(t *testing.T) {
	req, err := http.NewRequest("PUT", "http://server/", nil)
	require.NoError(t, err)
	req.Body = &lateTrailerBody{strings.NewReader("content"), req}
	base := script.New(script.Status(200))
	_, err = retryhttp.New(base, retryhttp.Policy{}).RoundTrip(req)
	require.NoError(t, err)
	assert.Empty(t, base.Requests()[0].Trailer)
}

// trailerBody sets a trailer when it has been read.
type trailerBody struct {
	io.Reader
	req *http.Request
}

func (b *trailerBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		b.req.Trailer.Set("X-Sum", "sum of content")
	}
	return n, err
}

func (b *trailerBody) Close() error { return nil }

// readingBase reads the body of each request and puts it back, as recorders and old signers do. They
// also do so with a body that is not there.
type readingBase struct {
	http.RoundTripper
	bodies []io.ReadCloser // of the requests, as they came
}

func (b *readingBase) RoundTrip(req *http.Request) (*http.Response, error) {
	b.bodies = append(b.bodies, req.Body)
	var content []byte
	if req.Body != nil {
		content, _ = io.ReadAll(req.Body)
	}
	req.Body = io.NopCloser(bytes.NewReader(content))
	req.ContentLength = -1
	return b.RoundTripper.RoundTrip(req)
}

// Whether a request has a body is decided before the first attempt.
func TestBodyThatTheBasePutsOnARequestIsNotTheCallers(t *testing.T) {
	for name, p := range map[string]retryhttp.Policy{
		"zero": {},
		"full": {
			AttemptTimeout: time.Hour, BufferBytes: 1 << 16, PeekBytes: 1 << 12, Resume: true, StallTimeout: time.Hour,
			Hedge: &retryhttp.Hedge{After: time.Minute},
		},
	} {
		for _, method := range []string{"GET", "HEAD", "OPTIONS", "PUT", "DELETE"} {
			for kind, body := range map[string]io.ReadCloser{"nil": nil, "NoBody": http.NoBody} {
				t.Run(name+" "+method+" "+kind, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						base := &readingBase{RoundTripper: script.New(script.Status(503), script.Fail(errBroken), script.Status(200))}
						p.Backoff = retryhttp.Constant(time.Second)
						req := get(t, t.Context())
						req.Method, req.Body = method, body
						resp, err := retryhttp.New(base, p).RoundTrip(req)
						require.NoError(t, err)
						assert.Equal(t, 200, resp.StatusCode)
						require.Len(t, base.bodies, 3)
						for _, got := range base.bodies[1:] {
							assert.True(t, got == nil || got == http.NoBody, "a retry has no body")
						}
					})
				})
			}
		}
	}
}

func TestDownloadIsResumedThoughTheBasePutsABodyOnItsRequest(t *testing.T) {
	base := &readingBase{RoundTripper: script.New(cutAfter(10), rest(10))}
	got, err := download(t, base, resumes)
	require.NoError(t, err)
	assert.Equal(t, object, got)
	assert.Len(t, base.bodies, 2)
	assert.Nil(t, base.bodies[1])
}

// uploadBody is a request body of a MiB, whose memory is watched.
type uploadBody struct {
	*bytes.Reader
	content [1 << 20]byte
}

func (*uploadBody) Close() error { return nil }

// A body of each attempt is in memory while the attempt and the next one are made, and no longer.
func TestBodiesOfPastAttemptsAreNotKept(t *testing.T) {
	for name, p := range map[string]retryhttp.Policy{
		"by default":     {},
		"AttemptTimeout": {AttemptTimeout: time.Hour},
		"BufferBytes":    {BufferBytes: 100},
		"Hedge":          {Hedge: &retryhttp.Hedge{After: time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			var made []weak.Pointer[uploadBody]
			newBody := func() (io.ReadCloser, error) {
				b := new(uploadBody)
				b.Reader = bytes.NewReader(b.content[:])
				made = append(made, weak.Make(b))
				return b, nil
			}
			const attempts = 100
			base := script.Step(func(req *http.Request) (*http.Response, error) {
				n, err := io.Copy(io.Discard, req.Body)
				assert.NoError(t, err)
				assert.EqualValues(t, 1<<20, n)
				assert.NoError(t, req.Body.Close())
				if len(made)%25 == 0 {
					runtime.GC()
					for _, body := range made[1 : len(made)-2] { // the first is the caller's
						assert.True(t, body.Value() == nil, "a body of a past attempt is kept")
					}
				}
				if len(made) == attempts {
					return script.Response(req, 200), nil
				}
				return script.Response(req, 503), nil
			})
			p.MaxAttempts, p.Backoff, p.Budget = attempts, retryhttp.Constant(0), retryhttp.Unlimited{}
			req := get(t, t.Context())
			req.Method, req.GetBody = "QUERY", newBody
			req.Body, _ = newBody()
			resp, err := retryhttp.New(base, p).RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, attempts, retryhttp.OutcomeOf(resp).Attempts)
		})
	}
}

// Over HTTP/2, net/http looks at the context only when the Read of the request body has returned.
func TestContextEndsAnAttemptWhoseBodyHasNothingToSend(t *testing.T) {
	for name, p := range map[string]retryhttp.Policy{
		"the first bytes": {PeekBytes: 100},
		"the whole body":  {BufferBytes: 100},
		"both":            {BufferBytes: 100, PeekBytes: 100},
	} {
		for _, method := range []string{http.MethodPost, http.MethodPut} {
			t.Run(name+" of a "+method, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					_, base, stop := memnet.ServeProtocol(func(w http.ResponseWriter, r *http.Request) {
						_ = http.NewResponseController(w).Flush()
						_, _ = io.Copy(io.Discard, r.Body)
					}, true)
					defer stop()
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					silent, silence := io.Pipe()
					time.AfterFunc(time.Minute, func() { silence.Close() }) // or a failure never ends
					req, err := http.NewRequestWithContext(ctx, method, "http://host.example/", silent)
					require.NoError(t, err)
					began := time.Now()
					_, err = readAll(t, base, p, req)
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					assert.Equal(t, time.Second, time.Since(began))
				})
			})
		}
	}
}
