package retrytest_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrytest"
)

func get(t *testing.T, rt http.RoundTripper) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://shop.example/books?key=secret", nil)
	require.NoError(t, err)
	return rt.RoundTrip(req)
}

// serves is a base whose answers have a body.
type serves string

func (s serves) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return nil, err
		}
	}
	return &http.Response{
		StatusCode: 200, Header: http.Header{"Content-Length": {"5"}}, Body: io.NopCloser(strings.NewReader(string(s))),
		ContentLength: int64(len(s)), Request: req,
	}, nil
}

func TestStatusIsAnAnswer(t *testing.T) {
	rt := retrytest.NewTransport(t, nil, retrytest.Status(503, "Retry-After", "7", "X-Id", "1").Body("busy").Nth(1))
	resp, err := get(t, rt)
	require.NoError(t, err)
	assert.Equal(t, "503 Service Unavailable", resp.Status)
	assert.Equal(t, http.Header{"Content-Length": {"4"}, "Retry-After": {"7"}, "X-Id": {"1"}}, resp.Header)
	assert.Equal(t, int64(4), resp.ContentLength)
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, "busy", string(got))
	assert.NotNil(t, resp.Request)

	resp, err = get(t, rt)
	require.NoError(t, err)
	assert.Equal(t, 200, resp.StatusCode, "the real answer of a nil base")
	assert.Equal(t, http.NoBody, resp.Body)

	resp, err = get(t, retrytest.NewTransport(t, nil, retrytest.Status(599).Always()))
	require.NoError(t, err)
	assert.Equal(t, "599", resp.Status, "a status without a name")
}

func TestRetryAfterIsInWholeSeconds(t *testing.T) {
	for wait, field := range map[time.Duration]string{0: "0", time.Millisecond: "1", 2 * time.Second: "2", 2100 * time.Millisecond: "3", math.MaxInt64: "9223372037"} {
		resp, err := get(t, retrytest.NewTransport(t, nil, retrytest.RetryAfter(429, wait).Always()))
		require.NoError(t, err)
		assert.Equal(t, 429, resp.StatusCode)
		assert.Equal(t, field, resp.Header.Get("Retry-After"), "%v", wait)
	}
}

func TestErrorEventIsAStreamThatBeginsWithAnError(t *testing.T) {
	rt := retrytest.NewTransport(t, nil, retrytest.ErrorEvent("{\n}").Always())
	resp, err := get(t, rt)
	require.NoError(t, err)
	assert.Equal(t, 200, resp.StatusCode)
	assert.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	assert.Equal(t, int64(-1), resp.ContentLength)
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, "event: error\ndata: {\ndata: }\n\n", string(got))
	assert.Equal(t, "200, error event, unsized", rt.Records()[0].Step)
}

func TestResponsesThatMayHaveNoBodyHaveNone(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		status int
	}{"HEAD": {http.MethodHead, 200}, "204": {http.MethodGet, 204}, "304": {http.MethodGet, 304}} {
		t.Run(name, func(t *testing.T) {
			rt := retrytest.NewTransport(t, nil, retrytest.Status(c.status).Body("12345").Cut(2).Always())
			req, err := http.NewRequest(c.method, "http://shop.example/", nil)
			require.NoError(t, err)
			resp, err := rt.RoundTrip(req)
			require.NoError(t, err)
			assert.Equal(t, http.NoBody, resp.Body)
			if c.status != 200 {
				assert.Zero(t, resp.ContentLength)
			}
		})
	}
}

func TestBodyIsCut(t *testing.T) {
	for name, c := range map[string]struct {
		rt     http.RoundTripper
		length int64
		field  string
	}{
		"an answer of its own": {retrytest.NewTransport(t, nil, retrytest.Status(200).Body("12345").Cut(2).Always()), 5, "5"},
		"without a length": {
			retrytest.NewTransport(t, nil, retrytest.Status(200).Body("12345").Unsized().Cut(2).Always()), -1, "",
		},
		"the real answer": {retrytest.NewTransport(t, serves("12345"), retrytest.Real().Cut(2).Always()), 5, "5"},
		"the real answer, without a length": {
			retrytest.NewTransport(t, serves("12345"), retrytest.Real().Cut(2).Unsized().Always()), -1, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := get(t, c.rt)
			require.NoError(t, err)
			assert.Equal(t, c.length, resp.ContentLength)
			assert.Equal(t, c.field, resp.Header.Get("Content-Length"))
			got := make([]byte, 2)
			_, err = io.ReadFull(resp.Body, got)
			require.NoError(t, err)
			assert.Equal(t, "12", string(got))
			_, err = resp.Body.Read(nil)
			require.NoError(t, err, "a Read without room does not wait for what follows")
			for range 5 {
				_, err = resp.Body.Read(make([]byte, 10))
				assert.Equal(t, io.ErrUnexpectedEOF, err, "and not io.EOF later")
			}
			require.NoError(t, resp.Body.Close())
			_, err = resp.Body.Read(make([]byte, 1))
			assert.Equal(t, http.ErrBodyReadAfterClose, err)
		})
	}
}

