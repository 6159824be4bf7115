package retryhttp_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOutcomeHasTheTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(req *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return script.Response(req, 503), nil
		}
		p := retryhttp.Policy{MaxAttempts: 3, Backoff: retryhttp.Constant(5 * time.Second)}
		resp, err := retryhttp.New(script.New(slow), p).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		assert.Equal(t,
			retryhttp.Outcome{Attempts: 3, Elapsed: 13 * time.Second, Waited: 10 * time.Second, Stop: retryhttp.StopAttempts},
			retryhttp.OutcomeOf(resp))
	})
}

func TestOutcomeIsNotInheritedWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := retryhttp.New(script.New(script.Status(503), script.Status(200)), retryhttp.Policy{})
		first, err := rt.RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		require.Equal(t, 2, retryhttp.OutcomeOf(first).Attempts)

		second, err := rt.RoundTrip(get(t, first.Request.Context()))
		require.NoError(t, err)
		assert.Equal(t, retryhttp.Outcome{Attempts: 1, Stop: retryhttp.StopFinal}, retryhttp.OutcomeOf(second))

		third, err := rt.RoundTrip(first.Request)
		require.NoError(t, err)
		assert.Equal(t, 1, retryhttp.OutcomeOf(third).Attempts, "not even where the request itself is sent again")
	})
}

func TestOutcomeRecordDoesNotKeepOldResponses(t *testing.T) {
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

func TestResponseRequestIsTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, "value")
		req, err := http.NewRequestWithContext(ctx, "POST", "http://host.example/", strings.NewReader("x"))
		require.NoError(t, err)
		base := script.New(script.Status(503), script.Status(200))
		p := retryhttp.Policy{IdempotencyKey: retryhttp.RandomKey, AttemptTimeout: time.Minute}
		resp, err := retryhttp.New(base, p).RoundTrip(req)
		require.NoError(t, err)

		assert.NotContains(t, resp.Request.Header, "Idempotency-Key")
		assert.Equal(t, req.URL, resp.Request.URL)
		assert.Equal(t, req.Body, resp.Request.Body)
		assert.Equal(t, "value", resp.Request.Context().Value(key{}))
		require.NoError(t, resp.Body.Close())
		assert.NoError(t, resp.Request.Context().Err(), "not the attempt's context, which has ended")
		for _, sent := range base.Requests() {
			assert.NotSame(t, sent, resp.Request)
		}
		assert.Equal(t, 2, retryhttp.OutcomeOf(resp).Attempts)
	})
}

func TestResponseRequestIsSetWhenTheBaseForgetsIt(t *testing.T) {
	req := get(t, t.Context())
	resp, err := retryhttp.New(script.New(func(req *http.Request) (*http.Response, error) {
		resp := script.Response(req, 200)
		resp.Request = nil
		return resp, nil
	}), retryhttp.Policy{}).RoundTrip(req)
	require.NoError(t, err)
	assert.Same(t, req, resp.Request)
}

