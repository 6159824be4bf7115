package retryhttp_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

func TestContract(t *testing.T) {
	const second = time.Second
	const none = -1
	type policy = retryhttp.Policy
	keyed := []string{"Idempotency-Key", "k"}

	// Unless a case says otherwise: GET, backoff of one second, no limits but
	// the default policy's, and no body. waits are exact, in virtual time.
	cases := []struct {
		name    string
		method  string
		header  []string
		body    string
		policy  policy
		timeout time.Duration // of the http.Client

		answers []answer

		status    int   // of the response; none: an error
		err       error // which the error matches
		attempts  int
		stop      retryhttp.Stop
		waits     []time.Duration
		ambiguous bool
	}{
		{name: "success at once", answers: []answer{status(200)}, status: 200, attempts: 1, stop: retryhttp.StopFinal},
		{name: "408 is retried", answers: []answer{status(408), status(200)}, status: 200, attempts: 2, stop: retryhttp.StopFinal, waits: []time.Duration{second}},
		{name: "429 is retried", answers: []answer{status(429), status(200)}, status: 200, attempts: 2, stop: retryhttp.StopFinal, waits: []time.Duration{second}},
		{name: "500 is retried", answers: []answer{status(500), status(200)}, status: 200, attempts: 2, stop: retryhttp.StopFinal, waits: []time.Duration{second}},
		{name: "501 is retried", answers: []answer{status(501), status(200)}, status: 200, attempts: 2, stop: retryhttp.StopFinal, waits: []time.Duration{second}},
		{name: "503 twice", answers: []answer{status(503), status(503), status(200)}, status: 200, attempts: 3, stop: retryhttp.StopFinal, waits: []time.Duration{second, second}},
		{name: "599 is retried", answers: []answer{status(599), status(200)}, status: 200, attempts: 2, stop: retryhttp.StopFinal, waits: []time.Duration{second}},
		{name: "304 is final", answers: []answer{status(304)}, status: 304, attempts: 1, stop: retryhttp.StopFinal},
		{name: "400 is final", answers: []answer{status(400)}, status: 400, attempts: 1, stop: retryhttp.StopFinal},
		{name: "401 is final", answers: []answer{status(401)}, status: 401, attempts: 1, stop: retryhttp.StopFinal},
		{name: "404 after a 503 is final", answers: []answer{status(503), status(404)}, status: 404, attempts: 2, stop: retryhttp.StopFinal, waits: []time.Duration{second}},
		{name: "409 is final", answers: []answer{status(409)}, status: 409, attempts: 1, stop: retryhttp.StopFinal},
		{name: "413 with Retry-After is final", answers: []answer{status(413, "Retry-After", "1")}, status: 413, attempts: 1, stop: retryhttp.StopFinal},
		{name: "202 with Retry-After is final", method: "PUT", answers: []answer{status(202, "Retry-After", "1")}, status: 202, attempts: 1, stop: retryhttp.StopFinal},
		{name: "600 is final", answers: []answer{status(600)}, status: 600, attempts: 1, stop: retryhttp.StopFinal},

		{name: "the last response is returned", answers: []answer{status(503)}, status: 503, attempts: 4, stop: retryhttp.StopAttempts, waits: []time.Duration{second, second, second}},
		{name: "one attempt", policy: policy{MaxAttempts: 1}, answers: []answer{status(503)}, status: 503, attempts: 1, stop: retryhttp.StopAttempts},
		{name: "no bound on attempts", policy: policy{MaxAttempts: -1, Budget: retryhttp.Unlimited{}}, answers: []answer{status(503), status(503), status(503), status(503), status(503), status(503), status(200)},
			status: 200, attempts: 7, stop: retryhttp.StopFinal, waits: []time.Duration{second, second, second, second, second, second}},

		{name: "a broken connection is retried", answers: []answer{hangUp, status(200)}, status: 200, attempts: 2, stop: retryhttp.StopFinal, waits: []time.Duration{second}},
		{name: "an error is returned", answers: []answer{hangUp}, status: none, err: io.EOF, attempts: 4, stop: retryhttp.StopAttempts, waits: []time.Duration{second, second, second}},

		{name: "a POST is sent once", method: "POST", body: "pay", answers: []answer{status(503)}, status: 503, attempts: 1, stop: retryhttp.StopNotIdempotent},
		{name: "a POST whose connection breaks is sent once", method: "POST", body: "pay", answers: []answer{hangUp}, status: none, err: io.EOF, attempts: 1, stop: retryhttp.StopNotIdempotent},
		{name: "a PATCH is sent once", method: "PATCH", body: "x", answers: []answer{status(503)}, status: 503, attempts: 1, stop: retryhttp.StopNotIdempotent},
		{name: "a POST is not retried for a Retry-After", method: "POST", body: "pay", answers: []answer{status(429, "Retry-After", "1")}, status: 429, attempts: 1, stop: retryhttp.StopNotIdempotent},
		{name: "a POST with a key is retried", method: "POST", header: keyed, body: "pay", answers: []answer{status(503), status(200)}, status: 200, attempts: 2, stop: retryhttp.StopFinal, waits: []time.Duration{second}, ambiguous: true},
		{name: "a POST with an X-Idempotency-Key is retried", method: "POST", header: []string{"X-Idempotency-Key", "k"}, body: "pay", answers: []answer{status(503), status(200)}, status: 200, attempts: 2, stop: retryhttp.StopFinal, waits: []time.Duration{second}, ambiguous: true},
		{name: "a POST with an empty key is sent once", method: "POST", header: []string{"Idempotency-Key", ""}, body: "pay", answers: []answer{status(503)}, status: 503, attempts: 1, stop: retryhttp.StopNotIdempotent},
		{name: "a PUT is retried with its body", method: "PUT", body: "all of it", answers: []answer{status(503), status(200)}, status: 200, attempts: 2, stop: retryhttp.StopFinal, waits: []time.Duration{second}, ambiguous: true},
		{name: "a DELETE's 404 after a 500 is ambiguous", method: "DELETE", answers: []answer{status(500), status(404)}, status: 404, attempts: 2, stop: retryhttp.StopFinal, waits: []time.Duration{second}, ambiguous: true},
		{name: "a DELETE's 404 after a broken connection is ambiguous", method: "DELETE", answers: []answer{hangUp, status(404)}, status: 404, attempts: 2, stop: retryhttp.StopFinal, waits: []time.Duration{second}, ambiguous: true},
		{name: "a DELETE's 404 after a 429 is not ambiguous", method: "DELETE", answers: []answer{status(429), status(404)}, status: 404, attempts: 2, stop: retryhttp.StopFinal, waits: []time.Duration{second}},
		{name: "a DELETE's 404 after a 408 is not ambiguous", method: "DELETE", answers: []answer{status(408), status(404)}, status: 404, attempts: 2, stop: retryhttp.StopFinal, waits: []time.Duration{second}},
		{name: "only attempts before the last are ambiguous", method: "DELETE", policy: policy{MaxAttempts: 1}, answers: []answer{status(500)}, status: 500, attempts: 1, stop: retryhttp.StopAttempts},

		{name: "Retry-After comes before the backoff", answers: []answer{status(429, "Retry-After", "2"), status(200)}, status: 200, attempts: 2, stop: retryhttp.StopFinal, waits: []time.Duration{3 * second}},
		{name: "Retry-After in milliseconds", answers: []answer{status(503, "Retry-After-Ms", "1500", "Retry-After", "9"), status(200)}, status: 200, attempts: 2, stop: retryhttp.StopFinal, waits: []time.Duration{2500 * time.Millisecond}},
		{name: "Retry-After of zero is none", answers: []answer{status(503, "Retry-After", "0"), status(200)}, status: 200, attempts: 2, stop: retryhttp.StopFinal, waits: []time.Duration{second}},
		{name: "Retry-After in the past is none", answers: []answer{status(503, "Retry-After", "Sun, 06 Nov 1994 08:49:37 GMT"), status(200)}, status: 200, attempts: 2, stop: retryhttp.StopFinal, waits: []time.Duration{second}},
		{name: "an invalid Retry-After is none", answers: []answer{status(503, "Retry-After", "soon"), status(200)}, status: 200, attempts: 2, stop: retryhttp.StopFinal, waits: []time.Duration{second}},
		{name: "a Retry-After of exactly MaxRetryAfter is waited for", answers: []answer{status(503, "Retry-After", "60"), status(200)}, policy: policy{Backoff: retryhttp.Constant(time.Minute)}, status: 200, attempts: 2, stop: retryhttp.StopFinal, waits: []time.Duration{2 * time.Minute}},
		{name: "a longer Retry-After ends the retries", answers: []answer{status(503, "Retry-After", "61")}, status: 503, attempts: 1, stop: retryhttp.StopRetryAfter},
		{name: "a Retry-After beyond all bounds ends the retries", answers: []answer{status(503, "Retry-After", "99999999999999999999")}, status: 503, attempts: 1, stop: retryhttp.StopRetryAfter},
		{name: "Retry-After can be ignored", policy: policy{MaxRetryAfter: -1}, answers: []answer{status(503, "Retry-After", "61"), status(200)}, status: 200, attempts: 2, stop: retryhttp.StopFinal, waits: []time.Duration{second}},

		{name: "no wait past http.Client.Timeout", timeout: 1500 * time.Millisecond, answers: []answer{status(503)}, status: 503, attempts: 2, stop: retryhttp.StopDeadline, waits: []time.Duration{second}},
		{name: "no wait that ends at the deadline", timeout: second, answers: []answer{status(503)}, status: 503, attempts: 1, stop: retryhttp.StopDeadline},
		{name: "a wait that ends just before the deadline", timeout: second + 1, answers: []answer{status(503), status(200)}, status: 200, attempts: 2, stop: retryhttp.StopFinal, waits: []time.Duration{second}},
		{name: "no Retry-After past the deadline", timeout: 2 * second, answers: []answer{status(503, "Retry-After", "2")}, status: 503, attempts: 1, stop: retryhttp.StopDeadline},
		{name: "the error at once, and not the deadline's", timeout: second, answers: []answer{hangUp}, status: none, err: io.EOF, attempts: 1, stop: retryhttp.StopDeadline},
		{name: "a retry at exactly MaxElapsed", policy: policy{MaxElapsed: 2 * second}, answers: []answer{status(503)}, status: 503, attempts: 3, stop: retryhttp.StopDeadline, waits: []time.Duration{second, second}},
		{name: "no retry after MaxElapsed", policy: policy{MaxElapsed: 2*second - 1}, answers: []answer{status(503)}, status: 503, attempts: 2, stop: retryhttp.StopDeadline, waits: []time.Duration{second}},
		{name: "an absurd backoff that no limit stops", policy: policy{Backoff: retryhttp.Constant(-second)}, answers: []answer{status(503), status(200)}, status: 200, attempts: 2, stop: retryhttp.StopFinal, waits: []time.Duration{0}},

		{name: "an attempt that hangs is ended and retried", policy: policy{AttemptTimeout: 3 * second}, answers: []answer{hang, status(200)}, status: 200, attempts: 2, stop: retryhttp.StopFinal, waits: []time.Duration{4 * second}},
		{name: "attempts that all hang", policy: policy{AttemptTimeout: 3 * second, MaxAttempts: 2}, answers: []answer{hang}, status: none, err: context.DeadlineExceeded, attempts: 2, stop: retryhttp.StopAttempts, waits: []time.Duration{4 * second}},
		{name: "an attempt timeout is no proof for a POST", method: "POST", policy: policy{AttemptTimeout: second, RetryUnprocessed: true}, answers: []answer{hang}, status: none, err: context.DeadlineExceeded, attempts: 1, stop: retryhttp.StopNotIdempotent},

		{name: "the budget ends the retries", policy: policy{Budget: &retryhttp.TokenBucket{Burst: 1}}, answers: []answer{status(503)}, status: 503, attempts: 2, stop: retryhttp.StopBudget, waits: []time.Duration{second}},
		{name: "the budget of a default policy", policy: policy{MaxAttempts: -1}, answers: []answer{status(503)}, status: 503, attempts: 6, stop: retryhttp.StopBudget, waits: []time.Duration{second, second, second, second, second}},
		{name: "a budget of nothing", policy: policy{Budget: &retryhttp.TokenBucket{Burst: -1}}, answers: []answer{hangUp}, status: none, err: io.EOF, attempts: 1, stop: retryhttp.StopBudget},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := &server{answers: tc.answers}
				_, base, stop := memnet.Serve(srv)
				defer stop()
				if tc.policy.Backoff == nil {
					tc.policy.Backoff = retryhttp.Constant(second)
				}
				client := &http.Client{Transport: retryhttp.New(base, tc.policy), Timeout: tc.timeout}
				req, err := http.NewRequest(tc.method, "http://server/", strings.NewReader(tc.body))
				require.NoError(t, err)
				for i := 0; i < len(tc.header); i += 2 {
					req.Header.Add(tc.header[i], tc.header[i+1])
				}

				resp, err := client.Do(req)

				var outcome retryhttp.Outcome
				if tc.status == none {
					assert.Nil(t, resp)
					var e *retryhttp.Error
					require.ErrorAs(t, err, &e)
					assert.ErrorIs(t, err, tc.err)
					outcome = e.Outcome
				} else {
					require.NoError(t, err)
					assert.Equal(t, tc.status, resp.StatusCode)
					body, err := io.ReadAll(resp.Body)
					require.NoError(t, err)
					assert.NoError(t, resp.Body.Close())
					if tc.status != http.StatusNotModified {
						assert.Equal(t, "answer "+http.StatusText(tc.status), string(body), "the body comes unread")
					}
					outcome = retryhttp.OutcomeOf(resp)
				}
				assert.Equal(t, tc.attempts, outcome.Attempts)
				assert.Equal(t, tc.stop, outcome.Stop)
				assert.Equal(t, tc.ambiguous, outcome.Ambiguous)
				assert.Equal(t, tc.waits, srv.waits())
				assert.Len(t, srv.got, tc.attempts, "every attempt reached the server, and nothing else did")
				for _, got := range srv.got {
					assert.Equal(t, tc.body, got.body, "every attempt carried the whole body")
				}
				synctest.Wait()
			})
		})
	}
}

