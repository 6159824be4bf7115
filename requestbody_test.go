package retryhttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// uploadOf returns a PUT with the body.
func uploadOf(t *testing.T, body io.Reader) *http.Request {
	t.Helper()
	return requestOf(t, http.MethodPut, body)
}

func requestOf(t *testing.T, method string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://host.example/", body)
	require.NoError(t, err)
	return req
}

// answerTo returns the response to req, with its body closed.
func answerTo(t *testing.T, rt http.RoundTripper, req *http.Request) *http.Response {
	t.Helper()
	resp, err := rt.RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp
}

func TestBodyIsSentWholeByEveryAttempt(t *testing.T) {
	for name, request := range bodies.Kinds(t) {
		for _, size := range []int{0, 1, 64 << 10} {
			t.Run(fmt.Sprintf("%s, %d", name, size), func(t *testing.T) {
				content := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
				srv := &server{answers: play(503, hangUp, 200)}
				serving(t, srv.ServeHTTP, func(t *testing.T, base http.RoundTripper) {
					resp := answerTo(t, retryhttp.New(base, retryhttp.Policy{}), request(content))
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
	type testCase struct {
		method  string
		getBody bool
		policy  retryhttp.Policy
		asItIs  bool
	}
	inBubbles(t, map[string]testCase{
		"not idempotent":                          {"POST", false, retryhttp.Policy{}, true},
		"not idempotent, GetBody":                 {"POST", true, retryhttp.Policy{}, true},
		"one attempt":                             {"PUT", false, retryhttp.Policy{MaxAttempts: 1}, true},
		"not idempotent, GetBody, AttemptTimeout": {"POST", true, retryhttp.Policy{AttemptTimeout: time.Hour}, false},
		"not idempotent, AttemptTimeout":          {"POST", false, retryhttp.Policy{AttemptTimeout: time.Hour}, false},
		"idempotent":                              {"PUT", false, retryhttp.Policy{}, false},
		"idempotent, GetBody":                     {"PUT", true, retryhttp.Policy{}, false},
		"retried if unprocessed":                  {"POST", false, retryhttp.Policy{RetryUnprocessed: true}, false},
	}, func(t *testing.T, tc testCase) {
		body := &bodies.Tracked{Reader: strings.NewReader("x")}
		req := requestOf(t, tc.method, body)
		if tc.getBody {
			req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("x")), nil }
		}
		base := script.New(script.Status(200))
		answerTo(t, retryhttp.New(base, tc.policy), req)
		sent := base.Requests()[0]
		assert.Equal(t, tc.asItIs, sent == req)
		assert.Equal(t, tc.getBody, sent.GetBody != nil)
		assert.EqualValues(t, 1, body.Closes.Load())
	})
}

func TestBodyThatFailsToReadIsFinalWithoutGetBody(t *testing.T) {
	errRead := errors.New("disk error")
	broken := func() (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader("half"), iotest.ErrReader(errRead))), nil
	}
	for attempts, getBody := range map[int]func() (io.ReadCloser, error){1: nil, 4: broken} {
		serving(t, status(200), func(t *testing.T, base http.RoundTripper) {
			req := uploadOf(t, nil)
			req.Body, _ = broken()
			req.GetBody = getBody
			_, err := retryhttp.New(base, retryhttp.Policy{}).RoundTrip(req)
			assert.ErrorIs(t, err, errRead)
			assert.Equal(t, attempts, errorOf(t, err).Attempts)
		})
	}
}

func TestBodyThatCallsGoexitIsAnErrorOfTheBody(t *testing.T) {
	req := uploadOf(t, &bodies.Hooked{OnRead: func([]byte) (int, error) { runtime.Goexit(); return 0, nil }})
	rt := retryhttp.New(script.New(script.Status(200)), retryhttp.Policy{})
	_, err := rt.RoundTrip(req) //nolint:bodyclose // there is none
	assert.Equal(t, retryhttp.StopFinal, errorOf(t, err).Stop)
	assert.ErrorContains(t, err, "Read ended its goroutine")
}

// An attempt that is over may still read its body to the end, and so set the trailer, while the next
// attempt looks at the keys.
func TestTrailerIsEachAttemptsOwn(t *testing.T) {
	inBubbles(t, map[string]bool{"GetBody": true, "a stream": false}, func(t *testing.T, getBody bool) {
		req := uploadOf(t, nil)
		req.Trailer = http.Header{"X-Sum": nil}
		newBody := func() (io.ReadCloser, error) {
			content := strings.NewReader("content")
			return &bodies.Hooked{OnRead: func(p []byte) (int, error) {
				n, err := content.Read(p)
				if err == io.EOF {
					req.Trailer.Set("X-Sum", "sum of content")
				}
				return n, err
			}}, nil
		}
		req.Body, _ = newBody()
		if getBody {
			req.GetBody = newBody
		}
		base := script.Step(func(req *http.Request) (*http.Response, error) {
			assert.Equal(t, http.Header{"X-Sum": nil}, req.Trailer, "before the body was read")
			resp, err := script.Status(503)(req)
			assert.Equal(t, http.Header{"X-Sum": {"sum of content"}}, req.Trailer)
			return resp, err
		})
		resp := answerTo(t, retryhttp.New(base, noWait), req)
		assert.Equal(t, 4, retryhttp.OutcomeOf(resp).Attempts)
	})
}

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
		for _, method := range []string{"GET", "HEAD", "PUT", "DELETE"} {
			for kind, body := range map[string]io.ReadCloser{"nil": nil, "NoBody": http.NoBody} {
				t.Run(name+" "+method+" "+kind, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						base := &readingBase{RoundTripper: script.New(script.Status(503), script.Fail(errBroken), script.Status(200))}
						p.Backoff = retryhttp.Constant(time.Second)
						req := get(t, t.Context())
						req.Method, req.Body = method, body
						assert.Equal(t, 200, answerTo(t, retryhttp.New(base, p), req).StatusCode)
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

// Over HTTP/2, net/http looks at the context only when the Read of the request body has returned.
func TestContextEndsAnAttemptWhoseBodyHasNothingToSend(t *testing.T) {
	for name, p := range map[string]retryhttp.Policy{
		"the first bytes": {PeekBytes: 100},
		"the whole body":  {BufferBytes: 100},
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
					req := requestOf(t, method, silent).WithContext(ctx)
					began := time.Now()
					_, err := readAll(t, base, p, req)
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					assert.Equal(t, time.Second, time.Since(began))
				})
			})
		}
	}
}