func TestNestedRetriesDoNotMultiply(t *testing.T) {
	idempotent := func(*http.Request) bool { return true }
	cases := []struct {
		name     string
		steps    []script.Step
		inner    retryhttp.Policy
		method   string
		sent     int
		err      bool
		stop     retryhttp.Stop
		attempts int
		waited   time.Duration
		deposits int
	}{
		{
			name: "the inner one gave up on a response", steps: []script.Step{script.Status(503)},
			sent: 4, stop: retryhttp.StopNested, attempts: 4, waited: 3 * time.Second,
		},
		{
			name: "the inner one gave up on an error", steps: []script.Step{script.Fail(errBroken)},
			sent: 4, err: true, stop: retryhttp.StopNested, attempts: 4, waited: 3 * time.Second,
		},
		{
			name: "the inner one gave up at once", steps: []script.Step{script.Status(503)}, method: "POST",
			sent: 1, stop: retryhttp.StopNested, attempts: 1,
		},
		{
			name: "the inner one succeeded after retries", steps: []script.Step{script.Status(503), script.Status(200)},
			sent: 2, stop: retryhttp.StopFinal, attempts: 2, waited: time.Second, deposits: 1,
		},
		{
			name: "the inner one succeeded at once", steps: []script.Step{script.Status(200)},
			sent: 1, stop: retryhttp.StopFinal, attempts: 1, deposits: 1,
		},
		{
			name: "the inner one met a final error", steps: []script.Step{script.Fail(retryhttp.Permanent(errBroken))},
			sent: 1, err: true, stop: retryhttp.StopFinal, attempts: 1,
		},
		{
			name:  "first the outer one retried, and then the inner one",
			steps: []script.Step{script.Status(503), script.Status(503), script.Status(200)},
			inner: retryhttp.Policy{Classify: func(a retryhttp.Attempt) retryhttp.Class {
				if retryhttp.AttemptOf(a.Request.Context()).Number == 1 {
					return retryhttp.Final
				}
				return retryhttp.Classify(a)
			}},
			sent: 3, stop: retryhttp.StopFinal, attempts: 3, waited: 2 * time.Second, deposits: 1,
		},
		{
			name: "the inner one takes it for final", steps: []script.Step{script.Status(503)},
			inner: retryhttp.Policy{Classify: func(retryhttp.Attempt) retryhttp.Class { return retryhttp.Final }},
			sent:  4, stop: retryhttp.StopAttempts, attempts: 4, waited: 3 * time.Second,
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := script.New(tc.steps...)
				budget := &countingBudget{}
				tc.inner.Backoff = retryhttp.Constant(time.Second)
				outer := retryhttp.Policy{Idempotent: idempotent, Budget: budget, Backoff: retryhttp.Constant(time.Second)}
				var done retryhttp.Outcome
				outer.OnDone = func(_ retryhttp.Attempt, o retryhttp.Outcome) { done = o }
				req := get(t, t.Context())
				req.Method = tc.method
				resp, err := retryhttp.New(retryhttp.New(base, tc.inner), outer).RoundTrip(req)
				var o retryhttp.Outcome
				if tc.err {
					e := errorOf(t, err)
					o = e.Outcome
					assert.ErrorIs(t, err, errBroken)
				} else {
					require.NoError(t, err)
					o = retryhttp.OutcomeOf(resp)
				}
				assert.Len(t, base.Requests(), tc.sent)
				assert.Equal(t, tc.stop, o.Stop)
				assert.Equal(t, tc.attempts, o.Attempts)
				assert.Equal(t, tc.waited, o.Waited)
				assert.Equal(t, tc.deposits, budget.deposit)
				assert.Equal(t, tc.stop, done.Stop)
				assert.Equal(t, tc.attempts, done.Attempts)
			})
		})
	}
}

func TestNestedRetriesOfThreeLayersDoNotMultiply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script.New(script.Status(http.StatusServiceUnavailable))
		var rt http.RoundTripper = base
		for range 3 {
			rt = retryhttp.New(rt, retryhttp.Policy{MaxAttempts: 3})
		}
		req, err := http.NewRequest("GET", "http://example.test/", nil)
		require.NoError(t, err)
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err)
		assert.Len(t, base.Requests(), 3, "and not 27")
		assert.Equal(t, 3, retryhttp.OutcomeOf(resp).Attempts)
		assert.Equal(t, retryhttp.StopNested, retryhttp.OutcomeOf(resp).Stop)
	})
}