func TestTransportThatWasNotMadeByNewSaysSo(t *testing.T) {
	for _, rt := range []*retryhttp.Transport{nil, {}} {
		body := &trackedBody{Reader: strings.NewReader("upload")}
		req, err := http.NewRequest(http.MethodPut, "http://host.example/", body)
		require.NoError(t, err)
		_, err = rt.RoundTrip(req)
		assert.Equal(t, retryhttp.StopFinal, errorOf(t, err).Stop)
		assert.ErrorContains(t, err, "not made by New")
		assert.EqualValues(t, 1, body.closes.Load())
	}
}

func TestRequestIsNeverChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script.New(script.Status(503), script.Status(200))
		rt := retryhttp.New(base, retryhttp.Policy{IdempotencyKey: retryhttp.RandomKey, AttemptTimeout: time.Minute})
		req, err := http.NewRequest("POST", "http://host.example/", io.MultiReader(strings.NewReader("stream")))
		require.NoError(t, err)
		req.Header.Set("X-Caller", "yes")
		req.Trailer = http.Header{"X-Sum": nil}
		before, header, body, ctx := *req, req.Header.Clone(), req.Body, req.Context()

		resp, err := rt.RoundTrip(req)

		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, header, req.Header)
		assert.Equal(t, http.Header{"X-Sum": nil}, req.Trailer)
		assert.Equal(t, body, req.Body)
		assert.Nil(t, req.GetBody)
		assert.Equal(t, ctx, req.Context())
		assert.Equal(t, before.ContentLength, req.ContentLength)
		for i, sent := range base.Requests() {
			assert.NotSame(t, req, sent)
			assert.NotEmpty(t, sent.Header.Get("Idempotency-Key"), "attempt %d", i+1)
		}
	})
}