func TestShortBodyIsNotCut(t *testing.T) {
	for _, n := range []int64{5, 6} {
		for name, step := range map[string]retrytest.Step{"cut": retrytest.Real().Cut(n), "stall": retrytest.Real().Stall(n)} {
			resp, err := get(t, retrytest.NewTransport(t, serves("12345"), step.Always()))
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err, "%s after %d", name, n)
			assert.Equal(t, "12345", string(got))
		}
	}
}

// Some clients look at the type of a body: the body of a 101 response can be written to.
func TestWholeBodyOfTheBaseIsHandedOn(t *testing.T) {
	for _, step := range []retrytest.Step{retrytest.Real(), retrytest.Real().Slow(time.Nanosecond), retrytest.Real().Unsized()} {
		body := io.NopCloser(strings.NewReader("12345"))
		base := roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: body}, nil
		})
		resp, err := get(t, retrytest.NewTransport(t, base, step.Always()))
		require.NoError(t, err)
		assert.Equal(t, body, resp.Body)
	}
}

func TestUpgradeIsNotCut(t *testing.T) {
	for _, step := range []retrytest.Step{retrytest.Real().Cut(1), retrytest.Real().Stall(1)} {
		body := struct{ io.ReadWriteCloser }{}
		base := roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusSwitchingProtocols, Header: http.Header{}, Body: body}, nil
		})
		resp, err := get(t, retrytest.NewTransport(t, base, step.Always()))
		require.NoError(t, err)
		assert.Equal(t, io.ReadCloser(body), resp.Body)
	}
}

// Some bodies return no bytes and no error before they end.
func TestShortBodyThatReadsNothingIsNotCut(t *testing.T) {
	base := roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := serves("12345").RoundTrip(req)
		resp.Body = io.NopCloser(&pauses{Reader: resp.Body})
		return resp, err
	})
	resp, err := get(t, retrytest.NewTransport(t, base, retrytest.Real().Cut(5).Always()))
	require.NoError(t, err)
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, "12345", string(got))
}

// pauses reads nothing every second time.
type pauses struct {
	io.Reader
	paused bool
}

func (p *pauses) Read(b []byte) (int, error) {
	p.paused = !p.paused
	if !p.paused {
		return 0, nil
	}
	return p.Reader.Read(b)
}

// A client that cancels its context, or closes a body, before it has read all makes the same mistake with
// net/http.
func TestBodyEndsWithItsContextOrWithClose(t *testing.T) {
	for name, end := range map[string]struct {
		by   func(cancel context.CancelCauseFunc, body io.Closer)
		want error
	}{
		"the context": {func(cancel context.CancelCauseFunc, _ io.Closer) { cancel(errEnough) }, errEnough},
		"Close":       {func(_ context.CancelCauseFunc, body io.Closer) { body.Close() }, http.ErrBodyReadAfterClose},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://shop.example/", nil)
			require.NoError(t, err)
			resp, err := retrytest.NewTransport(t, nil, retrytest.Status(200).Body("12345").Always()).RoundTrip(req)
			require.NoError(t, err)
			_, err = io.ReadFull(resp.Body, make([]byte, 2))
			require.NoError(t, err)
			end.by(cancel, resp.Body)
			got, err := io.ReadAll(resp.Body)
			assert.Equal(t, end.want, err)
			assert.Empty(t, got)
		})
	}
}