// A server may answer before it has read the request. RoundTrip returns then, and the transport goes on
// sending.
func TestBodyIsNotClosedWhileTheLastAttemptReadsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, code := range []int{200, 503} {
			body := &bodies.Tracked{Reader: strings.NewReader("0123456789")}
			goOn, sent := make(chan struct{}), make(chan string)
			rt := retryhttp.New(script.New(func(req *http.Request) (*http.Response, error) {
				go func() {
					<-goOn
					all, _ := io.ReadAll(req.Body)
					_ = req.Body.Close()
					sent <- string(all)
				}()
				return script.Response(req, code), nil
			}), retryhttp.Policy{MaxAttempts: 1})
			answerTo(t, rt, uploadOf(t, body))
			assert.Zero(t, body.Closes.Load())
			close(goOn)
			assert.Equal(t, "0123456789", <-sent)
			assert.EqualValues(t, 1, body.Closes.Load())
			assert.Zero(t, body.Misuses.Load())
		}
	})
}

// The old reader is cut off only when the retry is certain. Here the budget refuses it, and the server
// may still want the rest.
func TestBodyIsSentOnThoughItsResponseIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reader io.ReadCloser
		rt := retryhttp.New(script.New(func(req *http.Request) (*http.Response, error) {
			reader = req.Body
			return script.Response(req, 503), nil
		}), retryhttp.Policy{Budget: &countingBudget{refuse: true}})
		resp, err := rt.RoundTrip(uploadOf(t, io.MultiReader(strings.NewReader("0123456789"))))
		require.NoError(t, err)
		all, err := io.ReadAll(reader)
		require.NoError(t, err)
		assert.Equal(t, "0123456789", string(all))
		require.NoError(t, reader.Close())
		require.NoError(t, resp.Body.Close())
	})
}

