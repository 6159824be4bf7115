package retryhttp_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestResumeContinuesWhereTheBodyBrokeOff(t *testing.T) {
	base := script.New(cutAfter(10), restUntil(10, 20, errLost), restUntil(20, 20, errLost), rest(20))
	req := get(t, t.Context())
	req.Header.Set("Authorization", "secret")
	got, err := readAll(t, base, resumes, req)
	require.NoError(t, err)
	assert.Equal(t, object, got)

	require.Equal(t, []string{"", "bytes=10-35", "bytes=20-35", "bytes=20-35"}, ranges(base))
	for i, sent := range base.Requests() {
		assert.Equal(t, i+1, retryhttp.AttemptOf(sent.Context()).Number)
		if i > 0 {
			assert.Equal(t, http.Header{
				"Authorization":   {"secret"},
				"Range":           sent.Header["Range"],
				"If-Range":        {`"v1"`},
				"If-Match":        {`"v1"`},
				"Accept-Encoding": {"identity"},
			}, sent.Header)
			assert.Equal(t, req.URL, sent.URL)
			assert.Error(t, sent.Context().Err(), "the body is over")
		}
	}
	assert.Equal(t, http.Header{"Authorization": {"secret"}}, req.Header)
}

func TestResumeLeavesTheResponseAsItWas(t *testing.T) {
	var done int
	p := resumes
	p.OnDone = func(a retryhttp.Attempt, o retryhttp.Outcome) {
		done++
		assert.Equal(t, 2, o.Attempts)
		assert.Zero(t, a.Offset)
	}
	base := script.New(script.Status(503), cutAfter(10, "Date", "today"), rest(10, "Date", "tomorrow"))
	resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	_, err = io.ReadAll(resp.Body)
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
		var retries []retryhttp.Attempt
		var logged strings.Builder
		p := resumes
		p.Backoff = retryhttp.Linear(time.Second, 0)
		p.OnRetry = func(a retryhttp.Attempt) { retries = append(retries, a) }
		p.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
		busy := func(req *http.Request) (*http.Response, error) {
			time.Sleep(time.Minute)
			return script.Response(req, 503), nil
		}
		base := script.New(cutAfter(10), busy, restUntil(10, 20, errLost), rest(20, "Etag", `"v2"`))
		_, err := download(t, base, p)
		require.ErrorIs(t, err, errLost)

		require.Len(t, retries, 3)
		for i, want := range []struct {
			offset int64
			status int
			wait   time.Duration
		}{{10, 0, time.Second}, {10, 503, 2 * time.Second}, {20, 0, 3 * time.Second}} {
			a := retries[i]
			assert.Equal(t, i+1, a.Number)
			assert.Equal(t, want.offset, a.Offset)
			assert.Equal(t, want.wait, a.Wait)
			assert.Equal(t, base.Requests()[i].Header, a.Request.Header)
			if want.status == 0 {
				assert.Equal(t, errLost, a.Err)
				assert.Nil(t, a.Response)
			} else {
				assert.Equal(t, want.status, a.Response.StatusCode)
			}
		}
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
	var taken error
	refused, changed := retryhttp.ErrNotResumable, retryhttp.ErrChanged
	whole := func(header ...string) script.Step {
		return sends(200, object, io.EOF, append([]string{"Content-Length", "36"}, header...)...)
	}
	part := func(text, contentRange string, header ...string) script.Step {
		return sends(206, text, io.EOF, append([]string{"Content-Range", contentRange}, header...)...)
	}
	v1 := []string{"Etag", `"v1"`}
	for _, tc := range []struct {
		name   string
		answer script.Step
		want   error
	}{
		{"the rest", part(object[10:], "bytes 10-35/36", v1...), taken},
		{"of a whole that is not known", part(object[10:], "bytes 10-35/*", v1...), taken},
		{"with a unit in capitals", part(object[10:], "Bytes 10-35/36", v1...), taken},
		{"from the start of a block", part(object[8:], "bytes 8-35/36", v1...), taken},
		{"from the start", part(object, "bytes 0-35/36", v1...), taken},
		{"all, with status 200", whole(v1...), taken},

		{"from later on", part(object[11:], "bytes 11-35/36", v1...), refused},
		{"what came already", part(object[:10], "bytes 0-9/36", v1...), refused},
		{"of a longer whole", part(object[10:], "bytes 10-35/37", v1...), changed},
		{"of a shorter whole", part(object[10:], "bytes 10-34/35", v1...), changed},
		{"in another unit", part(object[10:], "characters 10-35/36", v1...), refused},
		{"without a range", sends(206, object[10:], io.EOF, v1...), refused},
		{"with two ranges", part(object[10:], "bytes 10-35/36", "Content-Range", "bytes 10-35/36", "Etag", `"v1"`), refused},
		{"with a broken range", part(object[10:], "bytes 10-35", v1...), refused},
		{"with a range of no bytes", part(object[10:], "bytes */36", v1...), refused},
		{"in several parts", part(object[10:], "bytes 10-35/36", "Content-Type", "Multipart/byteranges; boundary=x", "Etag", `"v1"`), refused},
		{"of another length than its range", part(object[10:], "bytes 10-35/36", "Content-Length", "25", "Etag", `"v1"`), refused},
		{"with another tag", part(object[10:], "bytes 10-35/36", "Etag", `"v2"`), changed},
		{"with a weak tag", part(object[10:], "bytes 10-35/36", "Etag", `W/"v1"`), refused},
		{"without a tag", part(object[10:], "bytes 10-35/36"), refused},
		{"with two tags", part(object[10:], "bytes 10-35/36", "Etag", `"v1"`, "Etag", `"v1"`), refused},
		{"encoded", part(object[10:], "bytes 10-35/36", "Content-Encoding", "br", "Etag", `"v1"`), refused},

		{"all, with another tag", whole("Etag", `"v2"`), changed},
		{"all, with a weak tag", whole("Etag", `W/"v1"`), refused},
		{"all, without a tag", whole(), refused},
		{"all, encoded", whole("Content-Encoding", "gzip", "Etag", `"v1"`), refused},
		{"all, with a range", whole("Content-Range", "bytes 0-35/36", "Etag", `"v1"`), refused},
		{"all, of another length", sends(200, object+"!", io.EOF, "Content-Length", "37", "Etag", `"v1"`), changed},
		{"all, of unknown length", sends(200, object, io.EOF, v1...), refused},

		{"all, of a length that neither is nor was known", sends(200, object, io.EOF, "Etag", `"v2"`), changed},
		{"another tag, and no range", sends(206, object[10:], io.EOF, "Etag", `"v2"`), changed},
		{"another tag, encoded", part(object[10:], "bytes 10-35/36", "Content-Encoding", "br", "Etag", `"v2"`), refused},

		{"201", sends(201, object[10:], io.EOF, "Content-Range", "bytes 10-35/36", "Etag", `"v1"`), refused},
		{"204", script.Status(204), refused},
		{"301", script.Status(301, "Location", "/"), refused},
		{"304", script.Status(304, v1...), refused},
		{"403", script.Status(403), refused},
		{"404", script.Status(404), refused},
		{"412", script.Status(412), changed},
		{"416", script.Status(416, "Content-Range", "bytes */36"), changed},
		{"416 of a whole that ends here", script.Status(416, "Content-Range", "bytes */10"), changed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			base := script.New(cutAfter(10), tc.answer)
			got, err := download(t, base, resumes)
			assert.Len(t, base.Requests(), 2)
			if tc.want == taken {
				require.NoError(t, err)
				assert.Equal(t, object, got)
				return
			}
			assert.Equal(t, object[:10], got)
			e := errorOf(t, err)
			assert.ErrorIs(t, err, errLost)
			assert.ErrorIs(t, err, tc.want)
			assert.Equal(t, tc.want == changed, errors.Is(err, changed))
			assert.Equal(t, tc.want == refused, errors.Is(err, refused))
			assert.Equal(t, retryhttp.StopFinal, e.Stop)
			assert.Equal(t, 2, e.Attempts)
			assert.Regexp(t, `^gave up after 2 attempts in [0-9]+m?s \(final\): not resumed: .*: connection lost$`, e.Error())
		})
	}
}

