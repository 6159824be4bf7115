package retryhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
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

// An answer is what the server does with one attempt.
type answer = http.HandlerFunc

// status answers with code and a header of alternating names and values.
func status(code int, header ...string) answer {
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

// hangUp reads the request and closes the connection without an answer.
func hangUp(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }

// hang never answers.
func hang(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// received is what the server saw of one attempt.
type received struct {
	at     time.Time
	method string
	header http.Header
	body   string
}

// server plays answers, the last of them for all attempts that follow.
type server struct {
	answers []answer

	mu  sync.Mutex
	got []received
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

func TestATransportThatWasNotMadeByNewSaysSo(t *testing.T) {
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

// bubble runs f in a synctest bubble.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func get(t *testing.T, ctx context.Context) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://host.example/path", nil)
	require.NoError(t, err)
	return req
}

func errorOf(t *testing.T, err error) *retryhttp.Error {
	t.Helper()
	var e *retryhttp.Error
	require.ErrorAs(t, err, &e)
	return e
}

var errBroken = errors.New("connection broken")

func TestRequestIsNeverChanged(t *testing.T) {
	bubble(t, func(t *testing.T) {
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

func TestFirstAttemptSendsTheCallersRequestWhereItCan(t *testing.T) {
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

func TestAttemptTellsHowLongItTook(t *testing.T) {
	var told []time.Duration
	onRetry := func(a retryhttp.Attempt) { told = append(told, a.Elapsed) }
	classify := func(a retryhttp.Attempt) retryhttp.Class {
		told = append(told, a.Elapsed)
		return retryhttp.Classify(a)
	}
	for name, c := range map[string]struct {
		policy retryhttp.Policy
		edit   func(*retryhttp.Policy)
		step   script.Step
	}{
		"OnRetry, of a response":     {retryhttp.Policy{OnRetry: onRetry, MaxAttempts: 2}, nil, script.Status(503)},
		"OnRetry, of an error":       {retryhttp.Policy{OnRetry: onRetry, MaxAttempts: 2}, nil, script.Fail(errBroken)},
		"Classify, of a success":     {retryhttp.Policy{Classify: classify}, nil, script.Status(200)},
		"WithPolicy's, of a success": {retryhttp.Policy{}, func(p *retryhttp.Policy) { p.Classify = classify }, script.Status(200)},
	} {
		t.Run(name, func(t *testing.T) {
			told = nil
			bubble(t, func(t *testing.T) {
				base := script.New(func(req *http.Request) (*http.Response, error) {
					time.Sleep(3 * time.Second)
					return c.step(req)
				})
				_, _ = retryhttp.New(base, c.policy).RoundTrip(get(t, retryhttp.WithPolicy(t.Context(), c.edit)))
			})
			assert.Equal(t, []time.Duration{3 * time.Second}, told)
		})
	}
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

// countingBudget counts, and grants what it is told to.
type countingBudget struct {
	mu                           sync.Mutex
	withdrawn, refunded, deposit int
	refuse                       bool
}

func (b *countingBudget) Withdraw(*http.Request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse {
		return false
	}
	b.withdrawn++
	return true
}
func (b *countingBudget) Refund(*http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refunded++
}
func (b *countingBudget) Deposit(*http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deposit++
}

func TestBudgetIsAskedLastAndOnceForEachRetry(t *testing.T) {
	cases := []struct {
		name      string
		steps     []script.Step
		policy    retryhttp.Policy
		withdrawn int
		deposits  int
	}{
		{"first-attempt success", []script.Step{script.Status(200)}, retryhttp.Policy{}, 0, 1},
		{"a final 404 is a success", []script.Step{script.Status(404)}, retryhttp.Policy{}, 0, 1},
		{"two retries", []script.Step{script.Status(503), script.Status(503), script.Status(200)}, retryhttp.Policy{}, 2, 1},
		{"attempts run out", []script.Step{script.Status(503)}, retryhttp.Policy{MaxAttempts: 3}, 2, 0},
		{"a deadline withdraws nothing", []script.Step{script.Status(503)}, retryhttp.Policy{MaxElapsed: 1}, 0, 0},
		{"a long Retry-After withdraws nothing", []script.Step{script.Status(503, "Retry-After", "999")}, retryhttp.Policy{}, 0, 0},
		{"a final error deposits nothing", []script.Step{script.Fail(retryhttp.Permanent(errBroken))}, retryhttp.Policy{}, 0, 0},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				budget := &countingBudget{}
				tc.policy.Budget = budget
				tc.policy.Backoff = retryhttp.Constant(time.Second)
				resp, err := retryhttp.New(script.New(tc.steps...), tc.policy).RoundTrip(get(t, t.Context()))
				if err == nil {
					require.NoError(t, resp.Body.Close())
				}
				assert.Equal(t, tc.withdrawn, budget.withdrawn)
				assert.Equal(t, tc.deposits, budget.deposit)
				assert.Zero(t, budget.refunded)
			})
		})
	}
}

func TestUnprocessedIsRetriedForAnyMethodOnlyIfAsked(t *testing.T) {
	unprocessed := func(retryhttp.Attempt) retryhttp.Class { return retryhttp.Unprocessed }
	cases := []struct {
		name     string
		method   string
		policy   retryhttp.Policy
		attempts int
	}{
		{"a GET without being asked", "GET", retryhttp.Policy{Classify: unprocessed, MaxAttempts: 3}, 3},
		{"a POST without being asked", "POST", retryhttp.Policy{Classify: unprocessed, MaxAttempts: 3}, 1},
		{"a POST when asked", "POST", retryhttp.Policy{Classify: unprocessed, MaxAttempts: 3, RetryUnprocessed: true}, 3},
		{"a POST that may have been processed", "POST", retryhttp.Policy{MaxAttempts: 3, RetryUnprocessed: true}, 1},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				req := get(t, t.Context())
				req.Method = tc.method
				_, err := retryhttp.New(script.New(script.Fail(errBroken)), tc.policy).RoundTrip(req)
				e := errorOf(t, err)
				assert.Equal(t, tc.attempts, e.Attempts)
				assert.False(t, e.Ambiguous)
			})
		})
	}
}

