package retryhttp_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/closing"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// closedWhile reads a download, and closes it from another goroutine after a second. It
// returns when the Read ended, and with what.
func closedWhile(t *testing.T, base http.RoundTripper, p retryhttp.Policy) (time.Duration, error) {
	t.Helper()
	resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	began := time.Now()
	time.AfterFunc(time.Second, func() { assert.NoError(t, resp.Body.Close()) })
	_, err = io.ReadAll(resp.Body)
	took := time.Since(began)
	_, again := resp.Body.Read(make([]byte, 1))
	assert.Error(t, again)
	assert.NoError(t, resp.Body.Close(), "callers often close twice")
	return took, err
}

func TestCloseEndsTheWaitForAResumption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := &countingBudget{}
		p := resumes
		p.Budget = budget
		p.Backoff = retryhttp.Constant(time.Minute)
		base := script.New(cutAfter(10))
		took, err := closedWhile(t, base, p)
		assert.Equal(t, time.Second, took)
		assert.Equal(t, http.ErrBodyReadAfterClose, err)
		assert.Len(t, base.Requests(), 1)
		assert.Equal(t, 1, budget.refunded)
	})
}

func TestCloseEndsAResumptionThatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script.New(cutAfter(10), func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, context.Cause(req.Context())
		})
		took, err := closedWhile(t, base, resumes)
		assert.Equal(t, time.Second, took)
		assert.Equal(t, http.ErrBodyReadAfterClose, err)
		assert.Len(t, base.Requests(), 2)
	})
}

type anyKey struct{}

// net/http lets a caller use its request again once the body is closed. A base, such as one that
// logs, may still look at the request of a resumption.
func TestResumptionDoesNotUseTheRequestAfterClose(t *testing.T) {
	for name, key := range map[string]func(*http.Request) string{"as it is": nil, "with a key": retryhttp.RandomKey} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				req := get(t, t.Context())
				req.Header.Set("Authorization", "first")
				req.Header.Set("Trace", "first")
				var after *http.Request
				base := script.New(cutAfter(10), func(sent *http.Request) (*http.Response, error) {
					time.Sleep(time.Minute) // until the caller uses the request again
					after = sent
					assert.Equal(t, "/path", sent.URL.Path)
					assert.Equal(t, "first", sent.Header.Get("Authorization"))
					return nil, errBroken
				})
				p := resumes
				p.IdempotencyKey = key
				p.Idempotent = func(req *http.Request) bool {
					return req.Header.Get("Trace") == "first" && (key == nil || req.Header.Get("Idempotency-Key") != "")
				}
				p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
					if a.Err != nil {
						assert.Equal(t, "first", a.Request.Header.Get("Trace"))
					}
					return retryhttp.Classify(a)
				}
				resp, err := retryhttp.New(base, p).RoundTrip(req)
				require.NoError(t, err)
				sentKey := base.Requests()[0].Header.Get("Idempotency-Key")
				assert.Equal(t, key != nil, sentKey != "")
				time.AfterFunc(time.Second, func() {
					_ = resp.Body.Close()
					req.URL.Path, req.Method = "/other", "POST"
					req.Header.Set("Authorization", "second")
					req.Header.Set("Trace", "second")
					*req = *req.WithContext(context.WithValue(t.Context(), anyKey{}, "b"))
				})
				_, err = io.ReadAll(resp.Body)
				assert.Equal(t, http.ErrBodyReadAfterClose, err)
				require.NotNil(t, after)
				assert.Equal(t, sentKey, after.Header.Get("Idempotency-Key"))
			})
		})
	}
}

// A base may answer although its context has ended.
func TestCloseLeavesNoLateResponseOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var late *piece
		base := script.New(cutAfter(10), func(req *http.Request) (*http.Response, error) {
			time.Sleep(2 * time.Second)
			resp, err := rest(10)(req)
			late = resp.Body.(*piece)
			return resp, err
		})
		took, err := closedWhile(t, base, resumes)
		assert.Equal(t, 2*time.Second, took)
		assert.Equal(t, http.ErrBodyReadAfterClose, err)
		assert.EqualValues(t, 1, late.closes.Load())
	})
}

func TestCloseEndsAReadThatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		_, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests++
			memnet.EndConnection(w, r)
			w.Header().Set("Etag", `"v1"`)
			w.Header().Set("Content-Length", "36")
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}))
		defer stop()
		took, err := closedWhile(t, base, resumes)
		assert.Equal(t, time.Second, took)
		assert.Error(t, err)
		assert.NotErrorIs(t, err, io.ErrUnexpectedEOF)
		assert.Equal(t, 1, requests, "it was not resumed")
	})
}

// released is the context of a request that its caller may use again.
type released struct {
	context.Context
	t *testing.T
}

func (r released) Done() <-chan struct{} {
	r.t.Error("the request is used after Close")
	return nil
}

// The bytes that came with the error are delivered, and then the caller has enough.
func TestCloseAfterABreakIsTheEnd(t *testing.T) {
	for _, reads := range []int{1, 2} {
		t.Run(fmt.Sprint("at break ", reads), func(t *testing.T) {
			var body *bodies.Hooked
			breaks := func(answer script.Step, first int) script.Step {
				return func(req *http.Request) (*http.Response, error) {
					resp, err := answer(req)
					body = &bodies.Hooked{OnRead: func(p []byte) (int, error) { return copy(p, object[first:first+10]), errLost }}
					resp.Body = body
					return resp, err
				}
			}
			base := script.New(breaks(cutAfter(0), 0), breaks(rest(10), 10))
			req := get(t, t.Context())
			resp, err := retryhttp.New(base, resumes).RoundTrip(req)
			require.NoError(t, err)
			for range reads {
				n, err := resp.Body.Read(make([]byte, 10))
				require.NoError(t, err)
				require.Equal(t, 10, n)
			}
			require.NoError(t, resp.Body.Close())
			*req = *req.WithContext(released{req.Context(), t})
			_, err = resp.Body.Read(make([]byte, 10))
			assert.Equal(t, http.ErrBodyReadAfterClose, err)
			assert.Len(t, base.Requests(), reads)
			assert.EqualValues(t, 1, body.Closes.Load())
		})
	}
}

// The error that Close causes in a Read is the body's own.
func TestCloseDuringAReadIsNoBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		freed := make(chan struct{})
		body := &bodies.Hooked{OnClose: func() { close(freed) }}
		body.OnRead = func([]byte) (int, error) { <-freed; return 0, errLost }
		base := script.New(func(req *http.Request) (*http.Response, error) {
			resp, err := cutAfter(0)(req)
			resp.Body = body
			return resp, err
		})
		resp, err := retryhttp.New(base, resumes).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { _ = resp.Body.Close() })
		_, err = resp.Body.Read(make([]byte, 1))
		assert.Equal(t, errLost, err)
		assert.EqualValues(t, 1, body.Closes.Load())
	})
}

// A Transport above closes a body that stalls, if that is safe. Between two bodies it is.
func TestDownloadIsClosableWhileReadIfItsBodyIs(t *testing.T) {
	for _, first := range []bool{false, true} {
		var resp *http.Response
		var between bool
		says := func(answer script.Step, closable bool) script.Step {
			return func(req *http.Request) (*http.Response, error) {
				between = resp != nil && closing.WhileRead(resp.Body)
				resp, err := answer(req)
				resp.Body = &mayClose{Hooked: bodies.Hooked{OnRead: resp.Body.Read}, closable: closable}
				return resp, err
			}
		}
		base := script.New(says(cutAfter(10), first), says(rest(10), !first))
		var err error
		resp, err = retryhttp.New(base, resumes).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		assert.Equal(t, first, closing.WhileRead(resp.Body))
		_, err = io.ReadFull(resp.Body, make([]byte, 11))
		require.NoError(t, err)
		assert.True(t, between)
		assert.Equal(t, !first, closing.WhileRead(resp.Body))
	}
}

