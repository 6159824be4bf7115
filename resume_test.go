package retryhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
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

func TestResumeLeavesTheResponseAsItWas(t *testing.T) {
	var done int
	p := resumes
	p.OnDone = func(a retryhttp.Attempt, o retryhttp.Outcome) {
		done++
		assert.Equal(t, 2, o.Attempts)
		assert.Zero(t, a.Offset)
	}
	base := script.New(script.Status(503), cutAfter(10, "Date", "today"), rest(10, "Date", "tomorrow"))
	resp := opened(t, base, p)
	_, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, 1, done)
	assert.Equal(t, 200, resp.StatusCode)
	assert.Equal(t, "today", resp.Header.Get("Date"))
	assert.EqualValues(t, len(object), resp.ContentLength)
	o := retryhttp.OutcomeOf(resp)
	assert.Equal(t, 2, o.Attempts)
	assert.Equal(t, retryhttp.StopFinal, o.Stop)
}

func TestResumeIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := func(req *http.Request) (*http.Response, error) {
			time.Sleep(time.Minute)
			return script.Response(req, 503), nil
		}
		base := script.New(cutAfter(10), busy, restUntil(10, 20, errLost), rest(20, "Etag", `"v2"`))
		var retries []string
		var logged strings.Builder
		p := resumes
		p.Backoff = retryhttp.Linear(time.Second, 0)
		p.OnRetry = func(a retryhttp.Attempt) {
			result := fmt.Sprint(a.Err)
			if a.Response != nil {
				result = fmt.Sprint(a.Response.StatusCode)
			}
			retries = append(retries, fmt.Sprint(a.Number, " at ", a.Offset, ": ", result, ", ", a.Wait))
			assert.Equal(t, base.Requests()[a.Number-1].Header, a.Request.Header)
		}
		p.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
		_, err := download(t, base, p)
		require.ErrorIs(t, err, errLost)
		want := []string{"1 at 10: connection lost, 1s", "2 at 10: 503, 2s", "3 at 20: connection lost, 3s"}
		assert.Equal(t, want, retries)
		assert.Equal(t, `level=INFO msg="retrying request" method=GET url=http://host.example/path error="connection lost" attempt=1 elapsed=0s wait=1s offset=10
level=INFO msg="retrying request" method=GET url=http://host.example/path status=503 attempt=2 elapsed=1m0s wait=2s offset=10
level=INFO msg="retrying request" method=GET url=http://host.example/path error="connection lost" attempt=3 elapsed=0s wait=3s offset=20
level=WARN msg="gave up on response body" method=GET url=http://host.example/path error="not resumed: the answer has no strong ETag: connection lost" attempts=4 elapsed=1m6s waited=6s held=0s stop=final ambiguous=false offset=20
`, logged.String())
	})
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// Each of these answers to a request for the bytes from 10 on is taken, or is refused.
func TestResumeTakesTheSameRepresentationAlone(t *testing.T) {
	refused, changed := retryhttp.ErrNotResumable, retryhttp.ErrChanged
	const (
		date   = "Sun, 22 Nov 2026 10:00:00 GMT"
		before = "Sun, 22 Nov 2026 09:50:00 GMT"
	)
	brotli := []string{"Content-Encoding", "br"}
	related := []string{"Content-Type", "multipart/related; boundary=x"}
	byTag := cutAfter(10)
	byDate := sends(200, object[:10], errLost, "Content-Length", "36", "Last-Modified", before, "Date", date)
	for name, tc := range map[string]struct {
		first  script.Step
		answer script.Step
		want   error
	}{
		"encoded like the first response":              {cutAfter(10, brotli...), rest(10, brotli...), nil},
		"of an object that is of several parts itself": {cutAfter(10, related...), rest(10, related...), nil},

		"in several parts":      {byTag, rest(10, "Content-Type", "Multipart/byteranges; boundary=x"), refused},
		"404":                   {byTag, script.Status(404), refused},
		"all, of the same date": {byDate, sends(200, object, io.EOF, "Last-Modified", before), refused},
		"a part without a date": {byDate, sends(206, object[10:], io.EOF, "Content-Range", rangeFrom(10)), refused},

		"another tag, and no range": {byTag, sends(206, object[10:], io.EOF, "Etag", `"v2"`), changed},
		"all, of another length":    {byTag, sends(200, object+"!", io.EOF, "Content-Length", "37", "Etag", `"v1"`), changed},
		"all, of another date":      {byDate, sends(200, object, io.EOF, "Last-Modified", date), changed},
	} {
		base := script.New(tc.first, tc.answer)
		got, err := download(t, base, resumes)
		assert.Len(t, base.Requests(), 2, name)
		if tc.want == nil {
			assert.NoError(t, err, name)
			assert.Equal(t, object, got, name)
			continue
		}
		assert.Equal(t, object[:10], got, name)
		assert.ErrorIs(t, err, errLost, name)
		for _, target := range []error{refused, changed} {
			assert.Equal(t, target == tc.want, errors.Is(err, target), name)
		}
	}
}