func TestStalledBodyEndsWithItsContextOrWithClose(t *testing.T) {
	for name, end := range map[string]struct {
		by   func(cancel context.CancelCauseFunc, body io.Closer)
		want error
	}{
		"the context": {func(cancel context.CancelCauseFunc, _ io.Closer) { cancel(errEnough) }, errEnough},
		"Close":       {func(_ context.CancelCauseFunc, body io.Closer) { body.Close() }, http.ErrBodyReadAfterClose},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := retrytest.NewTransport(t, serves("12345"), retrytest.Real().Stall(2).Always())
				ctx, cancel := context.WithCancelCause(t.Context())
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://shop.example/", nil)
				require.NoError(t, err)
				resp, err := rt.RoundTrip(req)
				require.NoError(t, err)
				began := time.Now()
				time.AfterFunc(time.Minute, func() { end.by(cancel, resp.Body) })
				got, err := io.ReadAll(resp.Body)
				assert.Equal(t, "12", string(got))
				assert.Equal(t, end.want, err)
				assert.Equal(t, time.Minute, time.Since(began))
				cancel(nil)
			})
		})
	}
}

var errEnough = errors.New("enough")

func TestHangAndSlowEndWithTheContext(t *testing.T) {
	for name, step := range map[string]retrytest.Step{
		"hang":                 retrytest.Hang(),
		"slow":                 retrytest.Status(200).Slow(time.Hour),
		"slow, a real answer":  retrytest.Real().Slow(time.Hour),
		"slow, and an error":   retrytest.Refused().Slow(time.Hour),
		"slow, and then hangs": retrytest.Hang().Slow(time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := retrytest.NewTransport(t, serves("12345"), step.Always())
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errEnough)
				defer cancel()
				body := &closes{Reader: strings.NewReader("upload")}
				req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://shop.example/", body)
				require.NoError(t, err)
				began := time.Now()
				_, err = rt.RoundTrip(req)
				assert.Equal(t, errEnough, err)
				assert.Equal(t, time.Minute, time.Since(began))
				assert.Positive(t, body.closed)
			})
		})
	}
}

// As with net/http, such a request does not arrive.
func TestRequestThatCannotBeSent(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errEnough)
	for name, step := range map[string]retrytest.Step{
		"a status": retrytest.Status(200), "an error": retrytest.Refused(), "the real answer": retrytest.Real(),
	} {
		rt := retrytest.NewTransport(t, serves("12345"), step.Always())
		body := &closes{Reader: strings.NewReader("upload")}
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://shop.example/", body)
		require.NoError(t, err)
		_, err = rt.RoundTrip(req)
		assert.Equal(t, errEnough, err, name)
		assert.Equal(t, 1, body.closed, name)

		_, err = rt.RoundTrip(&http.Request{Body: body})
		assert.EqualError(t, err, "retrytest: the request has no URL", name)
		assert.Equal(t, 2, body.closed, name)
		assert.Empty(t, rt.Records(), name)
	}
}

func TestSlowWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, step := range map[string]retrytest.Step{
			"an answer": retrytest.Status(200).Slow(time.Minute), "the real answer": retrytest.Real().Slow(time.Minute),
		} {
			began := time.Now()
			_, err := get(t, retrytest.NewTransport(t, serves(""), step.Always()))
			require.NoError(t, err)
			assert.Equal(t, time.Minute, time.Since(began), name)
		}
	})
}

// closes counts how often it is closed.
type closes struct {
	io.Reader
	closed int
}

func (c *closes) Close() error { c.closed++; return nil }

func TestRequestBodyIsClosedAndRecorded(t *testing.T) {
	for name, c := range map[string]struct {
		step retrytest.Step
		body string
	}{
		"a status":       {retrytest.Status(200), "upload"},
		"an early one":   {retrytest.Status(401).Early(), ""},
		"a reset":        {retrytest.Reset(), "upload"},
		"never sent":     {retrytest.Refused(), ""},
		"the real one":   {retrytest.Real(), "upload"},
		"a stream's end": {retrytest.RefusedStream(), "upload"},
	} {
		t.Run(name, func(t *testing.T) {
			body := &closes{Reader: strings.NewReader("upload")}
			rt := retrytest.NewTransport(t, serves("12345"), c.step.Always())
			req, err := http.NewRequest(http.MethodPut, "http://shop.example/", body)
			require.NoError(t, err)
			resp, err := rt.RoundTrip(req)
			if err == nil {
				require.NoError(t, resp.Body.Close())
			}
			assert.Equal(t, 1, body.closed)
			r := rt.Records()[0]
			assert.Equal(t, c.body, string(r.Body))
			assert.Equal(t, c.body != "", r.Whole)
			assert.Same(t, body, req.Body, "the request is the caller's")
		})
	}
}

