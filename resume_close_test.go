package retryhttp_test

import (
	"context"
	"errors"
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
	resp := opened(t, base, p)
	began := time.Now()
	time.AfterFunc(time.Second, func() { assert.NoError(t, resp.Body.Close()) })
	_, err := io.ReadAll(resp.Body)
	took := time.Since(began)
	_, again := resp.Body.Read(make([]byte, 1))
	assert.Error(t, again)
	assert.NoError(t, resp.Body.Close(), "callers often close twice")
	return took, err
}

func TestCloseEndsAResumption(t *testing.T) {
	var late *piece
	type testCase struct {
		backoff  time.Duration
		answer   script.Step
		took     time.Duration
		requests int
		refunded int
	}
	inBubbles(t, map[string]testCase{
		"it waits":        {time.Minute, nil, time.Second, 1, 1},
		"it is under way": {0, untilItEnds, time.Second, 2, 0},
		// A base may answer although its context has ended.
		"it is answered late": {0, edited(rest(10), func(r *http.Response) {
			time.Sleep(2 * time.Second)
			late = r.Body.(*piece)
		}), 2 * time.Second, 2, 0},
	}, func(t *testing.T, c testCase) {
		budget := &countingBudget{}
		p := resumes
		p.Budget, p.Backoff = budget, retryhttp.Constant(c.backoff)
		base := script.New(cutAfter(10), c.answer)
		took, err := closedWhile(t, base, p)
		assert.Equal(t, c.took, took)
		assert.Equal(t, http.ErrBodyReadAfterClose, err)
		assert.Len(t, base.Requests(), c.requests)
		assert.Equal(t, c.refunded, budget.refunded)
	})
	assert.EqualValues(t, 1, late.closes.Load())
}

// net/http lets a caller use its request again once the body is closed. A base, such as one that
// logs, may still look at the request of a resumption.
func TestResumptionDoesNotUseTheRequestAfterClose(t *testing.T) {
	for name, key := range map[string]func(*http.Request) string{"as it is": nil, "with a key": retryhttp.RandomKey} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				req := get(t, t.Context())
				req.Header.Set("Trace", "first")
				var before, after *http.Request
				base := script.New(cutAfter(10), func(sent *http.Request) (*http.Response, error) {
					before = sent.Clone(t.Context())
					time.Sleep(time.Minute) // until the caller uses the request again
					after = sent
					return nil, errBroken
				})
				p := resumes
				p.IdempotencyKey = key
				p.Idempotent = func(r *http.Request) bool { return key == nil || r.Header.Get("Idempotency-Key") != "" }
				p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
					assert.Equal(t, "first", a.Request.Header.Get("Trace"))
					return retryhttp.Classify(a)
				}
				resp, err := retryhttp.New(base, p).RoundTrip(req)
				require.NoError(t, err)
				sentKey := base.Requests()[0].Header.Get("Idempotency-Key")
				assert.Equal(t, key != nil, sentKey != "")
				time.AfterFunc(time.Second, func() {
					_ = resp.Body.Close()
					req.URL.Path, req.Method = "/other", "POST"
					req.Header.Set("Trace", "second")
					*req = *req.WithContext(context.WithoutCancel(t.Context()))
				})
				_, err = io.ReadAll(resp.Body)
				assert.Equal(t, http.ErrBodyReadAfterClose, err)
				require.NotNil(t, after)
				assert.Equal(t, before.URL, after.URL)
				assert.Equal(t, before.Header, after.Header)
				assert.Equal(t, sentKey, after.Header.Get("Idempotency-Key"))
			})
		})
	}
}

func TestCloseEndsAReadThatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, base, stop := memnet.ServeProtocol(stalling(0), false)
		defer stop()
		took, err := closedWhile(t, base, resumes)
		assert.Equal(t, time.Second, took)
		assert.Error(t, err)
		assert.NotErrorIs(t, err, io.ErrUnexpectedEOF)
		assert.Equal(t, 1, n.Dials(), "it was not resumed")
	})
}