func TestResumeOfNoBody(t *testing.T) {
	resp := opened(t, edited(script.Status(200), func(r *http.Response) { r.Body = nil }), resumes)
	assert.Nil(t, resp.Body)

	resp, err := retryhttp.New(script.Fail(retryhttp.Permanent(errBroken)), resumes).RoundTrip(get(t, t.Context()))
	assert.Nil(t, resp)
	assert.ErrorIs(t, err, errBroken)
}

// Attempt.Offset is a position in the file, also if the caller asked for a part of it.
func TestResumeOfACallersRange(t *testing.T) {
	for _, tc := range []struct {
		asked, answered, resumed string
		offset                   int64
	}{
		{"bytes=5-14", "bytes 5-14/36", "bytes=8-14", 8},
		{"bytes=-10", "bytes 26-35/*", "bytes=29-35", 29},
	} {
		base := script.New(
			sends(206, "abc", errLost, "Content-Range", tc.answered, "Etag", `"v1"`),
			script.Status(404),
		)
		req := get(t, t.Context())
		req.Header = http.Header{
			"range": {tc.asked}, "if-range": {`"v1"`}, "If-Match": {`"v0", "v1"`},
			"If-None-Match": {`"v9"`}, "accept-encoding": {"br"}, "Authorization": {"secret"},
		}
		p := resumes
		p.OnRetry = func(a retryhttp.Attempt) { assert.Equal(t, tc.offset, a.Offset) }
		_, err := readAll(t, base, p, req)
		require.ErrorIs(t, err, errLost)
		require.Len(t, base.Requests(), 2)
		assert.Equal(t, http.Header{
			"Range": {tc.resumed}, "If-Range": {`"v1"`}, "If-Match": {`"v1"`},
			"If-None-Match": {`"v9"`}, "accept-encoding": {"br"}, "Authorization": {"secret"},
		}, base.Requests()[1].Header)
	}
}

func TestResumeByDate(t *testing.T) {
	const (
		date   = "Sun, 22 Nov 2026 10:00:00 GMT"
		minute = "Sun, 22 Nov 2026 09:59:00 GMT"
		less   = "Sun, 22 Nov 2026 09:59:01 GMT"
	)
	for modified, want := range map[string]string{minute: object, less: object[:10], "yesterday": object[:10]} {
		base := script.New(
			sends(200, object[:10], errLost, "Content-Length", "36", "Last-Modified", modified, "Date", date),
			sends(206, object[10:], io.EOF, "Content-Range", rangeFrom(10), "Last-Modified", modified),
		)
		req := get(t, t.Context())
		req.Header = http.Header{"If-Unmodified-Since": {date}, "If-Match": {"*"}}
		got, err := readAll(t, base, resumes, req)
		assert.Equal(t, want, got)
		if want != object {
			assert.ErrorIs(t, err, errLost, modified)
			assert.Len(t, base.Requests(), 1)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, http.Header{
			"Range": {"bytes=10-35"}, "If-Range": {minute}, "If-Unmodified-Since": {minute}, "If-Match": {"*"},
			"Accept-Encoding": {"identity"},
		}, base.Requests()[1].Header)
	}
}