func TestBodyThatFailsIsTheErrorOfTheRequest(t *testing.T) {
	rt := retrytest.NewTransport(t, nil)
	req, err := http.NewRequest(http.MethodPut, "http://shop.example/", io.MultiReader(strings.NewReader("up"), failing{}))
	require.NoError(t, err)
	_, err = rt.RoundTrip(req)
	assert.Equal(t, errEnough, err)
	assert.Equal(t, "up", string(rt.Records()[0].Body))
	assert.False(t, rt.Records()[0].Whole)
}

// A body often fails because the context has ended, which is then the error of the request, as with net/http.
func TestBodyThatFailsWithTheContextIsTheEndOfTheContext(t *testing.T) {
	for range 20 {
		ctx, cancel := context.WithCancelCause(t.Context())
		body := readerFunc(func([]byte) (int, error) {
			cancel(errEnough)
			return 0, io.ErrUnexpectedEOF
		})
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://shop.example/", body)
		require.NoError(t, err)
		_, err = retrytest.NewTransport(t, nil).RoundTrip(req)
		assert.Equal(t, errEnough, err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errEnough }

// A Read of the body that is under way does not keep RoundTrip, even if Close does not free it, as with
// net/http.
func TestBodyThatBlocksEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipe, end := io.Pipe()
		body := struct{ io.Reader }{pipe}
		defer end.Close()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errEnough)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://shop.example/", body)
		require.NoError(t, err)
		_, err = retrytest.NewTransport(t, nil).RoundTrip(req)
		assert.Equal(t, errEnough, err)
	})
}

// A base that reads a copy of the body, to sign the request, sends one body.
func TestBodyThatIsReadTwiceIsRecordedOnce(t *testing.T) {
	base := roundTripper(func(req *http.Request) (*http.Response, error) {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		_, _ = io.Copy(io.Discard, body)
		body.Close()
		return serves("").RoundTrip(req)
	})
	rt := retrytest.NewTransport(t, base)
	req, err := http.NewRequest(http.MethodPut, "http://shop.example/", strings.NewReader("upload"))
	require.NoError(t, err)
	_, err = rt.RoundTrip(req)
	require.NoError(t, err)
	assert.Equal(t, "upload", string(rt.Records()[0].Body))
	assert.True(t, rt.Records()[0].Whole)
}

// The Read of a body that is opened again meanwhile counts no more.
func TestBodyThatWasGivenUpIsNotRecorded(t *testing.T) {
	base := roundTripper(func(req *http.Request) (*http.Response, error) {
		first := req.Body
		if _, err := io.ReadFull(first, make([]byte, 3)); err != nil {
			return nil, err
		}
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(body, make([]byte, 2)); err != nil {
			return nil, err
		}
		_, _ = io.Copy(io.Discard, first)
		req.Body = body
		return serves("").RoundTrip(req)
	})
	rt := retrytest.NewTransport(t, base)
	req, err := http.NewRequest(http.MethodPut, "http://shop.example/", strings.NewReader("upload"))
	require.NoError(t, err)
	_, err = rt.RoundTrip(req)
	require.NoError(t, err)
	assert.Equal(t, "upload", string(rt.Records()[0].Body))
}

// A base that opens the body again, as net/http does after a connection was lost, sends one body.
func TestBodyThatIsOpenedAgainIsRecordedOnce(t *testing.T) {
	base := roundTripper(func(req *http.Request) (*http.Response, error) {
		if _, err := io.ReadFull(req.Body, make([]byte, 3)); err != nil {
			return nil, err
		}
		req.Body.Close()
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		req.Body = body
		return serves("").RoundTrip(req)
	})
	rt := retrytest.NewTransport(t, base)
	req, err := http.NewRequest(http.MethodPut, "http://shop.example/", strings.NewReader("upload"))
	require.NoError(t, err)
	_, err = rt.RoundTrip(req)
	require.NoError(t, err)
	assert.Equal(t, "upload", string(rt.Records()[0].Body))
	assert.True(t, rt.Records()[0].Whole)
}

// A body that was sent stays whole, whatever a late Read of it returns.
func TestBodyThatIsReadAfterItsEndStaysWhole(t *testing.T) {
	base := roundTripper(func(req *http.Request) (*http.Response, error) {
		_, _ = io.Copy(io.Discard, req.Body)
		req.Body.Close()
		_, err := req.Body.Read(make([]byte, 1))
		assert.Equal(t, io.ErrClosedPipe, err)
		return serves("").RoundTrip(&http.Request{})
	})
	body, w := io.Pipe()
	go func() {
		_, _ = io.WriteString(w, "upload")
		w.Close()
	}()
	rt := retrytest.NewTransport(t, base)
	req, err := http.NewRequest(http.MethodPut, "http://shop.example/", body)
	require.NoError(t, err)
	_, err = rt.RoundTrip(req)
	require.NoError(t, err)
	assert.Equal(t, "upload", string(rt.Records()[0].Body))
	assert.True(t, rt.Records()[0].Whole)
}

