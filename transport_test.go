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
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/loopback"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestContract(t *testing.T) {
	const second = time.Second
	type policy = retryhttp.Policy

	// The conformance vectors say what is retried, and when. These go over a connection, and through an
	// http.Client. A case has only what differs from this: a GET without a body, a backoff of one second,
	// the default policy's limits, and StopFinal. Each wait precedes one more attempt. Waits are exact, in
	// virtual time.
	cases := []struct {
		name    string
		method  string
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
		{name: "a failed response is retried", answers: play(503, 429, 200), status: 200, waits: seconds(1, 1)},
		{
			name:    "the last response is returned",
			answers: play(503), status: 503, stop: retryhttp.StopAttempts, waits: seconds(1, 1, 1),
		},
		{
			name:    "an error is returned",
			answers: play(hangUp), err: io.EOF, stop: retryhttp.StopAttempts, waits: seconds(1, 1, 1),
		},

		{
			name: "a POST whose connection breaks is sent once", method: "POST", body: "pay",
			answers: play(hangUp), err: io.EOF, stop: retryhttp.StopNotIdempotent, ambiguous: true,
		},
		{
			name: "no wait past http.Client.Timeout", timeout: 1500 * time.Millisecond,
			answers: play(503), status: 503, stop: retryhttp.StopDeadline, waits: seconds(1),
		},
		{
			name: "the error at once, and not the deadline's", timeout: second,
			answers: play(hangUp), err: io.EOF, stop: retryhttp.StopDeadline,
		},

		{
			name: "an attempt that hangs is ended and retried", policy: policy{AttemptTimeout: 3 * second},
			answers: play(hang, 200), status: 200, waits: seconds(4),
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			srv := &server{answers: tc.answers}
			serving(t, srv.ServeHTTP, func(t *testing.T, base http.RoundTripper) {
				if tc.policy.Backoff == nil {
					tc.policy.Backoff = retryhttp.Constant(second)
				}
				client := &http.Client{Transport: retryhttp.New(base, tc.policy), Timeout: tc.timeout}
				req := requestOf(t, tc.method, strings.NewReader(tc.body))

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
					assert.Equal(t, "answer "+http.StatusText(tc.status), string(body), "the body comes unread")
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
		for _, rt := range []interface {
			http.RoundTripper
			CloseIdleConnections()
		}{
			(*retryhttp.Transport)(nil), new(retryhttp.Transport), overBase(nil), overBase(new(retryhttp.Base)),
			(*retryhttp.Base)(nil), new(retryhttp.Base),
		} {
			body := &bodies.Tracked{Reader: strings.NewReader("upload")}
			_, err := rt.RoundTrip(uploadOf(t, body))
			assert.ErrorContains(t, err, "not made by New")
			if _, ok := rt.(*retryhttp.Transport); ok {
				assert.Equal(t, retryhttp.StopFinal, errorOf(t, err).Stop)
				assert.LessOrEqual(t, errorOf(t, err).Attempts, 1)
			}
			assert.EqualValues(t, 1, body.Closes.Load())
			rt.CloseIdleConnections()
		}
	})
}

func TestRequestIsNeverChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script.New(script.Status(503), script.Status(200))
		rt := retryhttp.New(base, retryhttp.Policy{IdempotencyKey: retryhttp.RandomKey, AttemptTimeout: time.Minute})
		req := requestOf(t, "POST", io.MultiReader(strings.NewReader("stream")))
		req.Header.Set("X-Caller", "yes")
		req.Trailer = http.Header{"X-Sum": nil}
		before, header := *req, req.Header.Clone()

		resp, err := rt.RoundTrip(req)

		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.True(t, reflect.DeepEqual(before, *req))
		assert.Equal(t, header, req.Header)
		assert.Equal(t, http.Header{"X-Sum": nil}, req.Trailer)
		for i, sent := range base.Requests() {
			assert.NotSame(t, req, sent)
			assert.NotEmpty(t, sent.Header.Get("Idempotency-Key"), "attempt %d", i+1)
		}
	})
}

// A context that nobody ends would stay in memory as long as the caller's.
func TestAttemptThatIsAnsweredWithoutABodyIsOver(t *testing.T) {
	var sent *http.Request
	base := script.Step(func(req *http.Request) (*http.Response, error) {
		sent = req
		return &http.Response{StatusCode: http.StatusOK, Request: req}, nil
	})
	resp, err := retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Hour}).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	assert.Nil(t, resp.Body)
	assert.ErrorIs(t, sent.Context().Err(), context.Canceled)
}

func TestNilBaseIsABaseOfItsOwn(t *testing.T) {
	srv := &server{answers: play(503, 200)}
	url := loopback.Serve(t, srv.ServeHTTP)
	var last retryhttp.Attempt
	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		Backoff: retryhttp.Constant(0),
		OnDone:  func(a retryhttp.Attempt, _ retryhttp.Outcome) { last = a },
	})}
	defer client.CloseIdleConnections()
	resp, err := client.Get(url)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, 200, resp.StatusCode)
	assert.True(t, last.Detour, "only a Base takes another connection for a retry")
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

