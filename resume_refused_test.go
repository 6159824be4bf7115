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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

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

// The race detector finds a report that reads the caller's request.
func TestReportOfABreakThatCannotBeResumedUsesACopyOfTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged strings.Builder
		p := resumes
		p.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				time.Sleep(time.Minute) // until the caller uses the request again
			}
			return a
		}}))
		req := get(t, t.Context())
		resp, err := retryhttp.New(script.New(sends(200, "x", errLost)), p).RoundTrip(req)
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() {
			_ = resp.Body.Close()
			req.URL.Path, req.Method = "/again", "POST"
		})
		_, err = io.ReadAll(resp.Body)
		assert.ErrorIs(t, err, errLost)
		assert.Contains(t, logged.String(), "method=GET url=http://host.example/path")
	})
}

// The inner Transport has tried nothing, so the outer may try again.
func TestBreakThatCannotBeResumedIsRetriedAboveByABuffer(t *testing.T) {
	base := script.New(sends(200, object[:9], errLost), sends(200, object, io.EOF))
	got, err := download(t, retryhttp.New(base, resumes), buffers)
	require.NoError(t, err)
	assert.Equal(t, object, got)
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