// The bytes before the offset are dropped, in however small Reads, and if their response
// breaks off meanwhile.
func TestResumeDropsWhatCameBefore(t *testing.T) {
	all := func(n int, err error) script.Step {
		return sends(200, object[:n], err, "Content-Length", "36", "Etag", `"v1"`)
	}
	base := script.New(cutAfter(10), all(6, errLost), all(10, io.EOF), all(36, io.EOF))
	resp, err := retryhttp.New(base, resumes).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	var got []byte
	for buf := make([]byte, 3); err == nil; {
		var n int
		if len(got) < len(object) {
			n, err = resp.Body.Read(buf[:0])
			require.Zero(t, n)
			require.NoError(t, err)
		}
		n, err = resp.Body.Read(buf)
		got = append(got, buf[:n]...)
		require.True(t, n > 0 || err != nil, "a Read with room brings something")
	}
	assert.Equal(t, io.EOF, err)
	assert.Equal(t, object, string(got))
	_, err = resp.Body.Read(make([]byte, 1))
	assert.Equal(t, io.EOF, err)
	assert.Equal(t, []string{"", "bytes=10-35", "bytes=10-35", "bytes=10-35"}, ranges(base))
}

// What follows the last byte is the end, and the caller gets none of it.
func TestResumptionEndsAfterItsLastByte(t *testing.T) {
	for name, answer := range map[string]script.Step{
		"the end":           rest(10),
		"more":              sends(206, object[10:]+"more", io.EOF, "Content-Range", rangeFrom(10), "Etag", `"v1"`),
		"a lost connection": restUntil(10, 36, &net.OpError{Op: "read", Err: errLost}),
	} {
		resp, err := retryhttp.New(script.New(cutAfter(10), answer), resumes).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		_, err = io.ReadFull(resp.Body, make([]byte, len(object)))
		require.NoError(t, err)
		n, err := resp.Body.Read(make([]byte, 1))
		assert.Zero(t, n, name)
		assert.Equal(t, io.EOF, err, name)
	}
}

