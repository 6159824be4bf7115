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
	"testing/iotest"
	"testing/synctest"
	"time"
	"weak"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/httperr"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Pages may be requested with the context of the page before, and pollers send the request of a response again. Its
// record is not an Outcome of the new response, nor of a nested Transport.
func TestOutcomeIsNotInheritedWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF))
		rt := retryhttp.New(script.New(
			script.Status(503), script.Status(200), script.Status(200), script.Respond(200, broken), script.Status(200),
		), retryhttp.Policy{BufferBytes: 100})
		atOnce := retryhttp.Outcome{Attempts: 1, Stop: retryhttp.StopFinal}
		first := answerTo(t, rt, get(t, t.Context()))
		require.Equal(t, 2, retryhttp.OutcomeOf(first).Attempts)
		next := answerTo(t, rt, get(t, first.Request.Context()))
		assert.Equal(t, atOnce, retryhttp.OutcomeOf(next))
		again := answerTo(t, rt, first.Request)
		assert.Equal(t, 2, retryhttp.OutcomeOf(again).Attempts, "the body that broke off was retried")
		once := answerTo(t, rt, again.Request)
		assert.Equal(t, atOnce, retryhttp.OutcomeOf(once))
		copied := *once
		copied.Request = again.Request // as a RoundTripper above may do
		assert.Equal(t, atOnce, retryhttp.OutcomeOf(&copied))
	})
}

func TestOutcomeRecordDoesNotKeepOldResponses(t *testing.T) {
	ctx := t.Context()
	rt := retryhttp.New(script.New(script.Status(429)), retryhttp.Policy{MaxAttempts: 1})
	var old []weak.Pointer[http.Response]
	for range 5 {
		resp := answerTo(t, rt, get(t, ctx))
		old = append(old, weak.Make(resp))
		ctx = resp.Request.Context()
	}
	runtime.GC()
	runtime.GC()
	for _, page := range old[:4] {
		assert.True(t, page.Value() == nil, "an old response is kept")
	}
	runtime.KeepAlive(ctx)
}

func TestResponseRequestIsTheCallers(t *testing.T) {
	type key struct{}
	req := requestOf(t, "POST", strings.NewReader("x")).WithContext(context.WithValue(t.Context(), key{}, "value"))
	base := script.New(script.Status(503), script.Status(200))
	p := noWait
	p.IdempotencyKey, p.AttemptTimeout = retryhttp.RandomKey, time.Minute
	resp := answerTo(t, retryhttp.New(base, p), req)
	assert.NotContains(t, resp.Request.Header, "Idempotency-Key")
	assert.Equal(t, req.URL, resp.Request.URL)
	assert.Equal(t, req.Body, resp.Request.Body)
	assert.Equal(t, "value", resp.Request.Context().Value(key{}))
	assert.NoError(t, resp.Request.Context().Err(), "not the attempt's context, which has ended")
	for _, sent := range base.Requests() {
		assert.NotSame(t, sent, resp.Request)
	}
	assert.Equal(t, 2, retryhttp.OutcomeOf(resp).Attempts)
}

func TestResponseRequestIsSetWhenTheBaseForgetsIt(t *testing.T) {
	forgets := edited(script.Status(200), func(resp *http.Response) { resp.Request = nil })
	req := get(t, t.Context())
	assert.Same(t, req, answerTo(t, retryhttp.New(forgets, retryhttp.Policy{}), req).Request)
}

