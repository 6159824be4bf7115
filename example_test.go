package retryhttp_test

import (
	"context"
	"errors"
	"expvar"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp"
)

func ExampleNew() {
	server := serverAnswering(503, 200)
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{})}
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	// Output: 200 OK
}

func ExamplePolicy() {
	server := serverAnswering(503, 200)
	defer server.Close()

	client := &http.Client{
		Timeout: 10 * time.Second, // for all attempts together
		Transport: retryhttp.New(nil, retryhttp.Policy{
			MaxAttempts:    5,
			AttemptTimeout: 2 * time.Second,
			IdempotencyKey: retryhttp.RandomKey, // only for servers that honor the header
			Logger:         slog.Default(),
		}),
	}
	show(client.Post(server.URL, "text/plain", strings.NewReader("hello")))
	// Output: 200 OK at attempt 2
}

// A server gets the same key on all attempts of a request.
// RandomKey makes one for each request. A key that is made from what the request
// is about also covers a request that the program makes anew, after a restart.
func ExamplePolicy_idempotencyKey() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("key:", r.Header.Get("Idempotency-Key"))
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		MaxAttempts: 2,
		IdempotencyKey: func(req *http.Request) string {
			return "pay" + strings.ReplaceAll(req.URL.Path, "/", "-")
		},
	})}
	show(client.Post(server.URL+"/orders/17", "application/json", strings.NewReader(`{"amount": 42}`)))
	// Output:
	// key: pay-orders-17
	// key: pay-orders-17
	// 503 Service Unavailable at attempt 2
}

// A proxy must not repeat a request that is not idempotent, even if its client
// has given it a key (RFC 9110, section 9.2.2): the method alone decides.
func ExamplePolicy_reverseProxy() {
	backend := serverAnswering(503, 200, 503, 200)
	defer backend.Close()
	target, err := url.Parse(backend.URL)
	if err != nil {
		fmt.Println(err)
		return
	}

	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: retryhttp.New(nil, retryhttp.Policy{
			Backoff: retryhttp.Constant(10 * time.Millisecond),
			Idempotent: func(req *http.Request) bool {
				return retryhttp.Idempotent(&http.Request{Method: req.Method}) // as if it had no headers
			},
		}),
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		req := httptest.NewRequest(method, "/", nil)
		req.Header.Set("Idempotency-Key", "17")
		w := httptest.NewRecorder()
		proxy.ServeHTTP(w, req)
		fmt.Println(method, w.Code)
	}
	// Output:
	// GET 200
	// POST 503
}

func ExampleWithPolicy() {
	server := serverAnswering(503)
	defer server.Close()
	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{})}

	// This caller asks again soon by itself.
	ctx := retryhttp.WithPolicy(context.Background(), func(p *retryhttp.Policy) {
		p.MaxAttempts = 1
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	show(client.Do(req))
	// Output: 503 Service Unavailable at attempt 1
}

// A 404 to a DELETE means that there was nothing to delete; or that the attempt
// before deleted it, and its answer was lost.
func ExampleOutcomeOf() {
	server := serverAnswering(502, 404)
	defer server.Close()
	policy := retryhttp.Policy{Backoff: retryhttp.Constant(10 * time.Millisecond)}
	client := &http.Client{Transport: retryhttp.New(nil, policy)}

	req, err := http.NewRequest(http.MethodDelete, server.URL+"/things/17", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()

	outcome := retryhttp.OutcomeOf(resp)
	fmt.Println(resp.Status, "after", outcome.Attempts, "attempts, stop:", outcome.Stop)
	if resp.StatusCode == http.StatusNotFound && outcome.Ambiguous {
		fmt.Println("an earlier attempt may have deleted it")
	}
	// Output:
	// 404 Not Found after 2 attempts, stop: final
	// an earlier attempt may have deleted it
}

func ExampleError() {
	server := serverAnswering(200)
	server.Close() // nobody listens there any more
	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		MaxAttempts: 2,
		Backoff:     retryhttp.Constant(10 * time.Millisecond),
	})}

	resp, err := client.Get(server.URL)
	if err == nil {
		resp.Body.Close()
		return
	}
	var failure *retryhttp.Error // inside the *url.Error that every http.Client returns
	if errors.As(err, &failure) {
		fmt.Println("attempts:", failure.Attempts, "stop:", failure.Stop, "timeout:", failure.Timeout())
	}
	// Output: attempts: 2 stop: attempts timeout: false
}

// A server that answers 501 or 505 will do so again.
func ExampleClassify_except() {
	server := serverAnswering(503, 501)
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		Classify: func(a retryhttp.Attempt) retryhttp.Class {
			if a.Response != nil {
				switch a.Response.StatusCode {
				case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
					return retryhttp.Final
				}
			}
			return retryhttp.Classify(a) // all the rest as usual
		},
	})}
	show(client.Get(server.URL))
	// Output: 501 Not Implemented at attempt 2
}