// Over HTTP/2, nothing watches the context while a Read of the request body waits.
func TestStallTimeoutEndsAReadBesideAnUploadThatWaits(t *testing.T) {
	inBubbles(t, map[string]string{"retried": "PUT", "sent once": "POST"}, func(t *testing.T, method string) {
		_, base, stop := memnet.ServeProtocol(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(200)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, true)
		defer stop()
		upload, w := io.Pipe()
		defer w.Close()
		start := time.Now()
		p := retryhttp.Policy{StallTimeout: time.Second}
		resp := responseTo(t, wrapped(base), p, requestOf(t, method, upload))
		_, err := io.ReadAll(resp.Body)
		assert.EqualError(t, err, "the response body stalled for 1s")
		assert.Equal(t, time.Second, time.Since(start))
		require.NoError(t, resp.Body.Close())
	})
}

// A body that is sent once is wrapped, too. Otherwise nothing could end a Read that hangs.
func TestBodyThatStallsIsEndedByAttemptTimeout(t *testing.T) {
	inBubbles(t, map[string]string{"retried": "PUT", "sent once": "POST"}, func(t *testing.T, method string) {
		pipe, w := io.Pipe() // nobody ever writes
		defer w.Close()
		req := requestOf(t, method, pipe)
		start := time.Now()
		p := retryhttp.Policy{AttemptTimeout: time.Second, MaxAttempts: 2, Backoff: retryhttp.Constant(time.Second)}
		_, err := retryhttp.New(script.New(script.Status(200)), p).RoundTrip(req)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		attempts := map[string]int{"PUT": 2, "POST": 1}[method]
		assert.Equal(t, attempts, errorOf(t, err).Attempts)
		assert.Equal(t, time.Duration(2*attempts-1)*time.Second, time.Since(start))
	})
}

// The first attempt's Read is in flight when its time is up. Its bytes belong to the second attempt.
func TestBodyThatStallsIsWaitedForByTheNextAttempt(t *testing.T) {
	srv := &server{answers: play(200)}
	serving(t, srv.ServeHTTP, func(t *testing.T, base http.RoundTripper) {
		r, w := io.Pipe()
		go func() {
			_, _ = w.Write([]byte("first "))
			time.Sleep(3 * time.Second)
			_, _ = w.Write([]byte("second"))
			_ = w.Close()
		}()
		p := retryhttp.Policy{AttemptTimeout: 2 * time.Second, Backoff: retryhttp.Constant(500 * time.Millisecond)}
		resp := answerTo(t, retryhttp.New(base, p), uploadOf(t, r))
		assert.Equal(t, 2, retryhttp.OutcomeOf(resp).Attempts)
		assert.Equal(t, "first second", srv.got[len(srv.got)-1].body)
	})
}

// net/http needs it to send a request again that a server refused on HTTP/2, or that met a dead
// connection.
func TestGetBodyIsCarriedByAttempts(t *testing.T) {
	kinds := bodies.Kinds(t)
	delete(kinds, "stream") // it may outgrow what is kept: see below
	inBubbles(t, kinds, func(t *testing.T, request func([]byte) *http.Request) {
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
		assert.Equal(t, 200, answerTo(t, rt, request([]byte("0123456789"))).StatusCode)
	})
}

// A base that finds a GetBody counts on it (a signer that hashes the body, say) and
// buffers otherwise. So a stream has one only if all of it will be kept.
func TestGetBodyIsCarriedByAttemptsOfAStreamThatIsKept(t *testing.T) {
	for name, tc := range map[string]struct {
		length int64
		policy retryhttp.Policy
		want   bool
	}{
		"length unknown":                  {length: -1},
		"length unknown, as zero":         {length: 0},
		"at the default limit":            {length: 64 << 10, want: true},
		"past the default limit":          {length: 64<<10 + 1},
		"past a limit":                    {length: 11, policy: retryhttp.Policy{RecordBytes: 10}},
		"nothing is kept":                 {length: 1, policy: retryhttp.Policy{RecordBytes: -1}},
		"nothing is kept without retries": {length: 1, policy: retryhttp.Policy{AttemptTimeout: time.Hour, MaxAttempts: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			base := script.New(script.Fail(errBroken))
			tc.policy.Backoff = retryhttp.Constant(0)
			req := uploadOf(t, io.MultiReader(strings.NewReader("x")))
			req.ContentLength = tc.length
			_, err := retryhttp.New(base, tc.policy).RoundTrip(req)
			require.Error(t, err)
			require.NotEmpty(t, base.Requests())
			for _, r := range base.Requests() {
				assert.Equal(t, tc.want, r.GetBody != nil)
			}
		})
	}
}