func TestNestedRetriesDoNotMultiply(t *testing.T) {
	final := func(retryhttp.Attempt) retryhttp.Class { return retryhttp.Final }
	finalFirst := func(a retryhttp.Attempt) retryhttp.Class {
		if retryhttp.AttemptOf(a.Request.Context()).Number == 1 {
			return retryhttp.Final
		}
		return retryhttp.Classify(a)
	}
	busy, ok, broken := script.Status(503), script.Status(200), script.Fail(errBroken)
	type testCase struct {
		steps    []script.Step
		classify func(retryhttp.Attempt) retryhttp.Class // of the inner ones
		inner    int
		method   string
		attempts int
		stop     retryhttp.Stop
		deposits int
	}
	inBubbles(t, map[string]testCase{
		"the inner one gave up on a response": {[]script.Step{busy}, nil, 1, "GET", 4, retryhttp.StopNested, 0},
		"the inner one gave up on an error":   {[]script.Step{broken}, nil, 1, "GET", 4, retryhttp.StopNested, 0},
		"the inner one gave up at once":       {[]script.Step{busy}, nil, 1, "POST", 1, retryhttp.StopNested, 0},
		"the inner one succeeded":             {[]script.Step{busy, ok}, nil, 1, "GET", 2, retryhttp.StopFinal, 1},
		"the inner one takes it for final":    {[]script.Step{busy}, final, 1, "GET", 4, retryhttp.StopAttempts, 0},
		"both have retried":                   {[]script.Step{busy, busy, ok}, finalFirst, 1, "GET", 3, retryhttp.StopFinal, 1},
		"three layers":                        {[]script.Step{busy}, nil, 2, "GET", 4, retryhttp.StopNested, 0}, // and not 64
	}, func(t *testing.T, tc testCase) {
		base, budget := script.New(tc.steps...), &countingBudget{}
		inner := retryhttp.Policy{Classify: tc.classify, Backoff: retryhttp.Constant(time.Second)}
		outer := retryhttp.Policy{
			Idempotent: func(*http.Request) bool { return true }, Budget: budget, Backoff: retryhttp.Constant(time.Second),
		}
		rt := http.RoundTripper(base)
		for range tc.inner {
			rt = retryhttp.New(rt, inner)
		}
		resp, err := retryhttp.New(rt, outer).RoundTrip(requestOf(t, tc.method, nil))
		o := retryhttp.OutcomeOf(resp)
		if err != nil {
			o = errorOf(t, err).Outcome
			assert.ErrorIs(t, err, errBroken)
		}
		assert.Len(t, base.Requests(), tc.attempts)
		assert.Equal(t, tc.stop, o.Stop)
		assert.Equal(t, tc.attempts, o.Attempts)
		assert.Equal(t, time.Duration(tc.attempts-1)*time.Second, o.Waited)
		assert.Equal(t, tc.deposits, budget.deposit)
	})
}

func TestOutcomeHasTheHoldOfANestedTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := retryhttp.Policy{Gate: &retryhttp.Gate{HoldFirst: true}, MaxAttempts: 1}
		inner := retryhttp.New(script.New(script.Status(429, "Retry-After", "2"), script.Status(200)), p)
		answerTo(t, inner, get(t, t.Context()))
		began := time.Now()
		o := retryhttp.OutcomeOf(answerTo(t, retryhttp.New(inner, noWait), get(t, t.Context())))
		assert.GreaterOrEqual(t, o.Held, 2*time.Second)
		assert.Equal(t, time.Since(began), o.Held)
		assert.Equal(t, o.Held, o.Waited)
	})
}

// A request body may come from a request that has been given up. This says nothing about the request that sends it.
func TestErrorOfABodyIsNotThatOfANestedTransport(t *testing.T) {
	broken := &bodies.Hooked{OnRead: func([]byte) (int, error) {
		return 0, &retryhttp.Error{Outcome: retryhttp.Outcome{Attempts: 3, Stop: retryhttp.StopAttempts}, Err: errBroken}
	}}
	for attempts, getBody := range map[int]func() (io.ReadCloser, error){
		1: nil, 4: func() (io.ReadCloser, error) { return broken, nil },
	} {
		req := requestOf(t, http.MethodPut, broken)
		req.GetBody = getBody
		_, err := retryhttp.New(script.New(func(req *http.Request) (*http.Response, error) {
			_, err := io.ReadAll(req.Body)
			return nil, err
		}), noWait).RoundTrip(req)
		assert.Equal(t, attempts, errorOf(t, err).Attempts)
	}
}

func TestErrorNamesTheEndOfTheContextOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(1500*time.Millisecond, cancel)
		p := retryhttp.Policy{Backoff: retryhttp.Constant(time.Second)}
		_, err := retryhttp.New(script.New(script.Status(503), untilItEnds), p).RoundTrip(get(t, ctx))
		assert.EqualError(t, err, "gave up after 2 attempts in 1.5s (canceled): context canceled")
	})
}

// The body of a failed response is awaited for a moment within the attempt. If the body does not come,
// the response that goes up is a copy.
func TestNestedRetriesDoNotMultiplyWhenAFailedBodyIsSlow(t *testing.T) {
	inBubbles(t, map[string]retryhttp.Policy{
		"PeekBytes": {PeekBytes: 100}, "BufferBytes": {BufferBytes: 100},
	}, func(t *testing.T, above retryhttp.Policy) {
		base := script.New(func(req *http.Request) (*http.Response, error) {
			text := strings.NewReader("sorry")
			return script.Respond(503, &bodies.Hooked{OnRead: func(p []byte) (int, error) {
				time.Sleep(time.Second)
				return text.Read(p)
			}})(req)
		})
		resp := opened(t, retryhttp.New(base, noWait), above)
		requireBodyIs(t, "sorry", resp)
		assert.Len(t, base.Requests(), 4)
		assert.Equal(t, 4, retryhttp.OutcomeOf(resp).Attempts)
		assert.Equal(t, retryhttp.StopNested, retryhttp.OutcomeOf(resp).Stop)
	})
}