// A Read that brings nothing is no end: the end is still to be read, so that the connection is free.
func TestResumptionIsReadToItsEnd(t *testing.T) {
	rest := strings.NewReader(object[10:])
	reads := 0
	base := script.New(cutAfter(10), func(req *http.Request) (*http.Response, error) {
		resp := script.Response(req, 206, "Content-Range", rangeFrom(10), "Etag", `"v1"`)
		resp.Body = closableBody{&bodies.Hooked{OnRead: func(p []byte) (int, error) {
			if reads++; reads == 2 {
				return 0, nil
			}
			return rest.Read(p)
		}}}
		return resp, nil
	})
	got, err := download(t, base, resumes)
	require.NoError(t, err)
	assert.Equal(t, object, got)
	assert.Equal(t, 3, reads)
}

// Such a Read neither uses bytes past the end of its buffer, nor deposits again.
func TestReadWithoutRoomAfterTheLastByteOfAResumption(t *testing.T) {
	budget := &countingBudget{}
	p := resumes
	p.Budget = budget
	resp, err := retryhttp.New(script.New(cutAfter(10), rest(10)), p).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	_, err = io.ReadFull(resp.Body, make([]byte, len(object)))
	require.NoError(t, err)
	n, _ := resp.Body.Read(nil)
	assert.Zero(t, n)
	assert.Equal(t, 2, budget.deposit, "the response, and the end of the resumption")
}

// The end of a shorter range is not the end of the file.
func TestEndOfAShorterRangeIsUnexpected(t *testing.T) {
	base := script.New(cutAfter(10),
		sends(206, object[10:20]+"more", io.EOF, "Content-Range", "bytes 10-19/36", "Etag", `"v1"`),
		script.Status(404))
	got, err := download(t, base, resumes)
	assert.Equal(t, object[:20], got)
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.NotErrorIs(t, err, io.EOF)
}

// A request without a method is a GET.
func TestResumeOfARequestWithoutAMethod(t *testing.T) {
	req := get(t, t.Context())
	req.Method = ""
	got, err := readAll(t, script.New(cutAfter(10), rest(10)), resumes, req)
	require.NoError(t, err)
	assert.Equal(t, object, got)
}

func TestResumeOfNoBody(t *testing.T) {
	resp, err := retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Request: req}, nil
	}), resumes).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	assert.Nil(t, resp.Body)

	final := retryhttp.Permanent(errBroken)
	resp, err = retryhttp.New(script.New(script.Fail(final)), resumes).RoundTrip(get(t, t.Context()))
	assert.Nil(t, resp)
	assert.ErrorIs(t, err, errBroken)
}

func TestResumeOfACallersRange(t *testing.T) {
	for _, tc := range []struct{ asked, answered, resumed string }{
		{"bytes=5-14", "bytes 5-14/36", "bytes=8-14"},
		{"bytes=26-", "bytes 26-35/36", "bytes=29-35"},
		{"bytes=-10", "bytes 26-35/*", "bytes=29-35"},
		{"bytes=5-14,16-17", "bytes 5-17/36", "bytes=8-17"},
	} {
		base := script.New(
			sends(206, "abc", errLost, "Content-Range", tc.answered, "Etag", `"v1"`),
			script.Status(404),
		)
		req := get(t, t.Context())
		req.Header = http.Header{
			"range": {tc.asked}, "if-range": {`"v1"`}, "If-Match": {`"v0", "v1"`}, "If-None-Match": {`"v9"`}, "accept-encoding": {"br"},
		}
		_, err := readAll(t, base, resumes, req)
		require.ErrorIs(t, err, errLost)
		require.Len(t, base.Requests(), 2)
		assert.Equal(t, http.Header{
			"Range": {tc.resumed}, "If-Range": {`"v1"`}, "If-Match": {`"v1"`}, "If-None-Match": {`"v9"`}, "accept-encoding": {"br"},
		}, base.Requests()[1].Header)
	}
}

