package retryhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/closing"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
	synctest.Test(t, func(t *testing.T) {
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
	})
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

// The bytes of the Read that panicked are lost, so no Read follows that looks like the end.
func TestPanicOfABudgetDuringAResumptionBreaksTheBodyOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := resumes
		p.Budget = refundPanics{}
		resp, err := retryhttp.New(large(10, 2<<20), p).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		assert.PanicsWithValue(t, http.ErrAbortHandler, func() { _, _ = io.ReadAll(resp.Body) })
		_, err = resp.Body.Read(make([]byte, 1))
		assert.Equal(t, io.ErrUnexpectedEOF, err)
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

func TestBreakThatCannotBeResumedIsLogged(t *testing.T) {
	for name, tc := range map[string]struct {
		answer script.Step
		why    string
	}{
		"no length":     {sends(200, "x", errLost, "Etag", `"v1"`), "the response has no Content-Length"},
		"weak tag":      {cutAfter(1, "Etag", "W/x"), "the response has neither a strong ETag, nor an old Last-Modified alone"},
		"no ranges":     {cutAfter(1, "Accept-Ranges", "none"), "the server accepts no ranges"},
		"another range": {restUntil(0, 1, errLost), "the response is neither a 200 without a Content-Range, nor the range that was asked for"},
		"just changed": {cutAfter(1, "Date", "Sun, 22 Nov 2026 10:00:00 GMT", "Last-Modified", "Sun, 22 Nov 2026 10:00:00 GMT"),
			"the file had just changed, and another change may keep its ETag"},
		"decompressed": {func(req *http.Request) (*http.Response, error) {
			resp, err := cutAfter(1)(req)
			resp.Uncompressed = true
			return resp, err
		}, "the response was decompressed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var logged strings.Builder
				p := resumes
				p.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
				resp, err := retryhttp.New(script.New(script.Status(503), tc.answer), p).RoundTrip(get(t, t.Context()))
				require.NoError(t, err)
				logged.Reset()
				time.Sleep(time.Second)
				for range 2 {
					_, err = io.ReadAll(resp.Body)
					assert.EqualError(t, err, "not resumed: "+tc.why+": connection lost")
				}
				assert.Equal(t, `level=WARN msg="gave up on response body" method=GET url=http://host.example/path error="not resumed: `+
					tc.why+`: connection lost" attempts=2 elapsed=1s waited=0s held=0s stop=final ambiguous=false`+"\n", logged.String())
			})
		})
	}
}

// The error is as good as the body's own.
func TestBreakThatCannotBeResumedKeepsItsError(t *testing.T) {
	for _, broke := range []error{io.ErrUnexpectedEOF, context.DeadlineExceeded} {
		_, err := download(t, script.New(sends(200, "x", broke)), resumes)
		assert.ErrorIs(t, err, broke)
		assert.ErrorIs(t, err, retryhttp.ErrNotResumable)
		var timeout interface{ Timeout() bool }
		require.ErrorAs(t, err, &timeout)
		assert.Equal(t, broke == context.DeadlineExceeded, timeout.Timeout())
	}
}

func TestEndOfABodyThatCannotBeResumedIsNoBreak(t *testing.T) {
	gone := errors.New("gone")
	for name, answer := range map[string]script.Step{
		"the end":                     sends(200, object, io.EOF),
		"an early end":                sends(200, object[:9], io.EOF, "Content-Length", "36"),
		"an error after all bytes":    sends(200, object, gone, "Content-Length", "36"),
		"a redirect":                  sends(302, object, gone, "Location", "/"),
		"an Error of another kind":    sends(200, object, &retryhttp.Error{Err: gone}),
		"a request's own end of time": nil,
	} {
		t.Run(name, func(t *testing.T) {
			var logged strings.Builder
			p := resumes
			p.Logger = slog.New(slog.NewTextHandler(&logged, nil))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if answer == nil {
				answer = func(req *http.Request) (*http.Response, error) {
					return script.Respond(200, &bodies.Hooked{OnRead: func([]byte) (int, error) { cancel(); return 0, gone }})(req)
				}
			}
			_, err := readAll(t, script.New(answer), p, get(t, ctx))
			assert.NotErrorIs(t, err, retryhttp.ErrNotResumable)
			assert.Empty(t, logged.String())
		})
	}
}

// Close may come from another goroutine, and the caller may then use its request again.
func TestCloseOfABodyThatCannotBeResumedIsNoBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		freed := make(chan struct{})
		body := &bodies.Hooked{OnClose: func() { close(freed) }}
		body.OnRead = func([]byte) (int, error) { <-freed; return 0, errLost }
		req := get(t, t.Context())
		resp, err := retryhttp.New(script.New(script.Respond(200, body)), resumes).RoundTrip(req)
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() {
			_ = resp.Body.Close()
			req.Header.Set("Used", "again")
			req.URL.Path = "/again"
		})
		_, err = resp.Body.Read(make([]byte, 1))
		assert.Equal(t, errLost, err)
		assert.EqualValues(t, 1, body.Closes.Load())
	})
}