func TestNestedAttemptTimeoutIsRetriedUnlessTheInnerTransportHasRetried(t *testing.T) {
	for _, late := range []script.Step{script.Status(503), script.Fail(errBroken)} {
		slow := func(req *http.Request) (*http.Response, error) { // it ignores its context
			time.Sleep(2 * time.Second)
			return late(req)
		}
		for stop, steps := range map[retryhttp.Stop][]script.Step{
			retryhttp.StopAttempts: {slow},
			retryhttp.StopNested:   {script.Status(503), slow},
		} {
			synctest.Test(t, func(t *testing.T) {
				base := script.New(steps...)
				p := retryhttp.Policy{AttemptTimeout: time.Second, MaxAttempts: 2}
				_, err := retryhttp.New(retryhttp.New(base, noWait), p).RoundTrip(get(t, t.Context()))
				assert.Equal(t, stop, errorOf(t, err).Stop)
				assert.Equal(t, 2, errorOf(t, err).Attempts)
				assert.Len(t, base.Requests(), 2)
			})
		}
	}
}

// The caller of an Error has no response that reports what the server did.
func TestErrorIsAmbiguousIfItsLastAttemptMayHaveTakenEffect(t *testing.T) {
	untrusted := &tls.CertificateVerificationError{Err: errBroken}
	for name, tc := range map[string]struct {
		method string
		key    string
		err    error
		class  retryhttp.Class
		want   bool
	}{
		"a break":                       {"POST", "", errBroken, retryhttp.Retryable, true},
		"a break after a safe method":   {"GET", "", errBroken, retryhttp.Retryable, false},
		"a refused stream":              {"POST", "", errBroken, retryhttp.Unprocessed, false},
		"an error that is Final":        {"DELETE", "", errBroken, retryhttp.Final, true},
		"a certificate that is refused": {"POST", "", untrusted, retryhttp.Final, false},
		"a failed dial that is Final":   {"POST", "", httperr.DialRefused, retryhttp.Final, false},
		"a failed dial after a resend":  {"POST", "k", httperr.DialRefused, retryhttp.Final, true}, // by net/http
	} {
		t.Run(name, func(t *testing.T) {
			p := retryhttp.Policy{MaxAttempts: 1, Classify: func(retryhttp.Attempt) retryhttp.Class { return tc.class }}
			req := requestOf(t, tc.method, nil)
			if tc.key != "" {
				req.Header.Set("Idempotency-Key", tc.key)
			}
			inner := retryhttp.New(script.New(script.Fail(tc.err)), p)
			_, err := inner.RoundTrip(req)
			assert.Equal(t, tc.want, errorOf(t, err).Ambiguous)
			_, err = retryhttp.New(inner, retryhttp.Policy{}).RoundTrip(req)
			assert.Equal(t, tc.want, errorOf(t, err).Ambiguous, "above a nested Transport")
		})
	}
}

// With errgroup.WithContext, the first failure is the cause for the others.
func TestNestedOutcomeIsNotAnotherRequests(t *testing.T) {
	_, cause := retryhttp.New(script.New(script.Fail(errBroken)), noWait).RoundTrip(get(t, t.Context()))
	require.Equal(t, 4, errorOf(t, cause).Attempts)
	ctx, cancel := context.WithCancelCause(t.Context())
	base := script.New(func(req *http.Request) (*http.Response, error) {
		cancel(cause)
		return nil, context.Cause(req.Context())
	})
	_, err := retryhttp.New(base, noWait).RoundTrip(get(t, ctx))
	assert.ErrorIs(t, err, cause)
	assert.Equal(t, 1, errorOf(t, err).Attempts)
}

func TestErrorText(t *testing.T) {
	const nested = retryhttp.StopNested
	gaveUp := func(attempts int, seconds float64, stop retryhttp.Stop, err error) *retryhttp.Error {
		elapsed := time.Duration(seconds * float64(time.Second))
		return &retryhttp.Error{Outcome: retryhttp.Outcome{Attempts: attempts, Elapsed: elapsed, Stop: stop}, Err: err}
	}
	spent := gaveUp(4, 1, retryhttp.StopBudget, errBroken)
	unsafe := gaveUp(1, 0, retryhttp.StopNotIdempotent, errBroken)
	invalid := &url.Error{Op: "Get", URL: "http://h\x7f/?secret", Err: errBroken}
	for _, tc := range []struct {
		err  *retryhttp.Error
		want string
	}{
		{gaveUp(1, 1, retryhttp.StopBudget, errBroken), "connection broken"},
		{gaveUp(4, 1.2346, "why", errBroken), "gave up after 4 attempts in 1.235s (why): connection broken"},
		{gaveUp(2, 0, "", errBroken), "gave up after 2 attempts in 0s (no reason was recorded): connection broken"},
		{gaveUp(1, 0, nested, unsafe), "connection broken"},
		{gaveUp(4, 0, nested, spent), "gave up after 4 attempts in 1s (budget): connection broken"},
		{gaveUp(3, 2, nested, unsafe), "gave up after 3 attempts in 2s (nested): connection broken"},
		{gaveUp(2, 1, nested, errBroken), "gave up after 2 attempts in 1s (nested): connection broken"},
		{gaveUp(4, 2, "why", spent), "gave up after 4 attempts in 2s (why): " + spent.Error()},
		{gaveUp(1, 0, "", invalid), `Get "invalid URL": connection broken`},
		{&retryhttp.Error{}, "no error was recorded"},
	} {
		assert.EqualError(t, tc.err, tc.want)
	}
}