// Exactly these statuses are retried, and errors as usual.
func ExampleClassify_exactly() {
	classify := func(a retryhttp.Attempt) retryhttp.Class {
		if a.Err != nil {
			return retryhttp.Classify(a)
		}
		switch a.Response.StatusCode {
		case 408, 429, 500, 502, 503, 504:
			return retryhttp.Retryable
		}
		return retryhttp.Final
	}
	_ = retryhttp.New(nil, retryhttp.Policy{Classify: classify})

	for status := 400; status < 600; status++ {
		if classify(retryhttp.Attempt{Response: &http.Response{StatusCode: status}}) == retryhttp.Retryable {
			fmt.Print(status, " ")
		}
	}
	// Output: 408 429 500 502 503 504
}

// measured is a Budget that counts what another Budget grants and refuses.
type measured struct {
	retryhttp.Budget
	granted, refused expvar.Int
}

func (c *measured) Withdraw(r retryhttp.Retry) (cost float64, ok bool) {
	cost, ok = c.Budget.Withdraw(r)
	switch {
	case ok:
		c.granted.Add(1)
	case r.Stop == "" && !r.Again: // a retry or a hedge, asked for the first time
		c.refused.Add(1)
	}
	return cost, ok
}

// A Budget around a TokenBucket works as the bucket does, if it passes on what it gets.
func ExampleBudget() {
	server := serverAnswering(503, 200)
	defer server.Close()

	budget := &measured{Budget: new(retryhttp.TokenBucket)}
	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{Budget: budget})}
	show(client.Get(server.URL))
	fmt.Println("granted:", &budget.granted, "refused:", &budget.refused)
	// Output:
	// 200 OK at attempt 2
	// granted: 1 refused: 0
}

// watch publishes what a person on call asks about the requests to a host. The handler of package
// expvar shows it under /debug/vars.
func watch(p retryhttp.Policy, budget *retryhttp.TokenBucket, gate *retryhttp.Gate, host *http.Request) retryhttp.Policy {
	requests := expvar.NewMap("requests")
	p.Budget, p.Gate = budget, gate
	p.OnDone = func(_ retryhttp.Attempt, o retryhttp.Outcome) {
		requests.Add("attempts", int64(o.Attempts))
		requests.Add(string(o.Stop), 1) // there are only nine
		requests.AddFloat("waited", o.Waited.Seconds())
		requests.AddFloat("held", o.Held.Seconds())
		if o.Ambiguous {
			requests.Add("ambiguous", 1)
		}
	}
	expvar.Publish("host", expvar.Func(func() any {
		g, b := gate.Status(host), budget.Status(host)
		return map[string]any{
			"down": g.Down, "closed": g.Closed.Seconds(), "held": g.Held, "tokens": b.Tokens, "sparing": b.Sparing,
		}
	}))
	return p
}