// The body of a failed response is awaited for a moment within the attempt. If the body does not come,
// the response that goes up is a copy.
func TestNestedRetriesDoNotMultiplyWhenAFailedBodyIsSlow(t *testing.T) {
	for name, edit := range map[string]func(*retryhttp.Policy){
		"PeekBytes":   func(p *retryhttp.Policy) { p.PeekBytes = 100 },
		"BufferBytes": func(p *retryhttp.Policy) { p.BufferBytes = 100 },
		"BufferBytes in time": func(p *retryhttp.Policy) {
			p.BufferBytes, p.AttemptTimeout = 100, time.Minute
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := script.New(func(req *http.Request) (*http.Response, error) {
					text := strings.NewReader("sorry")
					resp := script.Response(req, 503)
					resp.Body = &bodies.Hooked{OnRead: func(p []byte) (int, error) {
						time.Sleep(time.Second)
						return text.Read(p)
					}}
					return resp, nil
				})
				p := retryhttp.Policy{MaxAttempts: 3, Backoff: retryhttp.Constant(0), Budget: retryhttp.Unlimited{}}
				above := p
				edit(&above)
				resp, err := retryhttp.New(retryhttp.New(base, p), above).RoundTrip(get(t, t.Context()))
				require.NoError(t, err)
				text, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				assert.Equal(t, "sorry", string(text))
				require.NoError(t, resp.Body.Close())
				assert.Len(t, base.Requests(), 3)
				o := retryhttp.OutcomeOf(resp)
				assert.Equal(t, 3, o.Attempts)
				assert.Equal(t, retryhttp.StopNested, o.Stop)
			})
		})
	}
}

func TestNestedRetriesDoNotMultiplyUnderAnAttemptTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script.New(script.Status(503))
		p := retryhttp.Policy{Backoff: retryhttp.Constant(time.Second), Budget: retryhttp.Unlimited{}}
		outer := p
		outer.AttemptTimeout = 2500 * time.Millisecond
		_, err := retryhttp.New(retryhttp.New(base, p), outer).RoundTrip(get(t, t.Context()))
		t.Log(err)
		assert.LessOrEqual(t, len(base.Requests()), 4, "two layers of 4 attempts")
	})
}

func TestNestedAttemptTimeoutIsRetriedUnlessTheInnerTransportHasRetried(t *testing.T) {
	slow := func(step script.Step) script.Step { // it ignores its context
		return func(req *http.Request) (*http.Response, error) {
			time.Sleep(2 * time.Second)
			return step(req)
		}
	}
	for _, late := range []script.Step{script.Status(503), script.Fail(errBroken)} {
		for _, tc := range []struct {
			steps []script.Step
			stop  retryhttp.Stop
		}{
			{[]script.Step{slow(late)}, retryhttp.StopAttempts},
			{[]script.Step{script.Status(503), slow(late)}, retryhttp.StopNested},
		} {
			synctest.Test(t, func(t *testing.T) {
				base := script.New(tc.steps...)
				inner := retryhttp.New(base, retryhttp.Policy{Backoff: retryhttp.Constant(0)})
				p := retryhttp.Policy{AttemptTimeout: time.Second, MaxAttempts: 2}
				_, err := retryhttp.New(inner, p).RoundTrip(get(t, t.Context()))
				assert.Equal(t, tc.stop, errorOf(t, err).Stop)
				assert.Equal(t, 2, errorOf(t, err).Attempts)
				assert.Len(t, base.Requests(), 2)
			})
		}
	}
}

// The caller of an Error has no response that reports what the server did.
func TestErrorIsAmbiguousIfItsLastAttemptMayHaveTakenEffect(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for name, tc := range map[string]struct {
		method string
		keyed  bool
		err    error
		class  retryhttp.Class
		want   bool
	}{
		"a break":                                     {method: "POST", err: errBroken, class: retryhttp.Retryable, want: true},
		"a break after a safe method":                 {method: "GET", err: errBroken, class: retryhttp.Retryable},
		"a break after a refused stream":              {method: "POST", err: errBroken, class: retryhttp.Unprocessed},
		"an error that is Final":                      {method: "DELETE", err: errBroken, class: retryhttp.Final, want: true},
		"a host that does not exist":                  {method: "POST", err: &net.DNSError{IsNotFound: true}, class: retryhttp.Final},
		"a certificate that is refused":               {method: "POST", err: &tls.CertificateVerificationError{Err: errBroken}, class: retryhttp.Final},
		"a failed dial that is Final":                 {method: "POST", err: refused, class: retryhttp.Final},
		"a failed dial that net/http may have resent": {method: "POST", keyed: true, err: refused, class: retryhttp.Final, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := retryhttp.Policy{MaxAttempts: 1, Classify: func(retryhttp.Attempt) retryhttp.Class { return tc.class }}
			req := get(t, t.Context())
			req.Method = tc.method
			if tc.keyed {
				req.Header.Set("Idempotency-Key", "k")
			}
			inner := retryhttp.New(script.New(script.Fail(tc.err)), p)
			_, err := inner.RoundTrip(req)
			assert.Equal(t, tc.want, errorOf(t, err).Ambiguous)
			_, err = retryhttp.New(inner, retryhttp.Policy{}).RoundTrip(req)
			assert.Equal(t, tc.want, errorOf(t, err).Ambiguous, "above a nested Transport")
		})
	}
}