// net/http sends a request that has a key and a GetBody again by itself, unseen. It takes any GET for safe.
func TestGetBodyIsNotCarriedByAttemptsThatPolicyCallsNotIdempotent(t *testing.T) {
	kinds := bodies.Kinds(t)
	kinds["GET without a key"] = func(content []byte) *http.Request {
		return requestOf(t, http.MethodGet, bodies.ReaderAt(bytes.NewReader(content)))
	}
	var own *bodies.Tracked
	kinds["custom GetBody"] = func(content []byte) *http.Request {
		req := uploadOf(t, nil)
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
		own = &bodies.Tracked{Reader: bytes.NewReader(content)}
		req.Body = own
		return req
	}
	for name, request := range kinds {
		for _, p := range []retryhttp.Policy{
			{}, {MaxAttempts: 1}, {AttemptTimeout: time.Hour},
			{RetryUnprocessed: true}, {RetryUnprocessed: true, AttemptTimeout: time.Hour},
		} {
			t.Run(name, func(t *testing.T) {
				p.Idempotent, p.Backoff = func(*http.Request) bool { return false }, retryhttp.Constant(0)
				base := script.New(script.Status(429), script.Status(429), script.Status(200))
				req := request([]byte("x"))
				if req.Method != http.MethodGet {
					req.Header.Set("Idempotency-Key", "17")
				}
				had := req.GetBody != nil
				answerTo(t, retryhttp.New(base, p), req)
				require.Len(t, base.Requests(), map[bool]int{false: 1, true: 3}[p.RetryUnprocessed])
				for _, r := range base.Requests() {
					assert.Nil(t, r.GetBody)
				}
				assert.Equal(t, had, req.GetBody != nil, "the caller's request is left alone")
				assert.True(t, req.Body != own || own.Closes.Load() == 1, "the caller's body is closed")
			})
		}
	}
}

func TestGetBodyThatFailsEndsTheRetries(t *testing.T) {
	errGone := errors.New("the file is gone")
	type testCase struct {
		step script.Step
		gone error
	}
	inBubbles(t, map[string]testCase{
		"after a response":            {script.Status(503), errGone},
		"after an error":              {script.Fail(errBroken), errGone},
		"neither a body nor an error": {script.Fail(errBroken), nil},
	}, func(t *testing.T, tc testCase) {
		budget, retried := &countingBudget{}, 0
		p := retryhttp.Policy{Budget: budget, OnRetry: func(retryhttp.Attempt) { retried++ }}
		req := uploadOf(t, strings.NewReader("x"))
		req.GetBody = func() (io.ReadCloser, error) { return nil, tc.gone }
		start := time.Now()
		resp, err := retryhttp.New(script.New(tc.step), p).RoundTrip(req)
		assert.Zero(t, time.Since(start), "no wait")
		assert.Zero(t, retried)
		assert.Equal(t, 1, budget.withdrawn)
		assert.Equal(t, 1, budget.refunded)
		if err == nil {
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Equal(t, "body of 503", string(got), "the body comes unread")
			assert.Equal(t, retryhttp.StopBody, retryhttp.OutcomeOf(resp).Stop)
			return
		}
		assert.Nil(t, resp)
		assert.ErrorIs(t, err, errBroken)
		if tc.gone != nil {
			assert.ErrorIs(t, err, tc.gone)
		}
		assert.Equal(t, retryhttp.StopBody, errorOf(t, err).Stop)
	})
}