func TestRequestIsTheCallersInTheFirstAttemptWhereItCanBe(t *testing.T) {
	base := script.New(script.Status(200))
	req := get(t, t.Context())
	resp, err := retryhttp.New(base, retryhttp.Policy{}).RoundTrip(req)
	require.NoError(t, err)
	assert.Same(t, req, base.Requests()[0])
	assert.Same(t, req, resp.Request)
}

func TestNilBaseIsAPooledTransportOfItsOwn(t *testing.T) {
	srv := &server{answers: []answer{status(503), status(200)}}
	url := listen(t, srv)
	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{Backoff: retryhttp.Constant(0)})}
	defer client.CloseIdleConnections()
	resp, err := client.Get(url)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, 200, resp.StatusCode)
}

type idleCloser struct {
	http.RoundTripper
	closed int
}

func (c *idleCloser) CloseIdleConnections() { c.closed++ }

func TestCloseIdleConnectionsReachesTheBase(t *testing.T) {
	base := &idleCloser{}
	client := &http.Client{Transport: retryhttp.New(retryhttp.New(base, retryhttp.Policy{}), retryhttp.Policy{})}
	client.CloseIdleConnections()
	assert.Equal(t, 1, base.closed)

	retryhttp.New(script.New(), retryhttp.Policy{}).CloseIdleConnections() // a base without it is left alone
}