func TestRequestThatWasNotSentIsNotAmbiguous(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	inner := retryhttp.New(script.New(script.Status(200)), retryhttp.Policy{})
	tooLate := script.Step(func(req *http.Request) (*http.Response, error) {
		cancel()
		return inner.RoundTrip(req)
	})
	req := get(t, ctx)
	req.Method = "POST"
	for range 2 { // the context ends within the first RoundTrip, and has ended before the second
		_, err := retryhttp.New(tooLate, retryhttp.Policy{}).RoundTrip(req)
		assert.False(t, errorOf(t, err).Ambiguous)
	}
}

func TestNestedOutcomeIsNotAnotherRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// errgroup.WithContext does the same: the first failure is the cause for the
		// others.
		ctx, cancel := context.WithCancelCause(t.Context())
		_, base, stop := memnet.Serve(http.HandlerFunc(hang))
		defer stop()
		go func() {
			p := retryhttp.Policy{Backoff: retryhttp.Constant(time.Second)}
			_, err := retryhttp.New(script.New(script.Status(503), script.Fail(errBroken)), p).RoundTrip(get(t, ctx))
			cancel(err)
		}()
		_, err := retryhttp.New(base, retryhttp.Policy{}).RoundTrip(get(t, ctx))
		e := errorOf(t, err)
		assert.Equal(t, 1, e.Attempts, "%v", err)
		assert.Zero(t, e.Waited)
	})
}

func TestErrorText(t *testing.T) {
	gaveUp := func(attempts int, elapsed time.Duration, stop retryhttp.Stop, err error) *retryhttp.Error {
		return &retryhttp.Error{
			Outcome: retryhttp.Outcome{Attempts: attempts, Elapsed: elapsed, Stop: stop},
			Err:     err,
		}
	}
	cases := []struct {
		name string
		err  *retryhttp.Error
		want string
	}{
		{"one attempt", gaveUp(1, 0, retryhttp.StopFinal, errBroken), "connection broken"},
		{"one attempt was allowed", gaveUp(1, 0, retryhttp.StopAttempts, errBroken), "connection broken"},
		{"not safe to repeat", gaveUp(1, time.Second, retryhttp.StopNotIdempotent, errBroken), "connection broken"},
		{"no token", gaveUp(1, 0, retryhttp.StopBudget, errBroken), "connection broken"},
		{
			"several", gaveUp(4, 1234567*time.Microsecond, retryhttp.StopAttempts, errBroken),
			"gave up after 4 attempts in 1.235s (attempts): connection broken",
		},
		{
			"nested", gaveUp(4, 0, retryhttp.StopNested, gaveUp(4, time.Second, retryhttp.StopBudget, errBroken)),
			"gave up after 4 attempts in 1s (budget): connection broken",
		},
		{
			"nested, one attempt",
			gaveUp(1, 0, retryhttp.StopNested, gaveUp(1, 0, retryhttp.StopNotIdempotent, errBroken)),
			"connection broken",
		},
		{
			"nested, by hand", gaveUp(2, time.Second, retryhttp.StopNested, errBroken),
			"gave up after 2 attempts in 1s (nested): connection broken",
		},
		{
			"over another request's",
			gaveUp(4, 2*time.Second, retryhttp.StopAttempts, gaveUp(4, time.Second, retryhttp.StopBudget, errBroken)),
			"gave up after 4 attempts in 2s (attempts): gave up after 4 attempts in 1s (budget): connection broken",
		},
		{
			"nested, after others",
			gaveUp(3, 2*time.Second, retryhttp.StopNested, gaveUp(1, 0, retryhttp.StopNotIdempotent, errBroken)),
			"gave up after 3 attempts in 2s (nested): connection broken",
		},
		{"no Stop", gaveUp(2, 0, "", errBroken), "gave up after 2 attempts in 0s (no reason was recorded): connection broken"},
		{"made by hand", &retryhttp.Error{}, "no error was recorded"},
		{
			"a URL with secrets",
			&retryhttp.Error{
				Outcome: retryhttp.Outcome{Attempts: 1},
				Err: fmt.Errorf("base: %w",
					&url.Error{Op: "Get", URL: "https://user:pass@host.example/path?token=secret#frag", Err: errBroken}),
			},
			`base: Get "https://host.example/path": connection broken`,
		},
		{
			"a URL that is none",
			&retryhttp.Error{
				Outcome: retryhttp.Outcome{Attempts: 1}, Err: &url.Error{Op: "Get", URL: "http://h\x7f/?secret", Err: errBroken},
			},
			`Get "invalid URL": connection broken`,
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			assert.EqualError(t, tc.err, tc.want)
		})
	}
}