// The end of a chunked body comes after its last byte.
func TestResumptionLeavesAConnectionThatServesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Etag", `"v1"`)
			if r.Header.Get("Range") == "" {
				w.Header().Set("Content-Length", "36")
				_, _ = io.WriteString(w, object[:10])
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
			w.Header().Set("Content-Range", "bytes 10-35/36")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = io.WriteString(w, object[10:])
			_ = http.NewResponseController(w).Flush()
		}))
		defer stop()
		got, err := download(t, base, resumes)
		require.NoError(t, err)
		assert.Equal(t, object, got)
		synctest.Wait()
		req := get(t, t.Context())
		req.Header.Set("Range", "bytes=10-")
		_, err = readAll(t, base, resumes, req)
		require.NoError(t, err)
		assert.Equal(t, 2, n.Dials(), "one that broke, and one that served again")
	})
}

// Each response's body is closed once it has broken off. The caller closes the last body.
func TestResumeClosesWhatItHasRead(t *testing.T) {
	var pieces []*piece
	kept := func(step script.Step) script.Step {
		return func(req *http.Request) (*http.Response, error) {
			for _, b := range pieces {
				assert.EqualValues(t, 1, b.closes.Load())
			}
			resp, err := step(req)
			pieces = append(pieces, resp.Body.(*piece))
			return resp, err
		}
	}
	_, err := download(t, script.New(kept(cutAfter(10)), kept(restUntil(10, 20, errLost)), kept(rest(20))), resumes)
	require.NoError(t, err)
	refused := sends(412, "no", io.EOF)
	_, err = download(t, script.New(kept(cutAfter(10)), kept(restUntil(10, 20, errLost)), kept(refused)), resumes)
	require.ErrorIs(t, err, errLost)
	spent := resumes
	spent.MaxAttempts = 2
	_, err = download(t, script.New(kept(cutAfter(10)), kept(sends(503, "busy", io.EOF))), spent)
	require.ErrorIs(t, err, errLost)
	require.Len(t, pieces, 8)
	for _, b := range pieces {
		assert.EqualValues(t, 1, b.closes.Load())
	}
}

func TestResumeKeepsNoContext(t *testing.T) {
	last := func(base *script.Transport) context.Context { return base.Requests()[1].Context() }

	base := script.New(cutAfter(10), restUntil(10, 20, io.EOF))
	resp, err := retryhttp.New(base, resumes).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	_, err = io.ReadFull(resp.Body, make([]byte, 15))
	require.NoError(t, err)
	assert.NoError(t, last(base).Err())
	require.NoError(t, resp.Body.Close())
	assert.Error(t, last(base).Err(), "closed")

	base = script.New(cutAfter(10), rest(10))
	resp, err = retryhttp.New(base, resumes).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	_, err = io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Error(t, last(base).Err(), "read to the end")

	base = script.New(cutAfter(10), script.Status(404))
	resp, err = retryhttp.New(base, resumes).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	_, err = io.ReadAll(resp.Body)
	require.Error(t, err)
	assert.Error(t, last(base).Err(), "refused")
}

func TestPanicOfAHookDuringAResumptionSurfaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := &countingBudget{}
		p := resumes
		p.Budget = budget
		p.OnRetry = func(retryhttp.Attempt) { panic(http.ErrAbortHandler) }
		resp, err := retryhttp.New(script.New(cutAfter(10)), p).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		assert.PanicsWithValue(t, http.ErrAbortHandler, func() { _, _ = io.ReadAll(resp.Body) })
		assert.Equal(t, 1, budget.refunded)
		_, err = resp.Body.Read(make([]byte, 1))
		assert.Equal(t, errLost, err)
		assert.NoError(t, resp.Body.Close())
	})
}