func TestResumptionByDateSaysWhetherTheFileHasChanged(t *testing.T) {
	const (
		date   = "Sun, 22 Nov 2026 10:00:00 GMT"
		before = "Sun, 22 Nov 2026 09:50:00 GMT"
		later  = "Sun, 22 Nov 2026 09:55:00 GMT"
	)
	first := sends(200, object[:10], errLost, "Content-Length", "36", "Last-Modified", before, "Date", date)
	for name, tc := range map[string]struct {
		answer script.Step
		want   error
	}{
		"all, of another date":      {sends(200, object, io.EOF, "Content-Length", "36", "Last-Modified", later), retryhttp.ErrChanged},
		"all, of the same date":     {sends(200, object, io.EOF, "Content-Length", "36", "Last-Modified", before), retryhttp.ErrNotResumable},
		"all, of another length":    {sends(200, object, io.EOF, "Content-Length", "35", "Last-Modified", before), retryhttp.ErrChanged},
		"a part of another date":    {rest(10, "Last-Modified", later), retryhttp.ErrChanged},
		"a part without a date":     {sends(206, object[10:], io.EOF, "Content-Range", rangeFrom(10)), retryhttp.ErrNotResumable},
		"a part with a tag as well": {rest(10, "Last-Modified", before), retryhttp.ErrNotResumable},
	} {
		_, err := download(t, script.New(first, tc.answer), resumes)
		assert.ErrorIs(t, err, errLost, name)
		for _, target := range []error{retryhttp.ErrChanged, retryhttp.ErrNotResumable} {
			assert.Equal(t, target == tc.want, errors.Is(err, target), name)
		}
	}
}

// renamed is a file that is replaced by files of its size. Its tag is made of its time in whole
// seconds and of its size, as by nginx. The first answer breaks off after 10 bytes.
type renamed struct {
	content  string
	modified time.Time
	requests int
}

func (f *renamed) replace(content string) { f.content, f.modified = content, time.Now() }

func (f *renamed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Etag", fmt.Sprintf(`"%x-%x"`, f.modified.Unix(), len(f.content)))
	if f.requests++; f.requests == 1 {
		w = &stoppedWriter{w, 10}
	}
	http.ServeContent(w, r, "", f.modified, strings.NewReader(f.content))
}

// stoppedWriter sends left bytes, and ends the connection.
type stoppedWriter struct {
	http.ResponseWriter
	left int
}

func (w *stoppedWriter) Write(p []byte) (int, error) {
	_, _ = w.ResponseWriter.Write(p[:w.left])
	_ = http.NewResponseController(w.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}

// A tag that is made of a whole second names every version of that second.
func TestResumeDoesNotTrustTheTagOfAFileThatHasJustChanged(t *testing.T) {
	for asked, resumed := range map[time.Duration]bool{
		200 * time.Millisecond: false, 1999 * time.Millisecond: false, 2 * time.Second: true, time.Hour: true,
	} {
		t.Run(asked.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				file := &renamed{}
				file.replace(object)
				_, base, stop := memnet.Serve(file)
				defer stop()
				time.Sleep(asked)
				p := resumes
				p.Backoff = retryhttp.Constant(300 * time.Millisecond)
				if asked < time.Second {
					p.OnRetry = func(retryhttp.Attempt) { file.replace(strings.ToUpper(object)) }
				}
				got, err := download(t, base, p)
				if resumed {
					require.NoError(t, err)
					assert.Equal(t, object, got)
					assert.Equal(t, 2, file.requests)
					return
				}
				assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
				assert.Equal(t, object[:10], got)
				assert.Equal(t, 1, file.requests)
			})
		})
	}
}

func TestResumeByTagHeedsLastModified(t *testing.T) {
	const now = "Sun, 22 Nov 2026 10:00:00 GMT"
	for name, tc := range map[string]struct {
		header  []string
		resumed bool
	}{
		"two seconds old":              {[]string{"Last-Modified", "Sun, 22 Nov 2026 09:59:58 GMT", "Date", now}, true},
		"a second old":                 {[]string{"Last-Modified", "Sun, 22 Nov 2026 09:59:59 GMT", "Date", now}, false},
		"as old as the answer":         {[]string{"Last-Modified", now, "Date", now}, false},
		"of the future":                {[]string{"Last-Modified", "Sun, 22 Nov 2026 10:00:01 GMT", "Date", now}, false},
		"recent when it was stored":    {[]string{"Last-Modified", "Sun, 22 Nov 2026 09:59:59 GMT", "Date", now, "Age", "60"}, false},
		"old, without a Date":          {[]string{"Last-Modified", "Fri, 31 Dec 1999 23:59:58 GMT"}, true},
		"recent, without a Date":       {[]string{"Last-Modified", "Fri, 31 Dec 1999 23:59:59 GMT"}, false},
		"no date":                      {[]string{"Last-Modified", "yesterday", "Date", now}, true},
		"none, though there is a Date": {[]string{"Date", now}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // on 1 January 2000
				base := script.New(cutAfter(10, tc.header...), rest(10))
				got, err := download(t, base, resumes)
				if tc.resumed {
					require.NoError(t, err)
					assert.Equal(t, object, got)
				} else {
					assert.ErrorIs(t, err, errLost)
					assert.Len(t, base.Requests(), 1)
				}
			})
		})
	}
}