// A body that the caller rules out is handed over as it came. A body that the server does not let
// be resumed is read to the same error, which says so.
func TestResumeLeavesOtherBodiesAlone(t *testing.T) {
	post := func(req *http.Request) { req.Method = "POST"; req.Header.Set("Idempotency-Key", "k") }
	head := func(req *http.Request) { req.Method = "HEAD" }
	query := func(req *http.Request) { req.Body = io.NopCloser(strings.NewReader("query")) }
	once := func(req *http.Request) {
		ctx := retryhttp.WithPolicy(req.Context(), func(p *retryhttp.Policy) { p.MaxAttempts = 1 })
		*req = *req.WithContext(ctx)
	}
	ranged := func(req *http.Request) { req.Header.Set("Range", "bytes=0-9") }
	asIs := func(*http.Request) {}
	for name, tc := range map[string]struct {
		edit     func(*http.Request)
		answer   script.Step
		ruledOut bool // by the caller
	}{
		"POST":                  {post, cutAfter(10), true},
		"HEAD":                  {head, cutAfter(0), true},
		"GET with a body":       {query, cutAfter(10), true},
		"MaxAttempts 1":         {once, cutAfter(10), true},
		"no validator":          {asIs, sends(200, object[:9], errLost, "Content-Length", "36"), false},
		"two tags":              {asIs, cutAfter(10, "Etag", `"v1"`), false},
		"206 without its range": {ranged, sends(206, object[:9], errLost, "Etag", `"v1"`), false},
		"206 of several ranges": {ranged, restUntil(0, 9, errLost, "Content-Type", "multipart/byteranges"), false},
	} {
		t.Run(name, func(t *testing.T) {
			base := script.New(tc.answer)
			req := get(t, t.Context())
			tc.edit(req)
			resp := responseTo(t, base, resumes, req)
			_, err := io.ReadAll(resp.Body)
			assert.Len(t, base.Requests(), 1)
			if tc.ruledOut {
				assert.IsType(t, &piece{}, resp.Body)
				assert.Equal(t, errLost, err)
				return
			}
			assert.ErrorIs(t, err, errLost)
			assert.ErrorIs(t, err, retryhttp.ErrNotResumable)
			assert.NotErrorIs(t, err, retryhttp.ErrChanged)
			assert.NotErrorAs(t, err, new(*retryhttp.Error), "nothing was tried")
		})
	}
}

// Some servers close the connection where the body ends, and some bodies end short of it.
func TestResumeTrustsTheLengthAndNotTheEnd(t *testing.T) {
	whole := func(text string, end error) script.Step {
		return sends(200, text, end, "Content-Length", "36", "Etag", `"v1"`)
	}
	shorter := sends(206, object[10:20]+"more", io.EOF, "Content-Range", "bytes 10-19/36", "Etag", `"v1"`)
	noBody := edited(rest(10), func(r *http.Response) { r.Body = nil })
	lost := &net.OpError{Op: "read", Err: errLost}
	gone := script.Status(404)
	type steps []script.Step
	for name, tc := range map[string]struct {
		answers steps
		want    string
		err     error
	}{
		"the connection ends after all bytes": {steps{whole(object, lost)}, object, nil},
		"an early end":                        {steps{whole(object[:9], io.EOF), gone}, object[:9], io.ErrUnexpectedEOF},
		"more than the length, and a break":   {steps{whole(object+"more", errLost)}, object + "more", errLost},
		"more than the length, and an end":    {steps{whole(object+"more", io.EOF)}, object + "more", nil},
		"the end of a shorter range":          {steps{cutAfter(10), shorter, gone}, object[:20], io.ErrUnexpectedEOF},
		"a resumption without a body":         {steps{cutAfter(10), noBody, rest(10)}, object, nil},
	} {
		base := script.New(tc.answers...)
		got, err := download(t, base, resumes)
		assert.Equal(t, tc.want, got, name)
		assert.ErrorIs(t, err, tc.err, name)
		assert.NotErrorIs(t, err, io.EOF, name)
		assert.Len(t, base.Requests(), len(tc.answers), name)
	}
}