func TestResumeByDate(t *testing.T) {
	const (
		date   = "Sun, 22 Nov 2026 10:00:00 GMT"
		minute = "Sun, 22 Nov 2026 09:59:00 GMT"
		less   = "Sun, 22 Nov 2026 09:59:01 GMT"
	)
	first := sends(200, object[:10], errLost, "Content-Length", "36", "Last-Modified", minute, "Date", date)
	part := func(header ...string) script.Step {
		return sends(206, object[10:], io.EOF, append([]string{"Content-Range", "bytes 10-35/36"}, header...)...)
	}
	for name, tc := range map[string]struct {
		first, answer script.Step
		requests      int
		whole         bool
	}{
		"the same date":    {first, part("Last-Modified", minute), 2, true},
		"another date":     {first, part("Last-Modified", less), 2, false},
		"no date":          {first, part(), 2, false},
		"the date and tag": {first, part("Last-Modified", minute, "Etag", `"v1"`), 2, false},
		"all of it":        {first, sends(200, object, io.EOF, "Content-Length", "36", "Last-Modified", minute), 2, false},
		"too young":        {sends(200, object[:10], errLost, "Content-Length", "36", "Last-Modified", less, "Date", date), part(), 1, false},
		"no Date":          {sends(200, object[:10], errLost, "Content-Length", "36", "Last-Modified", minute), part(), 1, false},
		"invalid": {sends(200, object[:10], errLost, "Content-Length", "36", "Last-Modified", "yesterday", "Date", date),
			part(), 1, false},
		"beside a weak tag": {sends(200, object[:10], errLost, "Content-Length", "36", "Last-Modified", minute, "Date", date, "Etag", `W/"v1"`),
			part("Last-Modified", minute), 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			base := script.New(tc.first, tc.answer)
			req := get(t, t.Context())
			req.Header = http.Header{"If-Unmodified-Since": {date}, "If-Match": {"*"}}
			got, err := readAll(t, base, resumes, req)
			require.Len(t, base.Requests(), tc.requests)
			if tc.requests > 1 {
				assert.Equal(t, http.Header{
					"Range": {"bytes=10-35"}, "If-Range": {minute}, "If-Unmodified-Since": {minute}, "If-Match": {"*"},
					"Accept-Encoding": {"identity"},
				}, base.Requests()[1].Header)
			}
			if tc.whole {
				require.NoError(t, err)
				assert.Equal(t, object, got)
			} else {
				assert.ErrorIs(t, err, errLost)
				assert.Equal(t, object[:10], got)
			}
		})
	}
}

// The bytes are in the encoding that the caller asked for.
func TestResumeOfAnEncodedBody(t *testing.T) {
	first := cutAfter(10, "Content-Encoding", "br")
	got, err := download(t, script.New(first, rest(10, "Content-Encoding", "br")), resumes)
	require.NoError(t, err)
	assert.Equal(t, object, got)
	got, err = download(t, script.New(first, rest(10)), resumes)
	assert.ErrorIs(t, err, errLost)
	assert.Equal(t, object[:10], got)
}

