package retryhttp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

func TestGetBodyIsCarriedByAttempts(t *testing.T) {
	// net/http needs it to send a request again that a server refused on
	// HTTP/2, or that met a dead connection.
	for name, request := range bodies.Kinds(t) {
		if name == "stream" {
			continue // it may outgrow what is kept: see below
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
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
				resp, err := rt.RoundTrip(request([]byte("0123456789")))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, 200, resp.StatusCode)
			})
		})
	}
}

// A base that finds a GetBody counts on it (a signer that hashes the body, say) and
// buffers otherwise. So a stream has one only if all of it will be kept.
func TestGetBodyIsCarriedByAttemptsOfAStreamThatIsKept(t *testing.T) {
	for _, tc := range []struct {
		name           string
		length         int64
		limit          int64
		attemptTimeout time.Duration
		maxAttempts    int
		want           bool
	}{
		{name: "length unknown", length: -1},
		{name: "length unknown, as zero", length: 0},
		{name: "at the default limit", length: 64 << 10, want: true},
		{name: "past the default limit", length: 64<<10 + 1},
		{name: "at a limit", length: 10, limit: 10, want: true},
		{name: "past a limit", length: 11, limit: 10},
		{name: "nothing is kept", length: 1, limit: -1},
		{name: "nothing is kept without retries", length: 1, attemptTimeout: time.Hour, maxAttempts: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			base := script.New(script.Fail(errBroken), script.Status(503))
			p := noWait
			p.RecordBytes, p.AttemptTimeout, p.MaxAttempts = tc.limit, tc.attemptTimeout, tc.maxAttempts
			req, err := http.NewRequest("PUT", "http://host.example/", io.MultiReader(strings.NewReader("x")))
			require.NoError(t, err)
			req.ContentLength = tc.length
			resp, err := retryhttp.New(base, p).RoundTrip(req)
			if err == nil {
				require.NoError(t, resp.Body.Close())
			}
			require.NotEmpty(t, base.Requests())
			for _, r := range base.Requests() {
				assert.Equal(t, tc.want, r.GetBody != nil)
			}
		})
	}
}

// net/http takes any GET for safe, and sends it again if it has a GetBody.
func TestGetBodyIsNotCarriedByAttemptsOfARefusedMethod(t *testing.T) {
	for _, p := range []retryhttp.Policy{{AttemptTimeout: time.Hour}, {RetryUnprocessed: true}} {
		p.Idempotent = func(*http.Request) bool { return false }
		base := script.New(script.Fail(errBroken))
		req, err := http.NewRequest("GET", "http://host.example/", bodies.ReaderAt(bytes.NewReader([]byte("x"))))
		require.NoError(t, err)
		_, err = retryhttp.New(base, p).RoundTrip(req)
		require.Error(t, err)
		require.Len(t, base.Requests(), 1)
		assert.Nil(t, base.Requests()[0].GetBody)
	}
}

// net/http sends a request that has a key and a GetBody again by itself, unseen.
func TestGetBodyIsNotCarriedByAttemptsOfAnUnacceptedKey(t *testing.T) {
	byMethod := func(req *http.Request) bool { return retryhttp.Idempotent(&http.Request{Method: req.Method}) }
	unprocessed := func(a retryhttp.Attempt) retryhttp.Class {
		if a.Response != nil && a.Response.StatusCode == 429 {
			return retryhttp.Unprocessed
		}
		return retryhttp.Classify(a)
	}
	for name, body := range map[string]func() (io.Reader, func() (io.ReadCloser, error)){
		"in memory": func() (io.Reader, func() (io.ReadCloser, error)) { return strings.NewReader("x"), nil },
		"stream":    func() (io.Reader, func() (io.ReadCloser, error)) { return io.MultiReader(strings.NewReader("x")), nil },
		"seeker": func() (io.Reader, func() (io.ReadCloser, error)) {
			return bodies.ReaderAt(bytes.NewReader([]byte("x"))), nil
		},
		"custom GetBody": func() (io.Reader, func() (io.ReadCloser, error)) {
			get := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("x")), nil }
			return io.MultiReader(strings.NewReader("x")), get
		},
	} {
		for _, p := range []retryhttp.Policy{
			{RetryUnprocessed: true},
			{RetryUnprocessed: true, AttemptTimeout: time.Hour},
			{},
			{MaxAttempts: 1},
		} {
			t.Run(name, func(t *testing.T) {
				p.Idempotent, p.Classify, p.Backoff = byMethod, unprocessed, retryhttp.Constant(0)
				base := script.New(script.Status(429), script.Status(429), script.Status(200))
				reader, getBody := body()
				req, err := http.NewRequest("POST", "http://host.example/", reader)
				require.NoError(t, err)
				req.ContentLength = 1
				if getBody != nil {
					req.GetBody = getBody
				}
				had := req.GetBody != nil
				req.Header.Set("Idempotency-Key", "17")
				resp, err := retryhttp.New(base, p).RoundTrip(req)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				attempts := 1
				if p.RetryUnprocessed {
					attempts = 3
				}
				require.Len(t, base.Requests(), attempts)
				for _, r := range base.Requests() {
					assert.Nil(t, r.GetBody)
				}
				assert.Equal(t, had, req.GetBody != nil, "the caller's request is left alone")
			})
		}
	}
}