// A RoundTripper below that verifies a digest returns its error where the bytes end.
func TestErrorOfAVerifierIsNotTheEnd(t *testing.T) {
	errDigest := errors.New("digest mismatch")
	once := retryhttp.Policy{BufferBytes: 100, MaxAttempts: 1}
	for name, p := range map[string]retryhttp.Policy{"resume": resumes, "buffer": once} {
		base := script.New(sends(200, object, errDigest, "Content-Length", "36", "Etag", `"v1"`))
		got, err := download(t, base, p)
		assert.Equal(t, errDigest, err, name)
		assert.Equal(t, object, got)
		assert.Len(t, base.Requests(), 1)
	}
	base := script.New(cutAfter(10), restUntil(10, 36, errDigest))
	_, err := download(t, base, resumes)
	assert.Equal(t, errDigest, err)
	assert.Len(t, base.Requests(), 2)
}

func TestResumeCountsAnewAfterAMebibyte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const enough = 1 << 20
		base := script.New((&flaky{16 << 20, []int64{enough, 100, 100, enough, enough - 1, enough, 0}}).RoundTrip)
		var backoffs []int
		p := resumes
		p.Backoff = func(n int, prev time.Duration) time.Duration {
			backoffs = append(backoffs, n)
			assert.Equal(t, time.Duration(n-1)*time.Second, prev)
			return time.Duration(n) * time.Second
		}
		p.MaxElapsed = 6 * time.Second // as long as three waits take
		_, err := download(t, base, p)
		assert.ErrorIs(t, err, errLost)
		assert.Equal(t, retryhttp.StopAttempts, errorOf(t, err).Stop)
		assert.Equal(t, []int{1, 2, 3, 1, 2, 1, 2, 3}, backoffs)
		assert.Equal(t, seconds(1, 2, 3, 1, 2, 1, 2, 3), base.Waits())
	})
}

func TestResumeEndsAfterMaxElapsedSinceTheBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := &counted{Budget: retryhttp.Unlimited{}}
		p := resumes
		p.Budget = budget
		p.MaxAttempts = -1
		p.MaxElapsed = 5 * time.Second
		p.Backoff = retryhttp.Constant(2 * time.Second)
		base := script.New(cutAfter(10), restUntil(10, 10, errLost))
		resp := opened(t, base, p)
		time.Sleep(time.Hour) // a caller that reads slowly
		_, err := io.ReadAll(resp.Body)
		assert.ErrorIs(t, err, errLost)
		e := errorOf(t, err)
		assert.Equal(t, retryhttp.StopDeadline, e.Stop)
		assert.Equal(t, seconds(3602, 2), base.Waits())
		assert.Equal(t, time.Hour+4*time.Second, e.Elapsed)
		assert.Equal(t, 4*time.Second, e.Waited)
		assert.EqualValues(t, 1, budget.failures.Load(), "the failure that ends a download counts, too")
	})
}

