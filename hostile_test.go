package retryhttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// A Close of the caller's body that takes its time must not hold up a response.
type slowCloser struct {
	io.Reader
	free <-chan struct{}
}

func (b slowCloser) Close() error { <-b.free; return nil }

func TestASlowCloseOfTheBodyDoesNotHoldUpTheResponse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }))
		defer stop()
		for _, rt := range []http.RoundTripper{base, retryhttp.New(base, retryhttp.Policy{})} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			free := make(chan struct{})
			go func() { time.Sleep(time.Hour); close(free) }()
			req, _ := http.NewRequestWithContext(ctx, "POST", "http://server/", slowCloser{strings.NewReader("x"), free})
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

func TestHooksThatPanicLeakNothing(t *testing.T) {
	boom := func() { panic(http.ErrAbortHandler) }
	asked := 0
	cases := map[string]struct {
		p    retryhttp.Policy
		base http.RoundTripper
	}{
		"OnRetry":  {p: retryhttp.Policy{OnRetry: func(retryhttp.Attempt) { boom() }}},
		"Classify": {p: retryhttp.Policy{Classify: func(retryhttp.Attempt) retryhttp.Class { boom(); return 0 }}},
		"Backoff":  {p: retryhttp.Policy{Backoff: func(int, time.Duration) time.Duration { boom(); return 0 }}},
		"Idempotent": {p: retryhttp.Policy{Idempotent: func(*http.Request) bool {
			if asked++; asked > 1 { // the first time, there is no response yet
				boom()
			}
			return true
		}}},
		"base": {base: script.New(func(r *http.Request) (*http.Response, error) { defer r.Body.Close(); panic(http.ErrAbortHandler) })},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				body := &trackedBody{Reader: strings.NewReader("x")}
				answer := &trackedBody{Reader: strings.NewReader("503")}
				budget := &countingBudget{}
				tc.p.Budget = budget
				base := tc.base
				if base == nil {
					base = script.New(func(r *http.Request) (*http.Response, error) {
						io.Copy(io.Discard, r.Body)
						r.Body.Close()
						resp := script.Response(r, 503)
						resp.Body = answer
						return resp, nil
					})
				}
				req, _ := http.NewRequest("PUT", "http://server/", body)
				assert.Panics(t, func() { retryhttp.New(base, tc.p).RoundTrip(req) })
				assert.Equal(t, int32(1), body.closes.Load(), "closes of the caller's body")
				if tc.base == nil {
					assert.Equal(t, int32(1), answer.closes.Load(), "closes of the response nobody got")
				}
				assert.Equal(t, budget.withdrawn, budget.refunded, "tokens")
			})
		})
	}
}

type readAllBase struct{}

func (readAllBase) RoundTrip(r *http.Request) (*http.Response, error) {
	defer r.Body.Close()
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil, err
	}
	return script.Response(r, 200), nil
}

type funcBody func([]byte) (int, error)

func (f funcBody) Read(p []byte) (int, error) { return f(p) }
func (f funcBody) Close() error               { return nil }

func TestPanicOfABodyReachesTheCaller(t *testing.T) {
	// A base that reads the body in the caller's goroutine, to sign it perhaps.
	req, err := http.NewRequest("PUT", "http://server/", funcBody(func([]byte) (int, error) { panic(http.ErrAbortHandler) }))
	require.NoError(t, err)
	assert.PanicsWithValue(t, http.ErrAbortHandler, func() {
		_, _ = retryhttp.New(readAllBase{}, retryhttp.Policy{}).RoundTrip(req) //nolint:bodyclose // there is none
	})
}

func TestGoexitOfABodyIsAnErrorOfTheBody(t *testing.T) {
	req, err := http.NewRequest("PUT", "http://server/", funcBody(func([]byte) (int, error) { runtime.Goexit(); return 0, nil }))
	require.NoError(t, err)
	_, err = retryhttp.New(readAllBase{}, retryhttp.Policy{}).RoundTrip(req) //nolint:bodyclose // there is none
	assert.Equal(t, retryhttp.StopFinal, errorOf(t, err).Stop)
	assert.ErrorContains(t, err, "Read ended its goroutine")
}

func TestOnRetryMayReadTheFailedBodyOfAnUpload(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		for _, kind := range []string{"bytes.Reader with GetBody", "section", "stream", "seeker"} {
			t.Run(fmt.Sprint(kind, " h2=", h2), func(t *testing.T) {
				const size = 200 << 10
				var n atomic.Int32
				inHook, read := make(chan struct{}), make(chan struct{})
				srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if n.Add(1) > 1 {
						io.Copy(io.Discard, r.Body)
						return
					}
					http.NewResponseController(w).EnableFullDuplex()
					w.WriteHeader(503)
					w.(http.Flusher).Flush()
					<-inHook // the body comes when it is being waited for
					w.Write(bytes.Repeat([]byte("e"), size))
					w.(http.Flusher).Flush()
					<-read
				}))
				srv.EnableHTTP2 = h2
				srv.StartTLS()
				defer srv.Close()
				base := srv.Client().Transport
				var got []byte
				var rerr error
				content := bytes.Repeat([]byte("x"), 16<<20)
				req := bodyKinds(t)[kind](content)
				req.URL, _ = url.Parse(srv.URL)
				req.Host = ""
				resp, err := retryhttp.New(base, retryhttp.Policy{MaxBodyBytes: 64 << 20, Backoff: retryhttp.Constant(0), OnRetry: func(a retryhttp.Attempt) {
					close(inHook)
					defer close(read)
					if a.Response == nil {
						rerr = a.Err
						return
					}
					got = make([]byte, size) // not to the end, which is when the handler returns
					_, rerr = io.ReadFull(a.Response.Body, got)
				}}).RoundTrip(req)
				if err == nil {
					resp.Body.Close()
				}
				assert.NoError(t, err)
				assert.NoError(t, rerr)
				assert.Len(t, got, size)
			})
		}
	}
}