func TestAClassThatIsNoneEndsTheRetries(t *testing.T) {
	budget := &countingBudget{}
	rt := retryhttp.New(script.New(script.Status(503)), retryhttp.Policy{
		Budget:   budget,
		Classify: func(retryhttp.Attempt) retryhttp.Class { return 42 },
	})
	resp, err := rt.RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, retryhttp.StopFinal, retryhttp.OutcomeOf(resp).Stop)
}

func TestIdempotencyKeyIsOneForAllAttempts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := script.New(script.Status(503), script.Fail(errBroken), script.Status(200))
		rt := retryhttp.New(base, retryhttp.Policy{IdempotencyKey: retryhttp.RandomKey})
		for range 2 {
			req, err := http.NewRequest("POST", "http://host.example/", strings.NewReader("pay"))
			require.NoError(t, err)
			resp, err := rt.RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.NotContains(t, req.Header, "Idempotency-Key")
		}
		var keys []string
		for _, sent := range base.Requests() {
			keys = append(keys, sent.Header.Get("Idempotency-Key"))
		}
		require.Len(t, keys, 4)
		assert.Equal(t, keys[0], keys[1])
		assert.Equal(t, keys[0], keys[2])
		assert.NotEqual(t, keys[0], keys[3], "another request, another key")
	})
}

func TestIdempotencyKeyLeavesTheCallersAlone(t *testing.T) {
	cases := []struct {
		name   string
		method string
		header http.Header
		policy retryhttp.Policy
		want   http.Header
	}{
		{name: "a key", method: "POST", header: http.Header{"Idempotency-Key": {"mine"}}, want: http.Header{"Idempotency-Key": {"mine"}}},
		{name: "an X- key", method: "POST", header: http.Header{"X-Idempotency-Key": {"mine"}}, want: http.Header{"X-Idempotency-Key": {"mine"}}},
		{name: "a mark that is not sent", method: "POST", header: http.Header{"Idempotency-Key": {}}, want: http.Header{"Idempotency-Key": {}}},
		{name: "an idempotent method", method: "PUT", header: http.Header{}, want: http.Header{}},
		{name: "an empty key is replaced", method: "POST", header: http.Header{"Idempotency-Key": {""}}, want: http.Header{"Idempotency-Key": {"made"}}},
		{name: "no header at all", method: "POST", want: http.Header{"Idempotency-Key": {"made"}}},
		{name: "a key of no use to Policy.Idempotent", method: "POST", header: http.Header{"Idempotency-Key": {"mine"}}, want: http.Header{"Idempotency-Key": {"mine"}},
			policy: retryhttp.Policy{Idempotent: func(*http.Request) bool { return false }}},
		{name: "none made", method: "POST", header: http.Header{}, want: http.Header{},
			policy: retryhttp.Policy{IdempotencyKey: func(*http.Request) string { return "" }}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			base := script.New(script.Status(200))
			if tc.policy.IdempotencyKey == nil {
				tc.policy.IdempotencyKey = func(*http.Request) string { return "made" }
			}
			req := get(t, t.Context())
			req.Method, req.Header = tc.method, tc.header
			before := tc.header.Clone()
			resp, err := retryhttp.New(base, tc.policy).RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, tc.want, base.Requests()[0].Header)
			assert.Equal(t, before, req.Header)
		})
	}
}

func TestConcurrentRequestsDoNotMeet(t *testing.T) {
	bubble(t, func(t *testing.T) {
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
