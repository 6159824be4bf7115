package retryhttp_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/loopback"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestContract(t *testing.T) {
	const second = time.Second
	type policy = retryhttp.Policy
	keyed, xKeyed := []string{"Idempotency-Key", "k"}, []string{"X-Idempotency-Key", "k"}

	// A case has only what differs from this: a GET without a body, a backoff of
	// one second, the default policy's limits, and StopFinal. Each wait precedes
	// one more attempt. Waits are exact, in virtual time.
	cases := []struct {
		name    string
		method  string
		header  []string
		body    string
		policy  policy
		timeout time.Duration // of the http.Client

		answers []http.HandlerFunc

		status    int            // of the response
		err       error          // nil: there is a response
		stop      retryhttp.Stop // "": StopFinal
		waits     []time.Duration
		ambiguous bool
	}{
		{name: "success at once", answers: play(200), status: 200},
		{name: "408 is retried", answers: play(408, 200), status: 200, waits: seconds(1)},
		{name: "429 is retried", answers: play(429, 200), status: 200, waits: seconds(1)},
		{name: "500 is retried", answers: play(500, 200), status: 200, waits: seconds(1)},
		{name: "501 is retried", answers: play(501, 200), status: 200, waits: seconds(1)},
		{name: "503 twice", answers: play(503, 503, 200), status: 200, waits: seconds(1, 1)},
		{name: "599 is retried", answers: play(599, 200), status: 200, waits: seconds(1)},
		{name: "304 is final", answers: play(304), status: 304},
		{name: "400 is final", answers: play(400), status: 400},
		{name: "401 is final", answers: play(401), status: 401},
		{name: "404 after a 503 is final", answers: play(503, 404), status: 404, waits: seconds(1)},
		{name: "409 is final", answers: play(409), status: 409},
		{name: "413 with Retry-After is final", answers: play(status(413, "Retry-After", "1")), status: 413},
		{name: "202 with Retry-After is final", method: "PUT", answers: play(status(202, "Retry-After", "1")), status: 202},
		{name: "600 is final", answers: play(600), status: 600},

		{
			name:    "the last response is returned",
			answers: play(503), status: 503, stop: retryhttp.StopAttempts, waits: seconds(1, 1, 1),
		},
		{
			name: "one attempt", policy: policy{MaxAttempts: 1},
			answers: play(503), status: 503, stop: retryhttp.StopAttempts,
		},
		{
			name: "no bound on attempts", policy: policy{MaxAttempts: -1, Budget: retryhttp.Unlimited{}},
			answers: play(503, 503, 503, 503, 503, 503, 200), status: 200, waits: seconds(1, 1, 1, 1, 1, 1),
		},

		{name: "a broken connection is retried", answers: play(hangUp, 200), status: 200, waits: seconds(1)},
		{
			name:    "an error is returned",
			answers: play(hangUp), err: io.EOF, stop: retryhttp.StopAttempts, waits: seconds(1, 1, 1),
		},

		{
			name: "a POST is sent once", method: "POST", body: "pay",
			answers: play(503), status: 503, stop: retryhttp.StopNotIdempotent,
		},
		{
			name: "a POST whose connection breaks is sent once", method: "POST", body: "pay",
			answers: play(hangUp), err: io.EOF, stop: retryhttp.StopNotIdempotent, ambiguous: true,
		},
		{
			name: "a PATCH is sent once", method: "PATCH", body: "x",
			answers: play(503), status: 503, stop: retryhttp.StopNotIdempotent,
		},
		{
			name: "a POST is not retried for a Retry-After", method: "POST", body: "pay",
			answers: play(status(429, "Retry-After", "1")), status: 429, stop: retryhttp.StopNotIdempotent,
		},
		{
			name: "a POST with a key is retried", method: "POST", header: keyed, body: "pay",
			answers: play(503, 200), status: 200, waits: seconds(1), ambiguous: true,
		},
		{
			name: "a POST with an X-Idempotency-Key is retried", method: "POST", header: xKeyed, body: "pay",
			answers: play(503, 200), status: 200, waits: seconds(1), ambiguous: true,
		},
		{
			name: "a POST with an empty key is sent once", method: "POST", header: []string{"Idempotency-Key", ""}, body: "pay",
			answers: play(503), status: 503, stop: retryhttp.StopNotIdempotent,
		},
		{
			name: "a PUT is retried with its body", method: "PUT", body: "all of it",
			answers: play(503, 200), status: 200, waits: seconds(1), ambiguous: true,
		},
		{
			name: "a DELETE's 404 after a 500 is ambiguous", method: "DELETE",
			answers: play(500, 404), status: 404, waits: seconds(1), ambiguous: true,
		},
		{
			name: "a DELETE's 404 after a broken connection is ambiguous", method: "DELETE",
			answers: play(hangUp, 404), status: 404, waits: seconds(1), ambiguous: true,
		},
		{
			name: "a DELETE's 404 after a 429 is not ambiguous", method: "DELETE",
			answers: play(429, 404), status: 404, waits: seconds(1),
		},
		{
			name: "a DELETE's 404 after a 408 is not ambiguous", method: "DELETE",
			answers: play(408, 404), status: 404, waits: seconds(1),
		},
		{
			name: "only attempts before the last are ambiguous", method: "DELETE", policy: policy{MaxAttempts: 1},
			answers: play(500), status: 500, stop: retryhttp.StopAttempts,
		},

		{
			name:    "Retry-After comes before the backoff",
			answers: play(status(429, "Retry-After", "2"), 200), status: 200, waits: seconds(3),
		},
		{
			name:    "Retry-After in milliseconds",
			answers: play(status(503, "Retry-After-Ms", "1500", "Retry-After", "9"), 200), status: 200, waits: seconds(2.5),
		},
		{
			name:    "Retry-After of zero is none",
			answers: play(status(503, "Retry-After", "0"), 200), status: 200, waits: seconds(1),
		},
		{
			name:    "Retry-After in the past is none",
			answers: play(status(503, "Retry-After", "Sun, 06 Nov 1994 08:49:37 GMT"), 200), status: 200, waits: seconds(1),
		},
		{
			name:    "an invalid Retry-After is none",
			answers: play(status(503, "Retry-After", "soon"), 200), status: 200, waits: seconds(1),
		},
		{
			name:    "a Retry-After of exactly MaxRetryAfter is waited for",
			policy:  policy{Backoff: retryhttp.Constant(time.Minute)},
			answers: play(status(503, "Retry-After", "60"), 200),
			status:  200, waits: seconds(120),
		},
		{
			name:    "a longer Retry-After ends the retries",
			answers: play(status(503, "Retry-After", "61")), status: 503, stop: retryhttp.StopRetryAfter,
		},
		{
			name:    "a Retry-After beyond all bounds ends the retries",
			answers: play(status(503, "Retry-After", "99999999999999999999")), status: 503, stop: retryhttp.StopRetryAfter,
		},
		{
			name: "Retry-After can be ignored", policy: policy{MaxRetryAfter: -1},
			answers: play(status(503, "Retry-After", "61"), 200), status: 200, waits: seconds(1),
		},

		{
			name: "no wait past http.Client.Timeout", timeout: 1500 * time.Millisecond,
			answers: play(503), status: 503, stop: retryhttp.StopDeadline, waits: seconds(1),
		},
		{
			name: "no wait that ends at the deadline", timeout: second,
			answers: play(503), status: 503, stop: retryhttp.StopDeadline,
		},
		{
			name: "a wait that ends just before the deadline", timeout: second + 1,
			answers: play(503, 200), status: 200, waits: seconds(1),
		},
		{
			name: "no Retry-After past the deadline", timeout: 2 * second,
			answers: play(status(503, "Retry-After", "2")), status: 503, stop: retryhttp.StopDeadline,
		},
		{
			name: "the error at once, and not the deadline's", timeout: second,
			answers: play(hangUp), err: io.EOF, stop: retryhttp.StopDeadline,
		},
		{
			name: "a retry at exactly MaxElapsed", policy: policy{MaxElapsed: 2 * second},
			answers: play(503), status: 503, stop: retryhttp.StopDeadline, waits: seconds(1, 1),
		},
		{
			name: "no retry after MaxElapsed", policy: policy{MaxElapsed: 2*second - 1},
			answers: play(503), status: 503, stop: retryhttp.StopDeadline, waits: seconds(1),
		},
		{
			name: "an absurd backoff that no limit stops", policy: policy{Backoff: retryhttp.Constant(-second)},
			answers: play(503, 200), status: 200, waits: seconds(0),
		},

		{
			name: "an attempt that hangs is ended and retried", policy: policy{AttemptTimeout: 3 * second},
			answers: play(hang, 200), status: 200, waits: seconds(4),
		},
		{
			name: "attempts that all hang", policy: policy{AttemptTimeout: 3 * second, MaxAttempts: 2},
			answers: play(hang), err: context.DeadlineExceeded, stop: retryhttp.StopAttempts, waits: seconds(4),
		},
		{
			name:   "an attempt timeout is no proof for a POST",
			method: "POST", policy: policy{AttemptTimeout: second, RetryUnprocessed: true},
			answers: play(hang),
			err:     context.DeadlineExceeded, stop: retryhttp.StopNotIdempotent, ambiguous: true,
		},

		{
			name: "the budget ends the retries", policy: policy{Budget: &retryhttp.TokenBucket{Burst: 1}},
			answers: play(503), status: 503, stop: retryhttp.StopBudget, waits: seconds(1),
		},
		{
			name: "the budget of a default policy", policy: policy{MaxAttempts: -1},
			answers: play(503), status: 503, stop: retryhttp.StopBudget, waits: seconds(1, 1, 1, 1, 1),
		},
		{
			name: "a budget of nothing", policy: policy{Budget: &retryhttp.TokenBucket{Ratio: -1, Burst: -1}},
			answers: play(hangUp), err: io.EOF, stop: retryhttp.StopBudget,
		},
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

				attempts := len(tc.waits) + 1
				var outcome retryhttp.Outcome
				if tc.err != nil {
					assert.Nil(t, resp)
					outcome = errorOf(t, err).Outcome
					assert.ErrorIs(t, err, tc.err)
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
				assert.Equal(t, attempts, outcome.Attempts)
				assert.Equal(t, cmp.Or(tc.stop, retryhttp.StopFinal), outcome.Stop)
				assert.Equal(t, tc.ambiguous, outcome.Ambiguous)
				assert.Equal(t, tc.waits, srv.waits())
				assert.Len(t, srv.got, attempts, "every attempt reached the server, and nothing else did")
				for _, got := range srv.got {
					assert.Equal(t, tc.body, got.body, "every attempt carried the whole body")
				}
				synctest.Wait()
			})
		})
	}
}

func TestTransportThatWasNotMadeByNewSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		overBase := func(b *retryhttp.Base) *retryhttp.Transport { return retryhttp.New(b, noWait) }
		for _, rt := range []*retryhttp.Transport{nil, {}, overBase(nil), overBase(new(retryhttp.Base))} {
			body := &bodies.Tracked{Reader: strings.NewReader("upload")}
			req, err := http.NewRequest(http.MethodPut, "http://host.example/", body)
			require.NoError(t, err)
			_, err = rt.RoundTrip(req)
			assert.Equal(t, retryhttp.StopFinal, errorOf(t, err).Stop)
			assert.ErrorContains(t, err, "not made by New")
			assert.LessOrEqual(t, errorOf(t, err).Attempts, 1)
			assert.EqualValues(t, 1, body.Closes.Load())
		}
	})
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

func TestNilBaseIsAPooledTransportOfItsOwn(t *testing.T) {
	srv := &server{answers: play(503, 200)}
	url := loopback.Serve(t, srv.ServeHTTP)
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
	// At first, every reason speaks against another attempt. The test removes them
	// one by one, and each time expects the next as the Stop.
	spent := &retryhttp.TokenBucket{Ratio: -1, Burst: -1}
	p := retryhttp.Policy{
		MaxAttempts: 1, RecordBytes: 1, Budget: spent, Backoff: retryhttp.Constant(time.Hour), MaxElapsed: time.Minute,
	}
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
		req, err := http.NewRequestWithContext(reqCtx, method, "http://host.example/",
			io.MultiReader(strings.NewReader("long")))
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
	p.RecordBytes = 0
	assert.Equal(t, retryhttp.StopRetryAfter, run())
	header = nil
	assert.Equal(t, retryhttp.StopDeadline, run())
	p.MaxElapsed, p.Backoff = 0, retryhttp.Constant(0) // for which a refused request waits
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
	// Timers and channels belong to the bubble that they were made in. A Transport
	// must keep none of them between requests.
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

func TestPanicAfterACanceledWaitRefundsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		budget := &countingBudget{}
		rt := retryhttp.New(script.New(script.Status(503)), retryhttp.Policy{
			Backoff: retryhttp.Constant(time.Hour),
			Budget:  budget,
			OnDone:  func(retryhttp.Attempt, retryhttp.Outcome) { panic(http.ErrAbortHandler) },
		})
		assert.Panics(t, func() { _, _ = rt.RoundTrip(get(t, ctx)) })
		assert.Equal(t, 1, budget.refunded)
	})
}