// Without OpenTelemetry, expvar shows the same figures.
func ExamplePolicy_expvar() {
	server := serverAnswering(503, 200)
	defer server.Close()
	host, err := http.NewRequest(http.MethodGet, server.URL, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	policy := watch(retryhttp.Policy{Backoff: retryhttp.Constant(0)}, new(retryhttp.TokenBucket), new(retryhttp.Gate), host)
	client := &http.Client{Transport: retryhttp.New(nil, policy)}
	show(client.Get(server.URL))

	requests := expvar.Get("requests").(*expvar.Map)
	fmt.Println("attempts:", requests.Get("attempts"), "final:", requests.Get("final"))
	fmt.Println("host:", expvar.Get("host"))
	// Output:
	// 200 OK at attempt 2
	// attempts: 2 final: 1
	// host: {"closed":0,"down":false,"held":0,"sparing":false,"tokens":4.5}
}

// Two clients of one server share what retries there are.
func ExampleTokenBucket() {
	server := serverAnswering(503)
	defer server.Close()

	budget := &retryhttp.TokenBucket{Burst: 2}
	policy := retryhttp.Policy{Backoff: retryhttp.Constant(10 * time.Millisecond), Budget: budget}
	first := &http.Client{Transport: retryhttp.New(nil, policy)}
	second := &http.Client{Transport: retryhttp.New(nil, policy)}

	for _, client := range []*http.Client{first, second} {
		resp, err := client.Get(server.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		outcome := retryhttp.OutcomeOf(resp)
		fmt.Printf("attempts: %d, stop: %s, left: %v\n", outcome.Attempts, outcome.Stop, budget.Status(resp.Request).Tokens)
	}
	// Output:
	// attempts: 3, stop: budget, left: 0
	// attempts: 1, stop: budget, left: 0
}

func ExampleRetryAfter() {
	for _, h := range []http.Header{
		{"Retry-After": {"120"}},
		{"Retry-After": {"Fri, 31 Dec 1999 23:59:59 GMT"}, "Date": {"Fri, 31 Dec 1999 23:59:29 GMT"}},
		{"Retry-After": {"1"}, "Retry-After-Ms": {"1500"}},
		{"Retry-After": {"soon"}},
	} {
		fmt.Println(retryhttp.RetryAfter(h))
	}
	// Output:
	// 2m0s true
	// 30s true
	// 1.5s true
	// 0s false
}

func ExampleConstant() {
	fmt.Println(waits(retryhttp.Constant(time.Second), 3))
	// Output: [1s 1s 1s]
}

func ExampleLinear() {
	fmt.Println(waits(retryhttp.Linear(time.Second, 3*time.Second), 4))
	// Output: [1s 2s 3s 3s]
}

func ExampleExponential() {
	fmt.Println(waits(retryhttp.Exponential(time.Second, 10*time.Second), 5))
	// Output: [1s 2s 4s 8s 10s]
}

func ExampleGeometric() {
	fmt.Println(waits(retryhttp.Geometric(500*time.Millisecond, time.Minute, 1.5), 4))
	// Output: [500ms 750ms 1.125s 1.6875s]
}

// This is the schedule of the Google HTTP Client for Java, and of
// cenkalti/backoff: half as much again each time, give or take a half.
func ExampleBackoff_Spread() {
	backoff := retryhttp.Geometric(500*time.Millisecond, time.Minute, 1.5).Spread(0.5)
	fmt.Println(intervals(backoff, 2))
	// Output: [250ms-750ms 375ms-1.125s]
}

func ExampleBackoff_PlusJitter() {
	fmt.Println(intervals(retryhttp.Exponential(time.Second, 16*time.Second).PlusJitter(time.Second), 3))
	// Output: [1s-2s 2s-3s 4s-5s]
}

func ExampleFullJitter() {
	fmt.Println(intervals(retryhttp.FullJitter(time.Second, 10*time.Second), 3))
	// Output: [0s-1s 0s-2s 0s-4s]
}

func ExampleEqualJitter() {
	fmt.Println(intervals(retryhttp.EqualJitter(time.Second, 10*time.Second), 3))
	// Output: [500ms-1s 1s-2s 2s-4s]
}

// Each wait is at most three times as long as the one before it.
func ExampleDecorrelatedJitter() {
	fmt.Println(intervals(retryhttp.DecorrelatedJitter(time.Second, 10*time.Second), 3))
	// Output: [1s-3s 1s-9s 1s-10s]
}

// A Backoff is a function, so one of your own needs no type.
func ExampleBackoff() {
	var backoff retryhttp.Backoff = func(n int, _ time.Duration) time.Duration {
		if n == 1 {
			return 0 // once at once, and then in earnest
		}
		return time.Minute
	}
	fmt.Println(waits(backoff, 3))
	// Output: [0s 1m0s 1m0s]
}

// intervals draws each wait many times, after the longest one before it.
func intervals(b retryhttp.Backoff, count int) (list []string) {
	prev := time.Duration(0)
	for n := 1; n <= count; n++ {
		lo, hi := b(n, prev), time.Duration(0)
		for range 20_000 {
			d := b(n, prev)
			lo, hi = min(lo, d), max(hi, d)
		}
		prev = hi.Round(25 * time.Millisecond)
		list = append(list, fmt.Sprint(lo.Round(25*time.Millisecond), "-", prev))
	}
	return list
}

// show prints the status of a response, and the attempt that brought it.
func show(resp *http.Response, err error) {
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status, "at attempt", retryhttp.OutcomeOf(resp).Attempts)
}

// serverAnswering starts a server that answers with these statuses in turn, and
// then with the last one forever.
func serverAnswering(statuses ...int) *httptest.Server {
	var requests atomic.Int64
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(requests.Add(1))
		w.WriteHeader(statuses[min(n, len(statuses))-1])
	}))
}

// A gauge of when requests are hedged shows whether a Hedge knows enough.
func ExampleHedge_Delay() {
	server := serverAnswering(200)
	defer server.Close()

	hedge := &retryhttp.Hedge{Share: 0.5}
	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{Hedge: hedge})}
	for range 10 { // 5/Share
		resp, err := client.Get(server.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		_, known := hedge.Delay(resp.Request)
		fmt.Print(known, " ")
	}
	// Output: false false false false false false false false false true
}

// An API counts requests by the minute, and its 429 names no wait. The user knows it, and RetryAfter asks for
// the time that is left.
func ExamplePolicy_limitWithoutRetryAfter() {
	const window = 100 * time.Millisecond // a minute, in earnest
	server := serverAnswering(429, 200)
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		Backoff: retryhttp.Constant(0), // a wait is added to what RetryAfter asks for
		RetryAfter: func(a retryhttp.Attempt) (time.Duration, bool) {
			wait, ok := retryhttp.RetryAfter(a.Response.Header)
			if !ok && a.Response.StatusCode == http.StatusTooManyRequests {
				return window, true
			}
			return wait, ok
		},
	})}
	began := time.Now()
	show(client.Get(server.URL))
	fmt.Println("waited for the window:", time.Since(began) >= window)
	// Output:
	// 200 OK at attempt 2
	// waited for the window: true
}