// 408, 429 and 5xx are failed attempts, whatever the Policy makes of them.
func TestResumeWaitsAsItIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := resumes
		p.MaxAttempts = 9
		p.Gate = &retryhttp.Gate{Hold: -1}
		p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
			assert.True(t, a.Err != nil || a.Response.StatusCode == 200, "of no resumption")
			assert.Equal(t, a.Err != nil, a.Offset == 10)
			return retryhttp.Classify(a)
		}
		base := script.New(cutAfter(10),
			script.Status(503, "Retry-After", "2"), script.Status(429), script.Status(408), script.Status(599),
			script.Fail(errBroken), rest(10))
		requireBodyIs(t, object, opened(t, base, p))
		waits := base.Waits()
		require.Len(t, waits, 6)
		assert.GreaterOrEqual(t, waits[1], 2*time.Second)
		assert.LessOrEqual(t, waits[1], 3*time.Second)
		assert.Equal(t, seconds(0, 0, 0, 0), waits[2:])
	})
}

func TestResumeReportsTheLastFailure(t *testing.T) {
	asIs := func(*retryhttp.Policy) {}
	twice := func(p *retryhttp.Policy) { p.MaxAttempts = 2 }
	timed := func(p *retryhttp.Policy) { p.MaxAttempts, p.AttemptTimeout = 2, time.Second }
	refused := func(p *retryhttp.Policy) { p.Budget = &countingBudget{refuse: true} }
	notIdempotent := func(p *retryhttp.Policy) { p.Idempotent = func(*http.Request) bool { return false } }
	limited := edited(cutAfter(36), func(r *http.Response) { r.Body = http.MaxBytesReader(nil, r.Body, 10) })
	type steps []script.Step
	type testCase struct {
		answers steps
		edit    func(*retryhttp.Policy)
		stop    retryhttp.Stop
		text    string
	}
	inBubbles(t, map[string]testCase{
		"a status": {steps{cutAfter(10), script.Status(503)}, twice, retryhttp.StopAttempts,
			"gave up after 2 attempts in 0s (attempts): not resumed: the last response was 503 Service Unavailable: connection lost"},
		"a time limit": {steps{cutAfter(10), untilItEnds}, timed, retryhttp.StopAttempts,
			"gave up after 2 attempts in 1s (attempts): not resumed: no response header within 1s: connection lost"},
		"a refusal": {steps{cutAfter(10), script.Status(412)}, asIs, retryhttp.StopFinal,
			"gave up after 2 attempts in 0s (final): not resumed: the file has changed: the answer was 412 Precondition Failed: connection lost"},
		"another break": {steps{cutAfter(10), restUntil(10, 10, io.ErrUnexpectedEOF)}, twice, retryhttp.StopAttempts,
			"gave up after 2 attempts in 0s (attempts): unexpected EOF"},
		"a spent budget": {steps{cutAfter(10)}, refused, retryhttp.StopBudget, "connection lost"},
		"a limit below":  {steps{limited}, asIs, retryhttp.StopFinal, "http: request body too large"},
		"not idempotent": {steps{cutAfter(10)}, notIdempotent, retryhttp.StopNotIdempotent, "connection lost"},
	}, func(t *testing.T, tc testCase) {
		p := resumes
		tc.edit(&p)
		base := script.New(tc.answers...)
		resp := opened(t, base, p)
		got, err := io.ReadAll(resp.Body)
		assert.Equal(t, object[:10], string(got))
		assert.Len(t, base.Requests(), len(tc.answers))
		e := errorOf(t, err)
		assert.Equal(t, tc.stop, e.Stop)
		assert.Equal(t, tc.text, e.Error())
		assert.Equal(t, strings.Contains(tc.text, "the file has changed"), errors.Is(err, retryhttp.ErrChanged))
		assert.NotErrorIs(t, err, retryhttp.ErrNotResumable)
		if broken, ok := e.Err.(interface{ Unwrap() []error }); ok {
			assert.NotContains(t, broken.Unwrap(), nil, "code that walks the errors does not expect it")
		}
		_, again := resp.Body.Read(make([]byte, 1))
		assert.Same(t, err, again)
	})
}