func TestHooksThatPanicLeakNothing(t *testing.T) {
	boom := func() { panic(http.ErrAbortHandler) }
	cases := map[string]struct {
		p    retryhttp.Policy
		base http.RoundTripper
	}{
		"OnRetry": {p: retryhttp.Policy{OnRetry: func(retryhttp.Attempt) { boom() }}},
		"OnRetry, and then the Budget": {
			p: retryhttp.Policy{OnRetry: func(retryhttp.Attempt) { boom() }, Budget: refundPanics{}},
		},
		"Classify": {p: retryhttp.Policy{Classify: func(retryhttp.Attempt) retryhttp.Class { boom(); return 0 }}},
		"Backoff":  {p: retryhttp.Policy{Backoff: func(int, time.Duration) time.Duration { boom(); return 0 }}},
		"Idempotent": {
			p:    retryhttp.Policy{Idempotent: func(*http.Request) bool { boom(); return true }},
			base: script.New(script.Status(503)),
		},
		"base": {
			base: script.New(func(r *http.Request) (*http.Response, error) {
				defer r.Body.Close()
				panic(http.ErrAbortHandler)
			}),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				body := &bodies.Tracked{Reader: strings.NewReader("x")}
				answer := &bodies.Tracked{Reader: strings.NewReader("503")}
				budget := &countingBudget{}
				if tc.p.Budget == nil {
					tc.p.Budget = budget
				}
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
				assert.Equal(t, int32(1), body.Closes.Load(), "closes of the caller's body")
				if tc.base == nil {
					assert.Equal(t, int32(1), answer.Closes.Load(), "closes of the response nobody got")
				}
				assert.Equal(t, budget.withdrawn, budget.refunded, "tokens")
			})
		})
	}
}