// Programs read codes from the texts of HTTP/2's errors.
func TestErrorTextEndsWithTheBasesText(t *testing.T) {
	const text = "stream error: stream ID 1; INTERNAL_ERROR; received from peer"
	failed := errors.New(text)
	for name, tc := range map[string]struct {
		edit   func(*http.Request)
		policy retryhttp.Policy
		stop   retryhttp.Stop
		want   string
	}{
		"not safe to repeat": {
			edit: func(r *http.Request) { r.Method = "POST" }, stop: retryhttp.StopNotIdempotent, want: text,
		},
		"no body": {
			edit: func(r *http.Request) {
				r.Method, r.Body = "PUT", io.NopCloser(strings.NewReader("x"))
				r.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("the file is gone") }
			},
			stop: retryhttp.StopBody, want: text,
		},
		"no body for a third attempt": {
			edit: func(r *http.Request) {
				r.Method, r.Body = "PUT", io.NopCloser(strings.NewReader("x"))
				opened := false
				r.GetBody = func() (io.ReadCloser, error) {
					if opened {
						return nil, errors.New("the file is gone")
					}
					opened = true
					return io.NopCloser(strings.NewReader("x")), nil
				}
			},
			stop: retryhttp.StopBody,
			want: "gave up after 2 attempts in 0s (body): no body for a retry: the file is gone: " + text,
		},
		"no token":      {policy: retryhttp.Policy{Budget: &countingBudget{refuse: true}}, stop: retryhttp.StopBudget, want: text},
		"no time":       {policy: retryhttp.Policy{MaxElapsed: 1, Backoff: retryhttp.Constant(time.Hour)}, stop: retryhttp.StopDeadline, want: text},
		"four attempts": {stop: retryhttp.StopAttempts, want: "gave up after 4 attempts in 0s (attempts): " + text},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if tc.policy.Backoff == nil {
					tc.policy.Backoff = retryhttp.Constant(0)
				}
				req := get(t, t.Context())
				if tc.edit != nil {
					tc.edit(req)
				}
				_, err := retryhttp.New(script.New(script.Fail(failed)), tc.policy).RoundTrip(req) //nolint:bodyclose // there is none
				assert.Equal(t, tc.stop, errorOf(t, err).Stop)
				assert.EqualError(t, err, tc.want)
				assert.ErrorIs(t, err, failed)
			})
		})
	}
}