// A body that the caller rules out is handed over as it came. A body that the server does not let
// be resumed is read to the same error, which says so.
func TestResumeLeavesOtherBodiesAlone(t *testing.T) {
	post := func(req *http.Request) { req.Method = "POST"; req.Header.Set("Idempotency-Key", "k") }
	ranged := func(req *http.Request) { req.Header.Set("Range", "bytes=0-9") }
	asIs := func(*http.Request) {}
	for name, tc := range map[string]struct {
		edit   func(*http.Request)
		answer script.Step
	}{
		"POST":              {post, cutAfter(10)},
		"HEAD":              {func(req *http.Request) { req.Method = "HEAD" }, cutAfter(0)},
		"GET with a body":   {func(req *http.Request) { req.Body = io.NopCloser(strings.NewReader("query")) }, cutAfter(10)},
		"404":               {asIs, sends(404, "not", errLost, "Content-Length", "9", "Etag", `"v1"`)},
		"203":               {asIs, sends(203, object[:9], errLost, "Content-Length", "36", "Etag", `"v1"`)},
		"200 with a range":  {asIs, cutAfter(10, "Content-Range", "bytes 0-35/36")},
		"no length":         {asIs, sends(200, object[:9], errLost, "Etag", `"v1"`)},
		"no validator":      {asIs, sends(200, object[:9], errLost, "Content-Length", "36")},
		"weak tag":          {asIs, sends(200, object[:9], errLost, "Content-Length", "36", "Etag", `W/"v1"`)},
		"tag of nothing":    {asIs, sends(200, object[:9], errLost, "Content-Length", "36", "Etag", `""`)},
		"bare tag":          {asIs, sends(200, object[:9], errLost, "Content-Length", "36", "Etag", `v1`)},
		"broken tag":        {asIs, sends(200, object[:9], errLost, "Content-Length", "36", "Etag", `"v"1"`)},
		"two tags":          {asIs, cutAfter(10, "Etag", `"v1"`)},
		"no ranges":         {asIs, cutAfter(10, "Accept-Ranges", "None")},
		"no ranges, listed": {asIs, cutAfter(10, "Accept-Ranges", "x , none")},
		"decompressed": {asIs, func(req *http.Request) (*http.Response, error) {
			resp, err := cutAfter(10)(req)
			resp.Uncompressed = true
			return resp, err
		}},
		"206 without a Range":    {asIs, restUntil(0, 9, errLost)},
		"206 without its range":  {ranged, sends(206, object[:9], errLost, "Etag", `"v1"`)},
		"206 of several ranges":  {ranged, restUntil(0, 9, errLost, "Content-Type", "multipart/byteranges")},
		"206 of another length":  {ranged, sends(206, "0123", errLost, "Content-Range", "bytes 0-9/36", "Content-Length", "9", "Etag", `"v1"`)},
		"206 of bytes past 2^63": {ranged, sends(206, "0123", errLost, "Content-Range", "bytes 0-9223372036854775808/*", "Etag", `"v1"`)},
	} {
		t.Run(name, func(t *testing.T) {
			base := script.New(tc.answer)
			req := get(t, t.Context())
			tc.edit(req)
			resp, err := retryhttp.New(base, resumes).RoundTrip(req)
			require.NoError(t, err)
			_, err = io.ReadAll(resp.Body)
			assert.Len(t, base.Requests(), 1)
			if ruledOut := strings.Contains("POST HEAD GET with a body", name); ruledOut {
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
	base := script.New(sends(200, object, &net.OpError{Op: "read", Err: errLost}, "Content-Length", "36", "Etag", `"v1"`))
	got, err := download(t, base, resumes)
	require.NoError(t, err)
	assert.Equal(t, object, got)
	assert.Len(t, base.Requests(), 1)

	base = script.New(sends(200, object[:9], io.EOF, "Content-Length", "36", "Etag", `"v1"`), rest(9))
	got, err = download(t, base, resumes)
	require.NoError(t, err)
	assert.Equal(t, object, got)

	base = script.New(sends(200, object[:9], io.EOF, "Content-Length", "36", "Etag", `"v1"`), script.Status(404))
	_, err = download(t, base, resumes)
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)

	base = script.New(sends(200, object+"more", errLost, "Content-Length", "36", "Etag", `"v1"`))
	got, err = download(t, base, resumes)
	assert.Equal(t, errLost, err, "this server does not know the length")
	assert.Equal(t, object+"more", got)
	assert.Len(t, base.Requests(), 1)

	got, err = download(t, script.New(sends(200, object+"more", io.EOF, "Content-Length", "36", "Etag", `"v1"`)), resumes)
	assert.NoError(t, err)
	assert.Equal(t, object+"more", got)
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

func TestResumeRespectsALimitBelow(t *testing.T) {
	limited := script.Step(func(req *http.Request) (*http.Response, error) {
		resp, err := cutAfter(36)(req)
		resp.Body = http.MaxBytesReader(nil, resp.Body, 10)
		return resp, err
	})
	got, err := download(t, limited, resumes)
	assert.Equal(t, object[:10], got)
	e := errorOf(t, err)
	assert.Equal(t, retryhttp.StopFinal, e.Stop)
	assert.Equal(t, 1, e.Attempts)
}

func TestResumptionWithoutABodyIsABreak(t *testing.T) {
	base := script.New(cutAfter(10), func(req *http.Request) (*http.Response, error) {
		resp, err := rest(10)(req)
		resp.Body = nil
		return resp, err
	}, rest(10))
	got, err := download(t, base, resumes)
	require.NoError(t, err)
	assert.Equal(t, object, got)
}

// An object may be of several parts itself.
func TestResumeOfAMultipartObject(t *testing.T) {
	media := []string{"Content-Type", "multipart/related; boundary=x"}
	got, err := download(t, script.New(cutAfter(10, media...), rest(10, media...)), resumes)
	require.NoError(t, err)
	assert.Equal(t, object, got)
}

// The break has a Timeout method as well, which says false.
func TestAttemptTimeoutOfAResumptionIsATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := resumes
		p.AttemptTimeout, p.MaxAttempts = time.Second, 2
		reset := &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
		base := script.New(sends(200, object[:9], reset, "Content-Length", "36", "Etag", `"v1"`),
			func(req *http.Request) (*http.Response, error) {
				<-req.Context().Done()
				return nil, req.Context().Err()
			})
		_, err := download(t, base, p)
		assert.True(t, errorOf(t, err).Timeout())
		assert.ErrorIs(t, err, syscall.ECONNRESET)
	})
}

func TestResumeEndsAfterMaxAttempts(t *testing.T) {
	for _, attempts := range []int{1, 2, 4} {
		p := resumes
		p.MaxAttempts = attempts
		offset := 0
		base := script.New(cutAfter(1), func(req *http.Request) (*http.Response, error) {
			offset++
			return restUntil(offset, offset+1, errLost)(req)
		})
		got, err := download(t, base, p)
		assert.ErrorIs(t, err, errLost)
		assert.Equal(t, object[:attempts], got, "each attempt brings a byte")
		assert.Len(t, base.Requests(), attempts)
		if attempts > 1 {
			e := errorOf(t, err)
			assert.Equal(t, retryhttp.StopAttempts, e.Stop)
			assert.Equal(t, attempts, e.Attempts)
		} else {
			assert.Equal(t, errLost, err, "nothing was wrapped")
		}
	}
}

// large is a representation of 16 MiB of zeros, of which each response brings as much as
// the next of pieces says.
func large(pieces ...int64) *script.Transport {
	const size = 16 << 20
	offset := int64(0)
	return script.New(func(req *http.Request) (*http.Response, error) {
		resp := script.Response(req, 200, "Etag", `"v1"`)
		resp.ContentLength = size - offset
		if offset > 0 {
			resp = script.Response(req, 206, "Etag", `"v1"`, "Content-Range", rangeOf(offset, size))
		}
		n := pieces[0]
		if len(pieces) > 1 {
			pieces = pieces[1:]
		}
		offset += n
		resp.Body = io.NopCloser(io.MultiReader(io.LimitReader(zeros{}, n), &piece{err: errLost}))
		return resp, nil
	})
}

func TestResumeCountsAnewAfterAMebibyte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const enough = 1 << 20
		base := large(enough, 100, 100, enough, enough-1, enough, 0)
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
		p := resumes
		p.MaxAttempts = -1
		p.MaxElapsed = 5 * time.Second
		p.Backoff = retryhttp.Constant(2 * time.Second)
		base := script.New(cutAfter(10), restUntil(10, 10, errLost))
		resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		time.Sleep(time.Hour) // a caller that reads slowly
		_, err = io.ReadAll(resp.Body)
		assert.ErrorIs(t, err, errLost)
		e := errorOf(t, err)
		assert.Equal(t, retryhttp.StopDeadline, e.Stop)
		assert.Equal(t, seconds(3602, 2), base.Waits())
		assert.Equal(t, time.Hour+4*time.Second, e.Elapsed)
		assert.Equal(t, 4*time.Second, e.Waited)
	})
}