func TestGuardsComeInTheirOrder(t *testing.T) {
	// Everything speaks against another attempt. One reason after the other is
	// taken away, and the next is the label.
	spent := &retryhttp.TokenBucket{Burst: -1}
	p := retryhttp.Policy{MaxAttempts: 1, MaxBodyBytes: 1, Budget: spent, Backoff: retryhttp.Constant(time.Hour), MaxElapsed: time.Minute}
	code, header, method := 200, []string{"Retry-After", "3600"}, "POST"
	ctx, cancel := context.WithCancel(t.Context())
	canceled := false
	var wrap func(http.RoundTripper) http.RoundTripper
	nested := func(base http.RoundTripper) http.RoundTripper {
		return retryhttp.New(base, retryhttp.Policy{MaxAttempts: 1, Idempotent: func(*http.Request) bool { return true }})
	}
	run := func() retryhttp.Stop {
		reqCtx := t.Context()
		if canceled {
			reqCtx = ctx
		}
		base := http.RoundTripper(script.New(func(req *http.Request) (*http.Response, error) {
			_, _ = io.Copy(io.Discard, req.Body)
			_ = req.Body.Close()
			if canceled {
				cancel()
			}
			return script.Response(req, code, header...), nil
		}))
		if wrap != nil {
			base = wrap(base)
		}
		req, err := http.NewRequestWithContext(reqCtx, method, "http://host.example/", io.MultiReader(strings.NewReader("long")))
		require.NoError(t, err)
		resp, err := retryhttp.New(base, p).RoundTrip(req)
		require.NoError(t, err, "a response in hand is returned")
		require.NoError(t, resp.Body.Close())
		return retryhttp.OutcomeOf(resp).Stop
	}

	canceled = true
	assert.Equal(t, retryhttp.StopFinal, run(), "final, although the context ended")
	code, wrap = 503, nested
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	assert.Equal(t, retryhttp.StopCanceled, run())
	canceled = false
	assert.Equal(t, retryhttp.StopNested, run())
	wrap = nil
	assert.Equal(t, retryhttp.StopNotIdempotent, run())
	method = "PUT"
	assert.Equal(t, retryhttp.StopAttempts, run())
	p.MaxAttempts = 0
	assert.Equal(t, retryhttp.StopBody, run())
	p.MaxBodyBytes = 0
	assert.Equal(t, retryhttp.StopRetryAfter, run())
	header = nil
	assert.Equal(t, retryhttp.StopDeadline, run())
	p.MaxElapsed = 0
	assert.Equal(t, retryhttp.StopBudget, run())
}

func TestTransportKeepsConcurrentRequestsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if r.Header.Get("Attempt-Seen") == "" && len(body)%2 == 0 {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			_, _ = w.Write(body)
		})
		_, base, stop := memnet.Serve(srv)
		defer stop()
		rt := retryhttp.New(base, retryhttp.Policy{MaxAttempts: 2, Budget: retryhttp.Unlimited{}})
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				body := strings.Repeat("x", i)
				req, err := http.NewRequest("PUT", "http://server/", io.MultiReader(strings.NewReader(body)))
				if !assert.NoError(t, err) {
					return
				}
				resp, err := rt.RoundTrip(req)
				if !assert.NoError(t, err) {
					return
				}
				got, err := io.ReadAll(resp.Body)
				assert.NoError(t, err)
				assert.NoError(t, resp.Body.Close())
				if i%2 == 1 {
					assert.Equal(t, body, string(got))
				} else {
					assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
				}
			})
		}
		wg.Wait()
	})
}

func TestTransportServesSeveralBubbles(t *testing.T) {
	// Timers and channels belong to the bubble they were made in. What a
	// Transport keeps between requests must hold none.
	rt := retryhttp.New(script.New(script.Status(503)), retryhttp.Policy{Budget: retryhttp.Unlimited{}})
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			resp, err := rt.RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			o := retryhttp.OutcomeOf(resp)
			assert.Equal(t, 4, o.Attempts)
			assert.LessOrEqual(t, o.Waited, 1750*time.Millisecond)
			assert.Equal(t, o.Waited, o.Elapsed)
		})
	}
}