// The bytes that came with the error are delivered, and then the caller has enough.
func TestCloseAfterABreakIsTheEnd(t *testing.T) {
	body := &bodies.Hooked{OnRead: func(p []byte) (int, error) { return copy(p, object[:10]), errLost }}
	base := script.New(edited(cutAfter(0), func(r *http.Response) { r.Body = body }))
	resp := opened(t, base, resumes)
	n, err := resp.Body.Read(make([]byte, 10))
	require.NoError(t, err)
	require.Equal(t, 10, n)
	require.NoError(t, resp.Body.Close())
	_, err = resp.Body.Read(make([]byte, 10))
	assert.Equal(t, http.ErrBodyReadAfterClose, err)
	assert.Len(t, base.Requests(), 1)
	assert.EqualValues(t, 1, body.Closes.Load())
}

// The error that Close causes in a Read is the body's own. Close may come from another goroutine, and
// the caller may then use its request again.
func TestCloseDuringAReadIsNoBreak(t *testing.T) {
	for name, answer := range map[string]script.Step{"resumable": cutAfter(0), "not resumable": script.Status(200)} {
		synctest.Test(t, func(t *testing.T) {
			freed := make(chan struct{})
			body := &bodies.Hooked{OnClose: func() { close(freed) }}
			body.OnRead = func([]byte) (int, error) { <-freed; return 0, errLost }
			base := edited(answer, func(r *http.Response) { r.Body = body })
			req := get(t, t.Context())
			resp, err := retryhttp.New(base, resumes).RoundTrip(req)
			require.NoError(t, err)
			time.AfterFunc(time.Second, func() {
				_ = resp.Body.Close()
				req.Header.Set("Used", "again")
				req.URL.Path = "/again"
			})
			_, err = resp.Body.Read(make([]byte, 1))
			assert.Equal(t, errLost, err, name)
			assert.EqualValues(t, 1, body.Closes.Load(), name)
		})
	}
}

// A Transport above closes a body that stalls, if that is safe. Between two bodies it is.
func TestDownloadIsClosableWhileReadIfItsBodyIs(t *testing.T) {
	var got *http.Response
	says := func(answer script.Step, closable bool) script.Step {
		return edited(answer, func(r *http.Response) {
			assert.True(t, got == nil || closing.WhileRead(got.Body), "between two bodies")
			r.Body = &mayClose{Hooked: bodies.Hooked{OnRead: r.Body.Read}, closable: closable}
		})
	}
	got = opened(t, script.New(says(cutAfter(10), false), says(rest(10), true)), resumes)
	assert.False(t, closing.WhileRead(got.Body))
	_, err := io.ReadFull(got.Body, make([]byte, 11))
	require.NoError(t, err)
	assert.True(t, closing.WhileRead(got.Body))
}

func TestResumeKeepsNoContext(t *testing.T) {
	for name, tc := range map[string]struct {
		answer script.Step
		ends   func(io.ReadCloser)
	}{
		"closed":          {restUntil(10, 20, io.EOF), func(body io.ReadCloser) { _ = body.Close() }},
		"read to the end": {rest(10), func(body io.ReadCloser) { _, _ = io.ReadAll(body) }},
		"refused":         {script.Status(404), nil},
	} {
		base := script.New(cutAfter(10), tc.answer)
		body := opened(t, base, resumes).Body
		_, _ = io.ReadFull(body, make([]byte, 15))
		ctx := base.Requests()[1].Context()
		if tc.ends != nil {
			assert.NoError(t, ctx.Err(), name)
			tc.ends(body)
		}
		assert.Error(t, ctx.Err(), name)
	}
}