// 408, 429 and 5xx are failed attempts, whatever the Policy makes of them.
func TestResumeWaitsAsItIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := resumes
		p.MaxAttempts = 9
		p.Gate = &retryhttp.Gate{Hold: -1}
		p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
			if a.Response != nil && a.Response.StatusCode != 200 {
				t.Error("asked about a resumption's response")
			}
			if a.Err != nil {
				return retryhttp.Retryable
			}
			return retryhttp.Final
		}
		base := script.New(cutAfter(10),
			script.Status(503, "Retry-After", "2"), script.Status(429), script.Status(408), script.Status(599),
			script.Fail(errBroken), rest(10))
		got, err := download(t, base, p)
		require.NoError(t, err)
		assert.Equal(t, object, got)
		waits := base.Waits()
		require.Len(t, waits, 6)
		assert.GreaterOrEqual(t, waits[1], 2*time.Second)
		assert.LessOrEqual(t, waits[1], 3*time.Second)
		assert.Equal(t, seconds(0, 0, 0, 0), waits[2:])
	})
}

func TestResumeReportsTheLastFailure(t *testing.T) {
	for name, tc := range map[string]struct {
		answer script.Step
		edit   func(*retryhttp.Policy)
		stop   retryhttp.Stop
		text   string
	}{
		"a status": {script.Status(503), func(p *retryhttp.Policy) { p.MaxAttempts = 2 }, retryhttp.StopAttempts,
			"gave up after 2 attempts in 0s (attempts): not resumed: the last response was 503 Service Unavailable: connection lost"},
		"an error": {script.Fail(errBroken), func(p *retryhttp.Policy) { p.MaxAttempts = 2 }, retryhttp.StopAttempts,
			"gave up after 2 attempts in 0s (attempts): not resumed: connection broken: connection lost"},
		"a refusal": {script.Status(412), func(p *retryhttp.Policy) {}, retryhttp.StopFinal,
			"gave up after 2 attempts in 0s (final): not resumed: the file has changed: the answer was 412 Precondition Failed: connection lost"},
		"another break": {restUntil(10, 10, io.ErrUnexpectedEOF), func(p *retryhttp.Policy) { p.MaxAttempts = 2 }, retryhttp.StopAttempts,
			"gave up after 2 attempts in 0s (attempts): unexpected EOF"},
		"a long wait": {script.Status(503, "Retry-After", "61"), func(p *retryhttp.Policy) {}, retryhttp.StopRetryAfter,
			"gave up after 2 attempts in 0s (retry-after): not resumed: the last response was 503 Service Unavailable: connection lost"},
		"a spent budget": {nil, func(p *retryhttp.Policy) { p.Budget = &countingBudget{refuse: true} }, retryhttp.StopBudget,
			"connection lost"},
		"a final break": {nil, func(p *retryhttp.Policy) {
			p.Classify = func(retryhttp.Attempt) retryhttp.Class { return retryhttp.Final }
		}, retryhttp.StopFinal, "connection lost"},
		"a request that must not be repeated": {nil, func(p *retryhttp.Policy) {
			p.Idempotent = func(*http.Request) bool { return false }
		}, retryhttp.StopNotIdempotent, "connection lost"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := resumes
				tc.edit(&p)
				base := script.New(cutAfter(10), tc.answer)
				_, err := download(t, base, p)
				e := errorOf(t, err)
				assert.Equal(t, tc.stop, e.Stop)
				assert.Equal(t, tc.text, e.Error())
				assert.False(t, e.Timeout())
				assert.Equal(t, name == "a refusal", errors.Is(err, retryhttp.ErrChanged))
				assert.NotErrorIs(t, err, retryhttp.ErrNotResumable)
				attempts := 2
				if tc.answer == nil {
					attempts = 1
				}
				assert.Len(t, base.Requests(), attempts)
			})
		})
	}
}