// The server is busy for bodies of even length.
func TestTransportKeepsConcurrentRequestsApart(t *testing.T) {
	serving(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if len(body)%2 == 0 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write(body)
	}, func(t *testing.T, base http.RoundTripper) {
		rt := retryhttp.New(base, retryhttp.Policy{MaxAttempts: 2, Budget: retryhttp.Unlimited{}})
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				body := strings.Repeat("x", i)
				req, err := http.NewRequest("PUT", "http://server/", io.MultiReader(strings.NewReader(body)))
				assert.NoError(t, err)
				resp, err := rt.RoundTrip(req)
				if !assert.NoError(t, err) {
					return
				}
				got, err := io.ReadAll(resp.Body)
				assert.NoError(t, err)
				assert.NoError(t, resp.Body.Close())
				assert.Equal(t, body, string(got))
				assert.Equal(t, i%2 == 1, resp.StatusCode == http.StatusOK)
			})
		}
		wg.Wait()
	})
}

// Timers and channels belong to the bubble that they were made in. A Transport must keep none of them
// between requests.
func TestTransportServesSeveralBubbles(t *testing.T) {
	rt := retryhttp.New(script.New(script.Status(503)), retryhttp.Policy{Budget: retryhttp.Unlimited{}})
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			assert.Equal(t, 4, attempts(t, rt, t.Context()))
		})
	}
}

func TestHooksThatPanicLeakNothing(t *testing.T) {
	boom := func() { panic(http.ErrAbortHandler) }
	type testCase struct {
		policy retryhttp.Policy
		edit   func(*retryhttp.Policy)
		base   func() // called with each attempt, before the answer
		hedged bool   // a GET with a GetBody
	}
	inBubbles(t, map[string]testCase{
		"Key of the Hedge": {
			policy: retryhttp.Policy{Hedge: &retryhttp.Hedge{Key: func(*http.Request) string { boom(); return "" }}}, hedged: true,
		},
		"an edit of WithPolicy": {edit: func(*retryhttp.Policy) { boom() }},
		"OnRetry":               {policy: retryhttp.Policy{OnRetry: func(retryhttp.Attempt) { boom() }}},
		"OnRetry, and then the Budget": {
			policy: retryhttp.Policy{OnRetry: func(retryhttp.Attempt) { boom() }, Budget: refundPanics{}},
		},
		"Classify": {policy: retryhttp.Policy{Classify: func(retryhttp.Attempt) retryhttp.Class { boom(); return 0 }}},
		"RetryAfter": {
			policy: retryhttp.Policy{RetryAfter: func(retryhttp.Attempt) (time.Duration, bool) { boom(); return 0, false }},
		},
		"Backoff":    {policy: retryhttp.Policy{Backoff: func(int, time.Duration) time.Duration { boom(); return 0 }}},
		"Idempotent": {policy: retryhttp.Policy{Idempotent: func(*http.Request) bool { boom(); return true }}},
		"base":       {base: boom},
		"OnDone, after a wait that was canceled": {policy: retryhttp.Policy{
			Backoff: retryhttp.Constant(time.Hour), OnDone: func(retryhttp.Attempt, retryhttp.Outcome) { boom() },
		}},
	}, func(t *testing.T, c testCase) {
		body := &bodies.Tracked{Reader: strings.NewReader("x")}
		answer := &bodies.Tracked{Reader: strings.NewReader("503")}
		answers := int32(0)
		base := script.Step(func(req *http.Request) (*http.Response, error) {
			defer req.Body.Close()
			_, _ = io.Copy(io.Discard, req.Body)
			if c.base != nil {
				c.base()
			}
			answers++
			return script.Respond(503, answer)(req)
		})
		gate, budget := new(retryhttp.Gate), new(countingBudget)
		p := c.policy
		p.Gate = gate
		if p.Budget == nil {
			p.Budget = budget
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		time.AfterFunc(time.Second, cancel)
		req, err := http.NewRequestWithContext(retryhttp.WithPolicy(ctx, c.edit), "PUT", "http://server/", body)
		require.NoError(t, err)
		if c.hedged {
			req.Method, req.GetBody = "GET", func() (io.ReadCloser, error) { return body, nil }
		}
		assert.Panics(t, func() { _, _ = retryhttp.New(base, p).RoundTrip(req) })
		assert.Equal(t, int32(1), body.Closes.Load(), "closes of the caller's body")
		assert.Equal(t, answers, answer.Closes.Load(), "closes of the response that nobody got")
		assert.Equal(t, budget.withdrawn, budget.refunded, "tokens")
		assert.Zero(t, retryhttp.InTrouble(gate, "server"))
	})
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

// countFailure reports a failure that no retry follows to b.
func countFailure(b retryhttp.Budget, req *http.Request, failed retryhttp.Attempt) {
	b.Withdraw(retryhttp.Retry{Request: req, Failed: failed, Stop: retryhttp.StopNotIdempotent})
}