func TestBreakThatWasNotResumedIsTemporaryOrATimeoutIfOneOfItsErrorsIs(t *testing.T) {
	lost := &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET} // says that it is neither
	temporary := &net.DNSError{Err: "server misbehaving", Name: "host", IsTemporary: true}
	timeout := &net.DNSError{Err: "i/o timeout", Name: "host", IsTimeout: true}
	p := resumes
	p.MaxAttempts = 2
	for _, tc := range []struct {
		broke, resumption    error
		isTemporary, isTimed bool
	}{
		{temporary, lost, true, false},
		{lost, temporary, true, false},
		{timeout, lost, true, true},
		{lost, timeout, true, true},
		{lost, errBroken, false, false},
	} {
		first := sends(200, object[:9], tc.broke, "Content-Length", "36", "Etag", `"v1"`)
		_, err := download(t, script.New(first, script.Fail(tc.resumption)), p)
		require.ErrorIs(t, err, tc.broke)
		require.ErrorIs(t, err, tc.resumption)
		assert.Equal(t, tc.isTemporary, errorOf(t, err).Temporary(), err)
		assert.Equal(t, tc.isTimed, errorOf(t, err).Timeout(), err)
	}
}

func TestResumeAtTheDeadlineIsATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var logged strings.Builder
		p := resumes
		p.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelWarn}))
		_, err := readAll(t, script.New(cutAfter(10), untilItEnds), p, get(t, ctx))
		assert.Empty(t, logged.String())
		e := errorOf(t, err)
		assert.Equal(t, retryhttp.StopCanceled, e.Stop)
		assert.True(t, e.Timeout())
		assert.ErrorIs(t, err, errLost)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestBreakCountsTheWaitsBeforeItsResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := resumes
		p.Backoff = retryhttp.Constant(time.Second)
		_, err := download(t, script.New(script.Status(503), script.Status(503), cutAfter(10), script.Status(404)), p)
		e := errorOf(t, err)
		assert.Equal(t, 4, e.Attempts)
		assert.Equal(t, 3*time.Second, e.Waited)
		assert.Equal(t, 3*time.Second, e.Elapsed)
	})
}

// A server may send all of the file again. What the caller has is dropped, even if a Read in between brings nothing
// or less, or panics in a caller that reads on. After the last byte, a Read that brings nothing is no end: the end is
// still to be read, so that the connection is free.
func TestBytesBeforeTheOffsetAreDroppedReadByRead(t *testing.T) {
	reads := 0
	again := edited(sends(200, object, io.EOF, "Content-Length", "36", "Etag", `"v1"`), func(resp *http.Response) {
		file := resp.Body
		resp.Body = &bodies.Hooked{OnRead: func(p []byte) (int, error) {
			switch reads++; reads {
			case 2, 22:
				return 0, nil
			case 3:
				return -1, nil
			case 5:
				panic("once")
			}
			return file.Read(p[:min(2, len(p))])
		}}
	})
	body := opened(t, script.New(cutAfter(10), again), resumes).Body
	defer body.Close()
	var got []byte
	empty, part := 0, make([]byte, 3)
	read := func() (err error) {
		defer func() { _ = recover() }()
		n, err := body.Read(part)
		if got = append(got, part[:n]...); n == 0 && err == nil {
			empty++
		}
		return err
	}
	for read() == nil {
	}
	assert.Equal(t, object, string(got))
	assert.Equal(t, 3, empty, "the caller may give up")
	assert.Equal(t, 23, reads, "the end is read")
}

// flaky is a base whose file of size bytes breaks off after each piece, and after the last piece
// again and again. The bytes are not made: Read says only how many there are.
type flaky struct {
	size   int64
	pieces []int64
}