// net/http takes another body than http.NoBody for a body of unknown length, and calls each GetBody.
func TestBaseSeesWhatTheRequestHasNot(t *testing.T) {
	unopened := func() (io.ReadCloser, error) { return nil, errEnough }
	for name, c := range map[string]struct {
		body io.ReadCloser
		open func() (io.ReadCloser, error)
	}{
		"no body":              {nil, nil},
		"http.NoBody":          {http.NoBody, nil},
		"no GetBody":           {io.NopCloser(strings.NewReader("upload")), nil},
		"a GetBody that fails": {io.NopCloser(strings.NewReader("upload")), unopened},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequest(http.MethodPut, "http://shop.example/", nil)
			require.NoError(t, err)
			req.Body, req.GetBody = c.body, c.open
			base := roundTripper(func(got *http.Request) (*http.Response, error) {
				if c.body == nil || c.body == http.NoBody {
					assert.Equal(t, c.body, got.Body)
				}
				if c.open == nil {
					assert.Nil(t, got.GetBody)
				} else {
					_, err := got.GetBody()
					assert.Equal(t, errEnough, err)
				}
				return serves("").RoundTrip(got)
			})
			_, err = retrytest.NewTransport(t, base).RoundTrip(req)
			require.NoError(t, err)
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// The Transport of this library judges each failure as the one that it stands for.
func TestFailuresAreWhatTheyStandFor(t *testing.T) {
	for _, c := range []struct {
		step  retrytest.Step
		class retryhttp.Class
	}{
		{retrytest.Refused(), retryhttp.Unprocessed},
		{retrytest.Reset(), retryhttp.Retryable},
		{retrytest.NoSuchHost(), retryhttp.Final},
		{retrytest.BadCertificate(), retryhttp.Final},
		{retrytest.Timeout(), retryhttp.Unprocessed},
		{retrytest.RefusedStream(), retryhttp.Unprocessed},
		{retrytest.Fail(errEnough), retryhttp.Retryable},
		{retrytest.Status(503), retryhttp.Retryable},
		{retrytest.Status(404), retryhttp.Final},
	} {
		rt := retrytest.NewTransport(t, nil, c.step.Always())
		var classes []retryhttp.Class
		resp, err := get(t, retryhttp.New(rt, retryhttp.Policy{MaxAttempts: 1, Classify: func(a retryhttp.Attempt) retryhttp.Class {
			classes = append(classes, retryhttp.Classify(a))
			return retryhttp.Final
		}}))
		if err == nil {
			require.NoError(t, resp.Body.Close())
		}
		assert.Equal(t, []retryhttp.Class{c.class}, classes, rt.Records()[0].Step)
	}
}

func TestIdleConnectionsOfTheBaseAreClosed(t *testing.T) {
	base := &closesIdle{}
	(&http.Client{Transport: retrytest.NewTransport(t, base)}).CloseIdleConnections()
	assert.Equal(t, 1, base.closed)
	retrytest.NewTransport(t, nil).CloseIdleConnections()
}

type closesIdle struct {
	serves
	closed int
}

func (c *closesIdle) CloseIdleConnections() { c.closed++ }

// Also of a base that breaks the rules of an http.RoundTripper.
func TestWhatTheBaseReturnsIsReturned(t *testing.T) {
	body := io.NopCloser(strings.NewReader("12345"))
	for name, c := range map[string]struct {
		resp *http.Response
		err  error
		body io.ReadCloser
	}{
		"an error":                 {nil, errEnough, nil},
		"neither":                  {nil, nil, nil},
		"an error with a response": {&http.Response{StatusCode: 200, Body: body}, errEnough, body},
		"a response without body":  {&http.Response{StatusCode: 200}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			base := roundTripper(func(*http.Request) (*http.Response, error) { return c.resp, c.err })
			resp, err := get(t, retrytest.NewTransport(t, base, retrytest.Real().Cut(1).Always()))
			assert.Equal(t, c.err, err)
			assert.Same(t, c.resp, resp)
			if resp != nil {
				assert.Equal(t, c.body, resp.Body)
			}
		})
	}
}