// The bytes of the Read that panicked are lost, so no Read follows that looks like the end.
func TestPanicDuringAResumptionSurfacesAndBreaksTheBodyOff(t *testing.T) {
	budget := &countingBudget{}
	aborts := hookedLogger(func() { panic(http.ErrAbortHandler) })
	unresumable := script.New(script.Respond(200, &bodies.Hooked{OnRead: func([]byte) (int, error) { return 0, errLost }}))
	for name, tc := range map[string]struct {
		base    http.RoundTripper
		budget  retryhttp.Budget
		onRetry func(retryhttp.Attempt)
		logger  *slog.Logger
		then    error
	}{
		"of a hook":   {cutAfter(10), budget, func(retryhttp.Attempt) { panic(http.ErrAbortHandler) }, nil, errLost},
		"of a Budget": {&flaky{16 << 20, []int64{10, 2 << 20}}, refundPanics{}, nil, nil, io.ErrUnexpectedEOF},
		"of a Logger": {unresumable, budget, nil, aborts, errLost},
	} {
		t.Run(name, func(t *testing.T) {
			p := resumes
			p.Budget, p.OnRetry, p.Logger = tc.budget, tc.onRetry, tc.logger
			resp := opened(t, tc.base, p)
			assert.PanicsWithValue(t, http.ErrAbortHandler, func() { _, _ = io.ReadAll(resp.Body) })
			_, err := resp.Body.Read(make([]byte, 1))
			assert.Equal(t, tc.then, err)
			assert.NoError(t, resp.Body.Close())
		})
	}
	assert.Equal(t, 1, budget.refunded)
}

// A Transport above resumes neither a body that the Transport below has given up, nor the response
// of a retry below.
func TestNestedTransportsResumeOnce(t *testing.T) {
	outer := resumes
	outer.OnRetry = func(retryhttp.Attempt) { t.Error("the outer Transport has retried") }
	buffers := retryhttp.Policy{BufferBytes: 100, OnRetry: outer.OnRetry}
	again := restUntil(10, 10, errLost)
	for name, tc := range map[string]struct {
		inner, outer retryhttp.Policy
		answers      []script.Step
		requests     int
	}{
		"given up":                 {resumes, outer, []script.Step{cutAfter(10), again}, 4},
		"refused":                  {resumes, outer, []script.Step{cutAfter(10), script.Status(404)}, 2},
		"retried":                  {noWait, outer, []script.Step{script.Status(503), cutAfter(10)}, 2},
		"given up, above a buffer": {resumes, buffers, []script.Step{cutAfter(10), again}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			base := script.New(tc.answers...)
			got, err := download(t, retryhttp.New(base, tc.inner), tc.outer)
			assert.ErrorIs(t, err, errLost)
			assert.Equal(t, object[:10], got)
			assert.Len(t, base.Requests(), tc.requests)
		})
	}

	base := script.New(cutAfter(10), script.Status(503), restUntil(10, 11, errLost))
	_, err := download(t, retryhttp.New(base, noWait), resumes)
	assert.Equal(t, retryhttp.StopNested, errorOf(t, err).Stop, "the inner Transport has retried a resumption")
	assert.Len(t, base.Requests(), 3)
}

func TestBreakIsAFailureOfItsHost(t *testing.T) {
	for failures, held := range map[int]bool{6: false, 7: true} {
		synctest.Test(t, func(t *testing.T) {
			p := resumes
			p.Gate = &retryhttp.Gate{}
			p.Backoff = retryhttp.Constant(200 * time.Millisecond)
			base := script.New(cutAfter(10), rest(10))
			resp := opened(t, base, p)
			p.MaxAttempts = 1
			go func() {
				for range failures {
					time.Sleep(20 * time.Millisecond)
					_, err := download(t, script.Status(503), p)
					assert.NoError(t, err)
				}
			}()
			_, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Equal(t, held, base.Waits()[0] > 200*time.Millisecond, "after the break and %d failures", failures)
		})
	}
}