// The Transport reads a response's header without a copy.
func TestResponseHeaderThatIsHugeIsNotCopied(t *testing.T) {
	huge := http.Header{"Retry-After": {"soon"}}
	for i := range 20_000 {
		huge[fmt.Sprintf("X-%d", i)] = []string{strings.Repeat("x", 50)}
	}
	base := script.Step(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 503, Header: huge, Body: http.NoBody, Request: req}, nil
	})
	req := getURL(t, "http://server.example")
	rt := retryhttp.New(base, retryhttp.Policy{Backoff: retryhttp.Constant(0), Logger: slog.New(slog.DiscardHandler)})
	var resp *http.Response
	var err error
	assert.Less(t, allocated(func() { resp, err = rt.RoundTrip(req) }), uint64(64<<10))
	require.NoError(t, err)
	assert.Equal(t, 4, retryhttp.OutcomeOf(resp).Attempts)
}

var noWait = retryhttp.Policy{Backoff: retryhttp.Constant(0), Budget: retryhttp.Unlimited{}}

var errBroken = errors.New("connection broken")

// withoutDetours hides an http.Transport from New. All attempts take its pool.
type withoutDetours struct{ http.RoundTripper }

func get(t *testing.T, ctx context.Context) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://host.example/path", nil)
	require.NoError(t, err)
	return req
}