func TestGetBodyThatFailsEndsTheRetries(t *testing.T) {
	errGone := errors.New("the file is gone")
	cases := []struct {
		name string
		step script.Step
		body func() (io.ReadCloser, error)
		err  error
	}{
		{"after a response", script.Status(503), func() (io.ReadCloser, error) { return nil, errGone }, nil},
		{"after an error", script.Fail(errBroken), func() (io.ReadCloser, error) { return nil, errGone }, errGone},
		{"neither a body nor an error", script.Fail(errBroken), func() (io.ReadCloser, error) { return nil, nil }, errBroken},
	}
	unprocessed := func(retryhttp.Attempt) retryhttp.Class { return retryhttp.Unprocessed }
	for _, method := range []string{"PUT", "POST"} {
		for _, tc := range cases {
			t.Run(method+" "+tc.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					budget := &countingBudget{}
					retried := 0
					p := retryhttp.Policy{
						Budget: budget, Classify: unprocessed, RetryUnprocessed: true, OnRetry: func(retryhttp.Attempt) { retried++ },
					}
					req, err := http.NewRequest(method, "http://host.example/", strings.NewReader("x"))
					require.NoError(t, err)
					req.GetBody = tc.body
					start := time.Now()
					resp, err := retryhttp.New(script.New(tc.step), p).RoundTrip(req)
					assert.Zero(t, time.Since(start), "no wait")
					assert.Zero(t, retried)
					assert.Equal(t, 1, budget.withdrawn)
					assert.Equal(t, 1, budget.refunded)
					if tc.err == nil {
						require.NoError(t, err)
						got, err := io.ReadAll(resp.Body)
						require.NoError(t, err)
						assert.Equal(t, "body of 503", string(got), "the body comes unread")
						assert.Equal(t, retryhttp.StopBody, retryhttp.OutcomeOf(resp).Stop)
						return
					}
					assert.Nil(t, resp)
					assert.ErrorIs(t, err, errBroken)
					assert.ErrorIs(t, err, tc.err)
					assert.Equal(t, retryhttp.StopBody, errorOf(t, err).Stop)
				})
			})
		}
	}
}

func TestGetBodyThatPanicsDoesNotCloseTheFirstBodyTwice(t *testing.T) {
	body := &bodies.Tracked{Reader: strings.NewReader("x")}
	req, _ := http.NewRequest("PUT", "http://server/", body)
	req.GetBody = func() (io.ReadCloser, error) { panic(http.ErrAbortHandler) }
	assert.Panics(t, func() { retryhttp.New(script.New(script.Status(503)), retryhttp.Policy{}).RoundTrip(req) })
	assert.Equal(t, int32(1), body.Closes.Load())
}

func TestGetBodyIsCalledBeforeTheWaitAndClosedOnCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		opened := &bodies.Tracked{Reader: strings.NewReader("x")}
		original := &bodies.Tracked{Reader: strings.NewReader("x")}
		start := time.Now()
		var openedAt time.Time
		req, err := http.NewRequestWithContext(ctx, "PUT", "http://host.example/", original)
		require.NoError(t, err)
		req.GetBody = func() (io.ReadCloser, error) { openedAt = time.Now(); return opened, nil }
		time.AfterFunc(time.Second, cancel)
		p := retryhttp.Policy{Backoff: retryhttp.Constant(time.Minute)}
		_, err = retryhttp.New(script.New(script.Status(503)), p).RoundTrip(req)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, start, openedAt)
		assert.Equal(t, int32(1), opened.Closes.Load())
		assert.Equal(t, int32(1), original.Closes.Load())
	})
}

// stalledUpload is a PUT whose body has a GetBody and stalls, and a base that still
// reads it when it returns an error.
func stalledUpload(t *testing.T, ctx context.Context) (*http.Request, *script.Transport, func()) {
	t.Helper()
	release := make(chan struct{})
	get := func() (io.ReadCloser, error) {
		return &bodies.Hooked{OnRead: func([]byte) (int, error) { <-release; return 0, io.EOF }}, nil
	}
	body, _ := get()
	req, err := http.NewRequestWithContext(ctx, "PUT", "http://host.example/", body)
	require.NoError(t, err)
	req.GetBody = get
	base := script.New(func(req *http.Request) (*http.Response, error) {
		go func() { _, _ = io.ReadAll(req.Body); _ = req.Body.Close() }()
		synctest.Wait()
		return nil, errBroken
	})
	return req, base, func() { close(release) }
}

func TestGetBodyWaitsForAStalledReadWithinTheTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		req, base, release := stalledUpload(t, t.Context())
		defer release()
		p := retryhttp.Policy{
			MaxElapsed: 100 * time.Millisecond, Backoff: retryhttp.Constant(10 * time.Millisecond), MaxAttempts: 2,
		}
		_, err := retryhttp.New(base, p).RoundTrip(req)
		require.Error(t, err)
		assert.Equal(t, []time.Duration{10 * time.Millisecond}, base.Waits())
	})
}

func TestGetBodyThatWaitsIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		req, base, release := stalledUpload(t, ctx)
		defer release()
		time.AfterFunc(100*time.Millisecond, cancel)
		start := time.Now()
		budget := &countingBudget{}
		p := retryhttp.Policy{Budget: budget, Backoff: retryhttp.Constant(time.Second)}
		_, err := retryhttp.New(base, p).RoundTrip(req)
		assert.Equal(t, retryhttp.StopCanceled, errorOf(t, err).Stop)
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
		assert.Equal(t, budget.withdrawn, budget.refunded)
	})
}