// A Transport above resumes neither a body that the Transport below has given up, nor the response
// of a retry below.
func TestNestedTransportsResumeOnce(t *testing.T) {
	outer := resumes
	outer.OnRetry = func(retryhttp.Attempt) { t.Error("the outer Transport has retried") }
	for name, tc := range map[string]struct {
		inner    retryhttp.Policy
		outer    retryhttp.Policy
		answers  []script.Step
		requests int
	}{
		"given up": {resumes, outer, []script.Step{cutAfter(10), restUntil(10, 10, errLost)}, 4},
		"refused":  {resumes, outer, []script.Step{cutAfter(10), script.Status(404)}, 2},
		"retried":  {noWait, outer, []script.Step{script.Status(503), cutAfter(10)}, 2},
		"given up, above a buffer": {resumes, retryhttp.Policy{BufferBytes: 100, OnRetry: outer.OnRetry},
			[]script.Step{cutAfter(10), restUntil(10, 10, errLost)}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			base := script.New(tc.answers...)
			got, err := download(t, retryhttp.New(base, tc.inner), tc.outer)
			assert.ErrorIs(t, err, errLost)
			assert.Equal(t, object[:10], got)
			assert.Len(t, base.Requests(), tc.requests)
		})
	}

	base := script.New(cutAfter(10), rest(10))
	got, err := download(t, retryhttp.New(base, noWait), resumes)
	require.NoError(t, err, "the inner Transport had done nothing yet")
	assert.Equal(t, object, got)

	base = script.New(cutAfter(10), script.Status(503), restUntil(10, 11, errLost))
	_, err = download(t, retryhttp.New(base, noWait), resumes)
	assert.Equal(t, retryhttp.StopNested, errorOf(t, err).Stop, "the inner Transport has retried a resumption")
	assert.Len(t, base.Requests(), 3)
}

func TestResumptionThatWasGivenUpBelowIsReportedOnce(t *testing.T) {
	var logged strings.Builder
	p := resumes
	p.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelWarn}))
	_, err := download(t, retryhttp.New(script.New(cutAfter(10), script.Status(404)), p), p)
	assert.Equal(t, retryhttp.StopFinal, errorOf(t, err).Stop)
	assert.Equal(t, 1, strings.Count(logged.String(), "gave up"))
}

// failOnce sends a request that fails, and is not retried.
func failOnce(t *testing.T, p retryhttp.Policy, answer script.Step) {
	t.Helper()
	p.MaxAttempts = 1
	resp, err := retryhttp.New(script.New(answer), p).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
}

func TestBreakIsAFailureOfItsHost(t *testing.T) {
	for failures, held := range map[int]bool{6: false, 7: true} {
		synctest.Test(t, func(t *testing.T) {
			p := resumes
			p.Gate = &retryhttp.Gate{}
			p.Backoff = retryhttp.Constant(200 * time.Millisecond)
			base := script.New(cutAfter(10), rest(10))
			resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
			go func() {
				for range failures {
					time.Sleep(20 * time.Millisecond)
					failOnce(t, p, script.Status(503))
				}
			}()
			_, err = io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Equal(t, held, base.Waits()[0] > 200*time.Millisecond, "after the break and %d failures", failures)
		})
	}
}

func TestResumptionWaitsWhileItsHostIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := resumes
		p.Gate = &retryhttp.Gate{}
		base := script.New(cutAfter(10), rest(10))
		resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		failOnce(t, p, script.Status(429, "Retry-After", "3"))
		_, err = io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, base.Waits()[0], 3*time.Second)
	})
}

// The answers to resumptions are results of their host like others.
func TestResumptionThatIsRefusedClosesItsHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := resumes
		p.Gate = &retryhttp.Gate{}
		p.MaxAttempts = 2
		_, err := download(t, script.New(cutAfter(10), script.Status(429, "Retry-After", "3")), p)
		require.ErrorIs(t, err, errLost)
		base := script.New(script.Status(500), script.Status(200))
		_, err = download(t, base, p)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, base.Waits()[0], 3*time.Second)
	})
}