func getURL(t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	return req
}

func requestTo(host string) *http.Request {
	return &http.Request{Method: "GET", URL: &url.URL{Scheme: "http", Host: host, Path: "/"}}
}

func errorOf(t *testing.T, err error) *retryhttp.Error {
	t.Helper()
	var e *retryhttp.Error
	require.ErrorAs(t, err, &e)
	return e
}

// server plays answers, and the last one for all attempts that follow.
type server struct {
	answers []http.HandlerFunc

	mu  sync.Mutex
	got []received
}

// received is what the server saw of one attempt.
type received struct {
	at     time.Time
	method string
	header http.Header
	body   string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		body = []byte(err.Error())
	}
	s.mu.Lock()
	answer := s.answers[min(len(s.got), len(s.answers)-1)]
	s.got = append(s.got, received{time.Now(), r.Method, r.Header.Clone(), string(body)})
	s.mu.Unlock()
	answer(w, r)
}

func (s *server) waits() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var waits []time.Duration
	for i := 1; i < len(s.got); i++ {
		waits = append(waits, s.got[i].at.Sub(s.got[i-1].at))
	}
	return waits
}

// play makes answers of status codes and handlers.
func play(answers ...any) []http.HandlerFunc {
	handlers := make([]http.HandlerFunc, len(answers))
	for i, answer := range answers {
		switch answer := answer.(type) {
		case int:
			handlers[i] = status(answer)
		case func(http.ResponseWriter, *http.Request):
			handlers[i] = answer
		case http.HandlerFunc:
			handlers[i] = answer
		}
	}
	return handlers
}

// status answers with code and a header of alternating names and values.
func status(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Add(header[i], header[i+1])
		}
		w.WriteHeader(code)
		if code != http.StatusNotModified {
			_, _ = io.WriteString(w, "answer "+http.StatusText(code))
		}
	}
}

// hangUp closes the connection without an answer.
func hangUp(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }

func hang(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func seconds(list ...float64) (durations []time.Duration) {
	for _, s := range list {
		durations = append(durations, time.Duration(s*float64(time.Second)))
	}
	return durations
}

// countingBudget counts its calls. It grants everything, or nothing if refuse is
// set, in which case nothing waits in line.
type countingBudget struct {
	mu                           sync.Mutex
	withdrawn, refunded, deposit int
	refuse                       bool
}

func (b *countingBudget) Withdraw(r retryhttp.Retry) (cost float64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case r.Stop != "":
		return 0, false
	case b.refuse:
		return math.Inf(1), false
	}
	b.withdrawn++
	return 1, true
}

func (b *countingBudget) Refund(_ *http.Request, cost float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refunded++
}

func (b *countingBudget) Deposit(*http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deposit++
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// addRandom adds n seeds of at least so many bytes and fewer than most, and the extremes.
func addRandom(f *testing.F, n, least, most int) {
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{255}, most))
	f.Add(make([]byte, most))
	rng := rand.New(rand.NewPCG(1, 2))
	for range n {
		data := make([]byte, least+rng.IntN(most-least))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		f.Add(data)
	}
}

// withdraw asks b for a retry of which nothing is known but the request.
func withdraw(b retryhttp.Budget, req *http.Request) bool {
	_, ok := b.Withdraw(retryhttp.Retry{Request: req})
	return ok
}

// countFailure tells b of a failure that no retry follows.
func countFailure(b retryhttp.Budget, req *http.Request, failed retryhttp.Attempt) {
	b.Withdraw(retryhttp.Retry{Request: req, Failed: failed, Stop: retryhttp.StopNotIdempotent})
}