func (f *flaky) RoundTrip(req *http.Request) (*http.Response, error) {
	var first int64
	resp := script.Response(req, 200, "Etag", `"v1"`)
	if _, err := fmt.Sscanf(req.Header.Get("Range"), "bytes=%d-", &first); err == nil {
		resp = script.Response(req, 206, "Etag", `"v1"`, "Content-Range", rangeOf(first, f.size))
	}
	resp.ContentLength = f.size - first
	left, end := f.pieces[0], errLost
	if left >= resp.ContentLength {
		left, end = resp.ContentLength, io.EOF
	}
	f.pieces = f.pieces[min(1, len(f.pieces)-1):]
	resp.Body = &bodies.Hooked{OnRead: func(p []byte) (int, error) {
		if left == 0 {
			return 0, end
		}
		n := min(int64(len(p)), left)
		left -= n
		return int(n), nil
	}}
	return resp, nil
}

// lengthOf downloads what base has, and counts it.
func lengthOf(t *testing.T, base http.RoundTripper, p retryhttp.Policy) (int64, error) {
	t.Helper()
	resp := opened(t, base, p)
	defer resp.Body.Close()
	discard := struct{ io.Writer }{io.Discard} // without ReadFrom, whose buffer is small
	return io.CopyBuffer(discard, resp.Body, make([]byte, 4<<20))
}

func TestDefaultBudgetLetsLongDownloadsFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 1 << 30
		budget := &retryhttp.TokenBucket{} // as of a Transport that they share
		for range 100 {
			n, err := lengthOf(t, &flaky{size, []int64{100 << 20}}, retryhttp.Policy{Resume: true, Budget: budget})
			require.NoError(t, err)
			require.EqualValues(t, size, n)
		}
	})
}

// A token comes back once, and only to a budget that it was taken from.
func TestResumptionThatBringsAMebibyteGivesItsTokenBack(t *testing.T) {
	const enough = 1 << 20
	for name, tc := range map[string]struct {
		pieces                         []int64
		end                            error
		withdrawn, refunded, deposited int
	}{
		"an unbroken download took none":     {[]int64{16 << 20}, nil, 0, 0, 1},
		"a byte less":                        {[]int64{16<<20 - enough + 1, enough - 1}, nil, 1, 0, 2},
		"just enough":                        {[]int64{16<<20 - enough, enough}, nil, 1, 1, 2},
		"at each break":                      {[]int64{1, enough, enough, 13<<20 - 1, enough}, nil, 4, 4, 2},
		"not for the attempts without bytes": {[]int64{enough, 0, 0, 15 << 20}, nil, 3, 1, 2},
		"not for all together":               {[]int64{1, enough / 2, enough / 2, enough / 2}, errLost, 3, 0, 1},
	} {
		budget := &countingBudget{}
		p := resumes
		p.Budget = budget
		n, err := lengthOf(t, &flaky{16 << 20, tc.pieces}, p)
		assert.ErrorIs(t, err, tc.end, name)
		assert.Equal(t, tc.end == nil, n == 16<<20, name)
		assert.Equal(t, tc.withdrawn, budget.withdrawn, name)
		assert.Equal(t, tc.refunded, budget.refunded, name)
		assert.Equal(t, tc.deposited, budget.deposit, name)
	}
}

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
	inBubbles(t, map[string]func(*http.Request) string{
		"as it is":   nil,
		"with a key": retryhttp.RandomKey,
	}, func(t *testing.T, key func(*http.Request) string) {
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
		resp := responseTo(t, base, p, req)
		sentKey := base.Requests()[0].Header.Get("Idempotency-Key")
		assert.Equal(t, key != nil, sentKey != "")
		time.AfterFunc(time.Second, func() {
			_ = resp.Body.Close()
			req.URL.Path, req.Method = "/other", "POST"
			req.Header.Set("Trace", "second")
			*req = *req.WithContext(context.WithoutCancel(t.Context()))
		})
		_, err := io.ReadAll(resp.Body)
		assert.Equal(t, http.ErrBodyReadAfterClose, err)
		require.NotNil(t, after)
		assert.Equal(t, before.URL, after.URL)
		assert.Equal(t, before.Header, after.Header)
		assert.Equal(t, sentKey, after.Header.Get("Idempotency-Key"))
	})
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
	inBubbles(t, map[string]script.Step{
		"resumable": cutAfter(0), "not resumable": script.Status(200),
	}, func(t *testing.T, answer script.Step) {
		freed := make(chan struct{})
		body := &bodies.Hooked{OnClose: func() { close(freed) }}
		body.OnRead = func([]byte) (int, error) { <-freed; return 0, errLost }
		base := edited(answer, func(r *http.Response) { r.Body = body })
		req := get(t, t.Context())
		resp := responseTo(t, base, resumes, req)
		time.AfterFunc(time.Second, func() {
			_ = resp.Body.Close()
			req.Header.Set("Used", "again")
			req.URL.Path = "/again"
		})
		_, err := resp.Body.Read(make([]byte, 1))
		assert.Equal(t, errLost, err)
		assert.EqualValues(t, 1, body.Closes.Load())
	})
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