// The answers to resumptions are results of their host like others. A resumption is held, too.
func TestResumptionThatIsRefusedClosesItsHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := resumes
		p.Gate = &retryhttp.Gate{}
		p.MaxAttempts = 2
		_, err := download(t, script.New(cutAfter(10), script.Status(429, "Retry-After", "3")), p)
		require.ErrorIs(t, err, errLost)
		base := script.New(cutAfter(10), rest(10))
		_, err = download(t, base, p)
		require.NoError(t, err)
		held := retryhttp.AttemptOf(base.Requests()[1].Context())
		assert.GreaterOrEqual(t, held.Held, 3*time.Second)
		assert.Equal(t, base.Waits()[0], held.Held)
		assert.Zero(t, held.InLine)
	})
}

func TestBreakThatCannotBeResumedIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged strings.Builder
		p := resumes
		p.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
		resp := opened(t, script.New(script.Status(503), sends(200, "x", errLost, "Etag", `"v1"`)), p)
		logged.Reset()
		time.Sleep(time.Second)
		const text = "not resumed: the response has no Content-Length: connection lost"
		for range 2 {
			_, err := io.ReadAll(resp.Body)
			assert.EqualError(t, err, text)
		}
		assert.Equal(t, `level=WARN msg="gave up on response body" method=GET url=http://host.example/path error="`+text+
			`" attempts=2 elapsed=1s waited=0s held=0s stop=final ambiguous=false`+"\n", logged.String())
	})
}

func TestEndOfABodyThatCannotBeResumedIsNoBreak(t *testing.T) {
	gone := errors.New("gone")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := script.Respond(200, &bodies.Hooked{OnRead: func([]byte) (int, error) { cancel(); return 0, gone }})
	for _, tc := range []struct {
		name   string
		answer script.Step
	}{
		{"an early end", sends(200, object[:9], io.EOF, "Content-Length", "36")},
		{"an error after all bytes", sends(200, object, gone, "Content-Length", "36")},
		{"a redirect", sends(302, object, gone, "Location", "/")},
		{"an Error of another kind", sends(200, object, &retryhttp.Error{Err: gone})},
		{"the end of the request's context", ended},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var logged strings.Builder
			p := resumes
			p.Logger = slog.New(slog.NewTextHandler(&logged, nil))
			_, err := readAll(t, tc.answer, p, get(t, ctx))
			assert.NotErrorIs(t, err, retryhttp.ErrNotResumable)
			assert.Empty(t, logged.String())
		})
	}
}

// A tag that is made of a whole second, as by nginx, names every version of that second.
func TestResumeDoesNotTrustTheTagOfAFileThatHasJustChanged(t *testing.T) {
	const now = "Sun, 22 Nov 2026 10:00:00 GMT"
	for name, tc := range map[string]struct {
		header []string
		want   string
	}{
		"two seconds old":           {[]string{"Last-Modified", "Sun, 22 Nov 2026 09:59:58 GMT", "Date", now}, object},
		"a second old":              {[]string{"Last-Modified", "Sun, 22 Nov 2026 09:59:59 GMT", "Date", now}, object[:10]},
		"recent when it was stored": {[]string{"Last-Modified", now, "Date", now, "Age", "60"}, object[:10]},
		"old, without a Date":       {[]string{"Last-Modified", "Fri, 31 Dec 1999 23:59:58 GMT"}, object},
		"recent, without a Date":    {[]string{"Last-Modified", "Fri, 31 Dec 1999 23:59:59 GMT"}, object[:10]},
		"no date":                   {[]string{"Last-Modified", "yesterday", "Date", now}, object},
	} {
		synctest.Test(t, func(t *testing.T) { // on 1 January 2000
			got, err := download(t, script.New(cutAfter(10, tc.header...), rest(10, tc.header...)), resumes)
			assert.Equal(t, tc.want, got, name)
			assert.Equal(t, tc.want == object, err == nil, name)
		})
	}
}