func TestBreakThatWasNotResumedIsTemporaryIfOneOfItsErrorsIs(t *testing.T) {
	temporary := &net.DNSError{Err: "server misbehaving", Name: "host", IsTemporary: true}
	p := resumes
	p.MaxAttempts = 2
	for name, tc := range map[string]struct {
		broke, resumption error
		want              bool
	}{
		"the break":      {temporary, errBroken, true},
		"the resumption": {errLost, temporary, true},
		"neither":        {errLost, errBroken, false},
	} {
		first := sends(200, object[:9], tc.broke, "Content-Length", "36", "Etag", `"v1"`)
		_, err := download(t, script.New(first, script.Fail(tc.resumption)), p)
		require.ErrorIs(t, err, tc.resumption, name)
		assert.Equal(t, tc.want, errorOf(t, err).Temporary(), name)
	}
}

// An Unwrap must not return a nil error, which code that walks the errors does not expect.
func TestBreakWithoutAResumptionWrapsNoNil(t *testing.T) {
	p := resumes
	p.Budget = &countingBudget{refuse: true}
	_, err := download(t, script.New(cutAfter(10)), p)
	broken, ok := errorOf(t, err).Err.(interface{ Unwrap() []error })
	require.True(t, ok)
	assert.Equal(t, []error{errLost}, broken.Unwrap())
}

func TestResumeErrorIsKept(t *testing.T) {
	resp, err := retryhttp.New(script.New(cutAfter(10), script.Status(412)), resumes).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	_, err = io.ReadAll(resp.Body)
	require.Error(t, err)
	_, again := resp.Body.Read(make([]byte, 1))
	assert.Same(t, err, again)
}

func TestResumeDrawsOnTheBudget(t *testing.T) {
	for name, tc := range map[string]struct {
		answers              []script.Step
		withdrawn, deposited int
	}{
		"unbroken":        {[]script.Step{cutAfter(36)}, 0, 1},
		"ends well":       {[]script.Step{cutAfter(9), restUntil(9, 19, errLost), rest(19)}, 2, 2},
		"refused":         {[]script.Step{cutAfter(9), script.Status(404)}, 1, 1},
		"breaks for good": {[]script.Step{cutAfter(9), restUntil(9, 9, errLost)}, 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			budget := &countingBudget{}
			p := resumes
			p.Budget = budget
			_, _ = download(t, script.New(tc.answers...), p)
			assert.Equal(t, tc.withdrawn, budget.withdrawn)
			assert.Equal(t, tc.deposited, budget.deposit)
			assert.Zero(t, budget.refunded)
		})
	}
}

func TestResumeAtTheDeadlineIsATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		base := script.New(cutAfter(10), func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		})
		_, err := readAll(t, base, resumes, get(t, ctx))
		e := errorOf(t, err)
		assert.Equal(t, retryhttp.StopCanceled, e.Stop)
		assert.True(t, e.Timeout())
		assert.ErrorIs(t, err, errLost)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// The offset is a position in the file, also if the caller asked for a part of it.
func TestOffsetOfABreakIsAPositionInTheFile(t *testing.T) {
	for name, tc := range map[string]struct {
		first  script.Step
		begins string
		want   []int64
	}{
		"the whole file": {cutAfter(10), "", []int64{10, 20}},
		"a part of it":   {restUntil(5, 10, errLost), "bytes=5-", []int64{10, 20}},
	} {
		t.Run(name, func(t *testing.T) {
			var offsets []int64
			p := resumes
			p.OnRetry = func(a retryhttp.Attempt) { offsets = append(offsets, a.Offset) }
			p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
				assert.Equal(t, a.Err != nil, a.Offset > 0)
				return retryhttp.Classify(a)
			}
			req := get(t, t.Context())
			req.Header.Set("Range", tc.begins)
			_, err := readAll(t, script.New(tc.first, restUntil(10, 20, errLost), rest(20)), p, req)
			require.NoError(t, err)
			assert.Equal(t, tc.want, offsets)
		})
	}
}