// A break and the answers to resumptions are results of their host like others. A resumption is held, too.
func TestBreakIsAFailureOfItsHostAndARefusalClosesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := resumes
		p.Gate = &retryhttp.Gate{}
		p.MaxAttempts = 2
		p.OnRetry = func(retryhttp.Attempt) { assert.EqualValues(t, 1, retryhttp.FailuresInARow(p.Gate, "host.example")) }
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
	var cancel context.CancelFunc
	ended := script.Respond(200, &bodies.Hooked{OnRead: func([]byte) (int, error) { cancel(); return 0, gone }})
	p := resumes
	p.Logger = hookedLogger(func() { assert.Fail(t, "logged") })
	for name, answer := range map[string]script.Step{
		"an early end":                     sends(200, object[:9], io.EOF, "Content-Length", "36"),
		"an error after all bytes":         sends(200, object, gone, "Content-Length", "36"),
		"a redirect":                       sends(302, object, gone, "Location", "/"),
		"an Error of another kind":         sends(200, object, &retryhttp.Error{Err: gone}),
		"the end of the request's context": ended,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, ends := context.WithCancel(t.Context())
			defer ends()
			cancel = ends
			_, err := readAll(t, answer, p, get(t, ctx))
			assert.NotErrorIs(t, err, retryhttp.ErrNotResumable)
		})
	}
}

// A tag that is made of a whole second, as by nginx, names every version of that second.
func TestResumeDoesNotTrustTheTagOfAFileThatHasJustChanged(t *testing.T) {
	const now = "Sun, 22 Nov 2026 10:00:00 GMT"
	type testCase struct {
		header []string
		want   string
	}
	inBubbles(t, map[string]testCase{
		"two seconds old":           {[]string{"Last-Modified", "Sun, 22 Nov 2026 09:59:58 GMT", "Date", now}, object},
		"a second old":              {[]string{"Last-Modified", "Sun, 22 Nov 2026 09:59:59 GMT", "Date", now}, object[:10]},
		"recent when it was stored": {[]string{"Last-Modified", now, "Date", now, "Age", "60"}, object[:10]},
		"old, without a Date":       {[]string{"Last-Modified", "Fri, 31 Dec 1999 23:59:58 GMT"}, object},
		"recent, without a Date":    {[]string{"Last-Modified", "Fri, 31 Dec 1999 23:59:59 GMT"}, object[:10]},
		"no date":                   {[]string{"Last-Modified", "yesterday", "Date", now}, object},
	}, func(t *testing.T, tc testCase) { // on 1 January 2000
		got, err := download(t, script.New(cutAfter(10, tc.header...), rest(10, tc.header...)), resumes)
		assert.Equal(t, tc.want, got)
		assert.Equal(t, tc.want == object, err == nil)
	})
}