func TestHooksThatPanicLeakNothing(t *testing.T) {
	boom := func() { panic(http.ErrAbortHandler) }
	asked := 0
	cases := map[string]struct {
		p    retryhttp.Policy
		base http.RoundTripper
	}{
		"OnRetry":  {p: retryhttp.Policy{OnRetry: func(retryhttp.Attempt) { boom() }}},
		"Classify": {p: retryhttp.Policy{Classify: func(retryhttp.Attempt) retryhttp.Class { boom(); return 0 }}},
		"Backoff":  {p: retryhttp.Policy{Backoff: func(int, time.Duration) time.Duration { boom(); return 0 }}},
		"Idempotent": {p: retryhttp.Policy{Idempotent: func(*http.Request) bool {
			if asked++; asked > 1 { // the first time, there is no response yet
				boom()
			}
			return true
		}}},
		"base": {base: script.New(func(r *http.Request) (*http.Response, error) { defer r.Body.Close(); panic(http.ErrAbortHandler) })},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				body := &trackedBody{Reader: strings.NewReader("x")}
				answer := &trackedBody{Reader: strings.NewReader("503")}
				budget := &countingBudget{}
				tc.p.Budget = budget
				base := tc.base
				if base == nil {
					base = script.New(func(r *http.Request) (*http.Response, error) {
						io.Copy(io.Discard, r.Body)
						r.Body.Close()
						resp := script.Response(r, 503)
						resp.Body = answer
						return resp, nil
					})
				}
				req, _ := http.NewRequest("PUT", "http://server/", body)
				assert.Panics(t, func() { retryhttp.New(base, tc.p).RoundTrip(req) })
				assert.Equal(t, int32(1), body.closes.Load(), "closes of the caller's body")
				if tc.base == nil {
					assert.Equal(t, int32(1), answer.closes.Load(), "closes of the response nobody got")
				}
				assert.Equal(t, budget.withdrawn, budget.refunded, "tokens")
			})
		})
	}
}

// A response's header is looked at where it is, and let go before the wait.
func TestResponseHeaderThatIsHugeIsNotCopied(t *testing.T) {
	huge := http.Header{"Retry-After": {"soon"}}
	for i := range 20_000 {
		huge[fmt.Sprintf("X-%d", i)] = []string{strings.Repeat("x", 50)}
	}
	base := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 503, Header: huge, Body: http.NoBody, Request: req}, nil
	})
	req := getURL(t, "http://server.example")
	rt := retryhttp.New(base, retryhttp.Policy{Backoff: retryhttp.Constant(0), Logger: slog.New(slog.DiscardHandler)})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	resp, err := rt.RoundTrip(req)
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	assert.Equal(t, 4, retryhttp.OutcomeOf(resp).Attempts)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<10))
}