func TestBreakCountsTheWaitsBeforeItsResponse(t *testing.T) {
	for name, tc := range map[string]struct {
		answers  []script.Step
		attempts int
		waited   time.Duration
	}{
		"after one wait":  {[]script.Step{script.Status(503), cutAfter(10), script.Status(404)}, 3, 2 * time.Second},
		"after two waits": {[]script.Step{script.Status(503), script.Status(503), cutAfter(10), script.Status(404)}, 4, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := resumes
				p.Backoff = retryhttp.Constant(time.Second)
				_, err := download(t, script.New(tc.answers...), p)
				e := errorOf(t, err)
				assert.Equal(t, tc.attempts, e.Attempts)
				assert.Equal(t, tc.waited, e.Waited)
				assert.Equal(t, tc.waited, e.Elapsed)
			})
		})
	}
}

// flaky is a base whose file of size bytes breaks off after each piece, and after the last piece
// again and again. The bytes are not made: Read says only how many there are.
type flaky struct {
	size   int64
	pieces []int64
}

func (f *flaky) RoundTrip(req *http.Request) (*http.Response, error) {
	first := int64(0)
	resp := script.Response(req, 200, "Etag", `"v1"`)
	if asked := req.Header.Get("Range"); asked != "" {
		begin, _, _ := strings.Cut(strings.TrimPrefix(asked, "bytes="), "-")
		var err error
		if first, err = strconv.ParseInt(begin, 10, 64); err != nil {
			return nil, err
		}
		resp = script.Response(req, 206, "Etag", `"v1"`, "Content-Range", rangeOf(first, f.size))
	}
	resp.ContentLength = f.size - first
	body := &claims{left: min(f.pieces[0], resp.ContentLength), end: errLost}
	if body.left == resp.ContentLength {
		body.end = io.EOF
	}
	if len(f.pieces) > 1 {
		f.pieces = f.pieces[1:]
	}
	resp.Body = body
	return resp, nil
}

// claims is a body that claims to have written bytes.
type claims struct {
	left int64
	end  error
}

func (c *claims) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, c.end
	}
	n := min(int64(len(p)), c.left)
	c.left -= n
	return int(n), nil
}

func (*claims) Close() error { return nil }

// lengthOf downloads what base has, and counts it.
func lengthOf(t *testing.T, base http.RoundTripper, p retryhttp.Policy, during func()) (int64, error) {
	t.Helper()
	resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	defer resp.Body.Close()
	buf := make([]byte, 4<<20)
	for length := int64(0); ; {
		n, err := resp.Body.Read(buf)
		length += int64(n)
		during()
		if err == io.EOF {
			return length, nil
		}
		if err != nil {
			return length, err
		}
	}
}

func TestDefaultBudgetLetsLongDownloadsFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 1 << 30
		budget := &retryhttp.TokenBucket{} // as of a Transport that they share
		for range 100 {
			n, err := lengthOf(t, &flaky{size, []int64{100 << 20}}, retryhttp.Policy{Resume: true, Budget: budget}, func() {})
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
		whole                          bool
		withdrawn, refunded, deposited int
	}{
		"the first answer took none":         {[]int64{enough, 16<<20 - enough}, true, 1, 1, 2},
		"an unbroken download took none":     {[]int64{16 << 20}, true, 0, 0, 1},
		"a byte less":                        {[]int64{16<<20 - enough + 1, enough - 1}, true, 1, 0, 2},
		"just enough":                        {[]int64{16<<20 - enough, enough}, true, 1, 1, 2},
		"at each break":                      {[]int64{1, enough, enough, 13<<20 - 1, enough}, true, 4, 4, 2},
		"not for the attempts without bytes": {[]int64{enough, 0, 0, 15 << 20}, true, 3, 1, 2},
		"not for all together":               {[]int64{1, enough / 2, enough / 2, enough / 2}, false, 3, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			budget := &countingBudget{}
			p := resumes
			p.Budget = budget
			n, err := lengthOf(t, &flaky{16 << 20, tc.pieces}, p, func() {
				assert.LessOrEqual(t, budget.refunded, budget.withdrawn)
			})
			if tc.whole {
				assert.NoError(t, err)
				assert.EqualValues(t, 16<<20, n)
			} else {
				assert.ErrorIs(t, err, errLost)
			}
			assert.Equal(t, tc.withdrawn, budget.withdrawn)
			assert.Equal(t, tc.refunded, budget.refunded)
			assert.Equal(t, tc.deposited, budget.deposit)
		})
	}
}

// The failure that ends a download counts, though no resumption follows it.
func TestBreakThatIsNotResumedCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := &counted{Budget: new(retryhttp.TokenBucket)}
		_, err := download(t, cutAfter(10), retryhttp.Policy{
			Budget: budget, Resume: true, Backoff: retryhttp.Constant(time.Second), MaxElapsed: 100 * ms,
		})
		var failed *retryhttp.Error
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, retryhttp.StopDeadline, failed.Stop)
		assert.EqualValues(t, 1, budget.failures.Load())
	})
}