// Programs read codes from the texts of HTTP/2's errors.
func TestErrorTextEndsWithTheBasesText(t *testing.T) {
	const text = "stream error: stream ID 1; INTERNAL_ERROR; received from peer"
	failed := errors.New(text)
	// opens has an upload whose GetBody succeeds n times.
	opens := func(n int) func(*http.Request) {
		return func(r *http.Request) {
			r.Method = "PUT"
			r.GetBody = func() (io.ReadCloser, error) {
				if n--; n < 0 {
					return nil, errors.New("the file is gone")
				}
				return io.NopCloser(strings.NewReader("x")), nil
			}
			r.Body = io.NopCloser(strings.NewReader("x"))
		}
	}
	type testCase struct {
		edit   func(*http.Request)
		stop   retryhttp.Stop
		before string
	}
	inBubbles(t, map[string]testCase{
		"not safe to repeat": {func(r *http.Request) { r.Method = "POST" }, retryhttp.StopNotIdempotent, ""},
		"no body":            {opens(0), retryhttp.StopBody, ""},
		"no body for a third attempt": {
			opens(1), retryhttp.StopBody, "gave up after 2 attempts in 0s (body): no body for a retry: the file is gone: ",
		},
		"four attempts": {opens(3), retryhttp.StopAttempts, "gave up after 4 attempts in 0s (attempts): "},
	}, func(t *testing.T, tc testCase) {
		req := get(t, t.Context())
		tc.edit(req)
		_, err := retryhttp.New(script.New(script.Fail(failed)), noWait).RoundTrip(req) //nolint:bodyclose // there is none
		assert.Equal(t, tc.stop, errorOf(t, err).Stop)
		assert.EqualError(t, err, tc.before+text)
		assert.ErrorIs(t, err, failed)
	})
}

// The last attempt has its response, and is no error as well.
func TestResponseIsReturnedIfThereIsNoBodyForARetry(t *testing.T) {
	req := get(t, t.Context())
	req.Method, req.Body = "PUT", io.NopCloser(strings.NewReader("x"))
	req.GetBody = func() (io.ReadCloser, error) { return nil, errBroken }
	p := noWait
	p.OnDone = func(last retryhttp.Attempt, o retryhttp.Outcome) {
		assert.Equal(t, retryhttp.StopBody, o.Stop)
		assert.Equal(t, 503, last.Response.StatusCode)
		assert.NoError(t, last.Err)
	}
	resp, err := retryhttp.New(script.New(script.Status(503)), p).RoundTrip(req)
	require.NoError(t, err)
	assert.Equal(t, 503, resp.StatusCode)
	require.NoError(t, resp.Body.Close())
}

func TestErrorIsATimeoutOrTemporaryIfOneOfItsErrorsIs(t *testing.T) {
	for _, err := range []error{nil, errBroken, context.Canceled, &url.Error{Op: "Get", Err: errBroken}} {
		assert.False(t, (&retryhttp.Error{Err: err}).Timeout(), "%v", err)
		assert.False(t, (&retryhttp.Error{Err: err}).Temporary(), "%v", err)
	}
	late := fmt.Errorf("wrapped: %w", context.DeadlineExceeded)
	for _, err := range []error{os.ErrDeadlineExceeded, late, errors.Join(errBroken, late)} {
		assert.True(t, (&retryhttp.Error{Err: err}).Timeout(), "%v", err)
		assert.True(t, (&retryhttp.Error{Err: err}).Temporary(), "%v", err)
	}

	// A deadline ends the wait after an error that says that it is neither.
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(context.DeadlineExceeded) })
		p := retryhttp.Policy{Backoff: retryhttp.Constant(time.Hour)}
		rt := retryhttp.New(script.New(script.Fail(&url.Error{Op: "x", Err: errBroken})), p)
		_, err := rt.RoundTrip(get(t, ctx)) //nolint:bodyclose // there is none
		assert.True(t, errorOf(t, err).Timeout())
		assert.True(t, errorOf(t, err).Temporary())
	})
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