func TestRetriesDoNotMultiplyUnderAnAttemptTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := script.New(script.Status(503))
		p := retryhttp.Policy{Backoff: retryhttp.Constant(time.Second), Budget: retryhttp.Unlimited{}}
		outer := p
		outer.AttemptTimeout = 2500 * time.Millisecond
		_, err := retryhttp.New(retryhttp.New(base, p), outer).RoundTrip(get(t, t.Context()))
		t.Log(err)
		assert.LessOrEqual(t, len(base.Requests()), 4, "two layers of 4 attempts")
	})
}

func TestAnErrorOfAnotherRequestIsNotAnInnerOutcome(t *testing.T) {
	bubble(t, func(t *testing.T) {
		// As with errgroup.WithContext: the first failure is the cause for the others.
		ctx, cancel := context.WithCancelCause(t.Context())
		_, base, stop := memnet.Serve(http.HandlerFunc(hang))
		defer stop()
		go func() {
			_, err := retryhttp.New(script.New(script.Status(503), script.Fail(errBroken)), retryhttp.Policy{Backoff: retryhttp.Constant(time.Second)}).RoundTrip(get(t, ctx))
			cancel(err)
		}()
		_, err := retryhttp.New(base, retryhttp.Policy{}).RoundTrip(get(t, ctx))
		e := errorOf(t, err)
		assert.Equal(t, 1, e.Attempts, "%v", err)
		assert.Zero(t, e.Waited)
	})
}

func TestAnErrorOfABodysOriginIsNotAnInnerOutcome(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, origin := retryhttp.New(script.New(script.Fail(errBroken)), retryhttp.Policy{Backoff: retryhttp.Constant(time.Second)}).RoundTrip(get(t, t.Context()))
		body := funcBody(func([]byte) (int, error) { return 0, origin })
		req, err := http.NewRequest("PUT", "http://server/", body)
		require.NoError(t, err)
		_, err = retryhttp.New(readAllBase{}, retryhttp.Policy{}).RoundTrip(req)
		assert.Equal(t, 1, errorOf(t, err).Attempts)
		assert.Equal(t, retryhttp.StopFinal, errorOf(t, err).Stop)
	})
}

type openFile struct{ *os.File }

func (openFile) Close() error { return nil }

func TestAnUnreadFileIsWhereItWas(t *testing.T) {
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

func TestTheLastResponseComesBackWhereABodyCannotBeRewound(t *testing.T) {
	for name, body := range map[string]io.Reader{
		"Seek does nothing":       nullSeeker{strings.NewReader("content")},
		"Seek only tells":         forwardOnly{bytes.NewReader([]byte("content"))},
		"a stream that has ended": io.NopCloser(io.MultiReader(strings.NewReader("x"), funcBody(func([]byte) (int, error) { return 0, errBroken }))),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
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

func TestA101CanBeHalfClosed(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: sum\r\n\r\n")
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		all, err := io.ReadAll(rw)
		fmt.Fprintf(c, "%d %v", len(all), err)
	}))
	defer srv.Close()
	base := &http.Transport{}
	for name, rt := range map[string]http.RoundTripper{"bare": base, "retry": retryhttp.New(base, retryhttp.Policy{}), "retry with AttemptTimeout": retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Minute})} {
		req, _ := http.NewRequest("GET", srv.URL, nil)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "sum")
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		io.WriteString(resp.Body.(io.Writer), "hello")
		cw, ok := resp.Body.(interface{ CloseWrite() error })
		if assert.True(t, ok, name) {
			assert.NoError(t, cw.CloseWrite())
			got, _ := io.ReadAll(resp.Body)
			assert.Equal(t, "5 <nil>", string(got))
		}
	}
}

func TestARecordDoesNotKeepOldResponses(t *testing.T) {
	ctx := t.Context()
	rt := retryhttp.New(script.New(script.Status(429)), retryhttp.Policy{MaxAttempts: 1})
	var old []weak.Pointer[http.Response]
	for range 5 {
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://server/", nil)
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err)
		old = append(old, weak.Make(resp))
		ctx = resp.Request.Context() // the next page, made with this one's context
	}
	runtime.GC()
	runtime.GC()
	alive := 0
	for _, p := range old {
		if p.Value() != nil {
			alive++
		}
	}
	runtime.KeepAlive(ctx)
	assert.LessOrEqual(t, alive, 1)
}