func TestGetBodyIsCalledBeforeTheWaitAndClosedOnCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		opened := &bodies.Tracked{Reader: strings.NewReader("x")}
		original := &bodies.Tracked{Reader: strings.NewReader("x")}
		start := time.Now()
		var openedAt time.Time
		req := uploadOf(t, original).WithContext(ctx)
		req.GetBody = func() (io.ReadCloser, error) { openedAt = time.Now(); return opened, nil }
		time.AfterFunc(time.Second, cancel)
		p := retryhttp.Policy{Backoff: retryhttp.Constant(time.Minute)}
		_, err := retryhttp.New(script.New(script.Status(503)), p).RoundTrip(req)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, start, openedAt)
		assert.EqualValues(t, 1, opened.Closes.Load())
		assert.EqualValues(t, 1, original.Closes.Load())
	})
}

// The base still reads the body when it returns an error, and the Read stalls.
func TestGetBodyWaitsForAStalledReadAsLongAsTheCallerCan(t *testing.T) {
	type testCase struct {
		elapsed, backoff time.Duration
		stop             retryhttp.Stop
		took             time.Duration
	}
	inBubbles(t, map[string]testCase{
		"for a tenth of MaxElapsed": {100 * ms, 10 * ms, retryhttp.StopAttempts, 10 * ms},
		"until the caller has gone": {0, time.Second, retryhttp.StopCanceled, 50 * ms},
	}, func(t *testing.T, tc testCase) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		release := make(chan struct{})
		defer close(release)
		req := uploadOf(t, nil).WithContext(ctx)
		req.GetBody = func() (io.ReadCloser, error) {
			return &bodies.Hooked{OnRead: func([]byte) (int, error) { <-release; return 0, io.EOF }}, nil
		}
		req.Body, _ = req.GetBody()
		base := script.New(func(req *http.Request) (*http.Response, error) {
			go func() { _, _ = io.ReadAll(req.Body); _ = req.Body.Close() }()
			synctest.Wait()
			return nil, errBroken
		})
		budget, start := &countingBudget{}, time.Now()
		p := retryhttp.Policy{
			MaxAttempts: 2, MaxElapsed: tc.elapsed, Backoff: retryhttp.Constant(tc.backoff), Budget: budget,
		}
		_, err := retryhttp.New(base, p).RoundTrip(req)
		assert.Equal(t, tc.stop, errorOf(t, err).Stop)
		assert.Equal(t, tc.took, time.Since(start))
		assert.Equal(t, 1, budget.withdrawn)
		assert.Equal(t, tc.stop == retryhttp.StopCanceled, budget.refunded == 1)
	})
}

// slowShared is the one body that its GetBody returns again and again. Each of its Reads takes longer than a retry
// waits for it.
type slowShared struct {
	mu sync.Mutex
	*strings.Reader
}

func (s *slowShared) Read(p []byte) (int, error) {
	time.Sleep(400 * ms)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Reader.Read(p[:min(len(p), 10)])
}

func (s *slowShared) rewind() (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.Seek(0, io.SeekStart)
	return s, err
}

func (*slowShared) Close() error { return nil }

// The server answers before it has read the body. A Read that goes on takes bytes from the next attempt.
func TestGetBodyOfABodyThatIsStillReadSendsNoPartOfIt(t *testing.T) {
	for name, nested := range map[string]bool{"alone": false, "nested": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := script.New(func(req *http.Request) (*http.Response, error) {
					go func() { _, _ = io.ReadAll(req.Body); _ = req.Body.Close() }()
					time.Sleep(10 * ms)
					return script.Response(req, 503), nil
				})
				var rt http.RoundTripper = retryhttp.New(base, retryhttp.Policy{})
				if nested {
					rt = retryhttp.New(rt, retryhttp.Policy{})
				}
				body := &slowShared{Reader: strings.NewReader("0123456789abcdefghij")}
				req := uploadOf(t, body)
				req.GetBody = body.rewind
				resp := answerTo(t, rt, req)
				assert.Equal(t, 503, resp.StatusCode)
				inner := retryhttp.OutcomeOf(resp)
				assert.Equal(t, nested, inner.Stop == retryhttp.StopNested, inner.Stop)
				assert.Equal(t, 1, inner.Attempts)
				time.Sleep(time.Second)
			})
		})
	}
}