func TestErrorTimeout(t *testing.T) {
	failed := func(err error) *retryhttp.Error { return &retryhttp.Error{Err: err} }
	assert.False(t, failed(errBroken).Timeout())
	assert.True(t, failed(os.ErrDeadlineExceeded).Timeout())
	assert.True(t, failed(fmt.Errorf("wrapped: %w", context.DeadlineExceeded)).Timeout())
	var _ interface{ Timeout() bool } = failed(errBroken)

	// A deadline ends the wait after an error that is no timeout.
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(context.DeadlineExceeded) })
		p := retryhttp.Policy{Backoff: retryhttp.Constant(time.Hour)}
		client := &http.Client{Transport: retryhttp.New(script.New(script.Fail(&url.Error{Op: "x", Err: errBroken})), p)}
		_, err := client.Do(get(t, ctx)) //nolint:bodyclose // there is none
		var outer *url.Error
		require.ErrorAs(t, err, &outer)
		assert.True(t, outer.Timeout())
	})
}

func TestErrorTemporary(t *testing.T) {
	failed := func(err error) *retryhttp.Error { return &retryhttp.Error{Err: err} }
	var _ net.Error = failed(nil)
	assert.False(t, failed(nil).Temporary())
	assert.False(t, failed(errBroken).Temporary())
	assert.False(t, failed(context.Canceled).Temporary())
	assert.True(t, failed(os.ErrDeadlineExceeded).Temporary())
	assert.True(t, failed(&net.DNSError{IsTemporary: true}).Temporary())
	assert.True(t, failed(errors.Join(errBroken, fmt.Errorf("wrapped: %w", context.DeadlineExceeded))).Temporary())
}

// temporary asks err itself, as programs do that look for no type.
func temporary(err error) bool {
	t, ok := err.(interface{ Temporary() bool })
	return ok && t.Temporary()
}

// Programs above ask a *url.Error, and without this library they get the base's own answer.
func TestErrorAnswersAURLErrorAsTheBasesOwnErrorDoes(t *testing.T) {
	for name, failure := range map[string]error{
		"timeout":      &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded},
		"reset":        &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)},
		"full":         &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", syscall.EMFILE)},
		"name server":  &net.DNSError{Err: "server misbehaving", IsTemporary: true},
		"no such host": &net.DNSError{Err: "no such host", IsNotFound: true},
		"neither":      errBroken,
	} {
		t.Run(name, func(t *testing.T) {
			answers := func(rt http.RoundTripper) [2]bool {
				client := &http.Client{Transport: rt}
				_, err := client.Get("http://host.example/") //nolint:bodyclose // there is none
				outer, ok := errors.AsType[*url.Error](err)
				require.True(t, ok, "%v", err)
				return [2]bool{outer.Timeout(), outer.Temporary()}
			}
			for _, attempts := range []int{1, 2} {
				p := retryhttp.Policy{MaxAttempts: attempts, Backoff: retryhttp.Constant(0)}
				bare, wrapped := script.New(script.Fail(failure)), script.New(script.Fail(failure))
				assert.Equal(t, answers(bare), answers(retryhttp.New(wrapped, p)))
			}
		})
	}
}

func TestErrorIsFoundThroughAClient(t *testing.T) {
	client := &http.Client{Transport: retryhttp.New(script.New(script.Fail(errBroken)), retryhttp.Policy{MaxAttempts: 1})}
	_, err := client.Get("http://host.example/") //nolint:bodyclose // there is none
	assert.Equal(t, retryhttp.StopAttempts, errorOf(t, err).Stop)
	assert.ErrorIs(t, err, errBroken)
}

// A server can put long texts into its certificate and its GOAWAY.
func TestErrorTextTakesTimeThatGrowsWithItsLength(t *testing.T) {
	for _, fragment := range []string{"lookup u@h: ", "address @", "://", "://@", "://#", "? ", "://a@b?c#d ", `debug="x"`, "Content-Length "} {
		t.Run(fragment, func(t *testing.T) {
			err := &retryhttp.Error{Err: errors.New(strings.Repeat(fragment, 1<<20/len(fragment)))}
			assert.Less(t, allocated(func() { _ = err.Error() }), uint64(64<<20), "for a megabyte of text")
		})
	}
}
