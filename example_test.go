package retryhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
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

func ExampleNew_oneLine() {
	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{})}
	resp, err := client.Get("https://example.com/")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
}

func ExampleNew_configured() {
	client := &http.Client{
		Timeout: 10 * time.Second, // for all attempts together
		Transport: retryhttp.New(nil, retryhttp.Policy{
			MaxAttempts:    5,
			AttemptTimeout: 2 * time.Second,
			IdempotencyKey: retryhttp.RandomKey, // only for servers that honor the header
			Logger:         slog.Default(),
		}),
	}
	defer client.CloseIdleConnections()
}

// Every field is optional. This one sets them all.
func ExamplePolicy() {
	server := serverAnswering(503, 200)
	defer server.Close()

	policy := retryhttp.Policy{
		MaxAttempts:      5,
		MaxElapsed:       20 * time.Second,
		AttemptTimeout:   5 * time.Second,
		Backoff:          retryhttp.Exponential(20*time.Millisecond, 2*time.Second).Spread(0.5),
		MaxRetryAfter:    10 * time.Second,
		Classify:         retryhttp.Classify,
		Idempotent:       retryhttp.Idempotent,
		IdempotencyKey:   retryhttp.RandomKey,
		RetryUnprocessed: true,
		RecordBytes:      1 << 20,
		Budget:           &retryhttp.TokenBucket{Ratio: 0.2, Burst: 10},
		OnRetry: func(a retryhttp.Attempt) {
			fmt.Println("retrying after attempt", a.Number)
		},
		OnDone: func(a retryhttp.Attempt, o retryhttp.Outcome) {
			fmt.Println(a.Request.Method, "took", o.Attempts, "attempts")
		},
		Logger: slog.New(slog.DiscardHandler),
	}
	client := &http.Client{Transport: retryhttp.New(nil, policy)}
	resp, err := client.Post(server.URL, "text/plain", strings.NewReader("hello"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	// Output:
	// retrying after attempt 1
	// POST took 2 attempts
}

// A server gets the same key on all attempts of a request.
// RandomKey makes one for each request. A key that is made from what the request
// is about also covers a request that the program makes anew, after a restart.
func ExamplePolicy_idempotencyKey() {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("key:", r.Header.Get("Idempotency-Key"))
		if requests.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		Backoff: retryhttp.Constant(10 * time.Millisecond),
		IdempotencyKey: func(req *http.Request) string {
			return "pay" + strings.ReplaceAll(req.URL.Path, "/", "-")
		},
	})}
	resp, err := client.Post(server.URL+"/orders/17", "application/json", strings.NewReader(`{"amount": 42}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	// Output:
	// key: pay-orders-17
	// key: pay-orders-17
	// 200 OK
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
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status, "at attempt", retryhttp.OutcomeOf(resp).Attempts)
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
	fmt.Println(resp.Status)
	fmt.Println("attempts:", outcome.Attempts)
	fmt.Println("stop:", outcome.Stop)
	if resp.StatusCode == http.StatusNotFound && outcome.Ambiguous {
		fmt.Println("an earlier attempt may have deleted it")
	}
	// Output:
	// 404 Not Found
	// attempts: 2
	// stop: final
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
		fmt.Println("attempts:", failure.Attempts)
		fmt.Println("stop:", failure.Stop)
		fmt.Println("timeout:", failure.Timeout())
	}
	// Output:
	// attempts: 2
	// stop: attempts
	// timeout: false
}

// A server that answers 501 or 505 will do so again.
func ExampleClassify_except() {
	classify := func(a retryhttp.Attempt) retryhttp.Class {
		if a.Response != nil {
			switch a.Response.StatusCode {
			case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
				return retryhttp.Final
			}
		}
		return retryhttp.Classify(a) // all the rest as usual
	}
	_ = retryhttp.New(nil, retryhttp.Policy{Classify: classify})

	for _, status := range []int{500, 501, 503, 505} {
		class := classify(retryhttp.Attempt{Response: &http.Response{StatusCode: status}})
		fmt.Println(status, "is final:", class == retryhttp.Final)
	}
	// Output:
	// 500 is final: false
	// 501 is final: true
	// 503 is final: false
	// 505 is final: true
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

// A base RoundTripper that knows that another attempt is in vain says so.
func ExamplePermanent() {
	errOpen := errors.New("circuit breaker is open")
	breaker := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, retryhttp.Permanent(errOpen)
	})
	client := &http.Client{Transport: retryhttp.New(breaker, retryhttp.Policy{})}

	resp, err := client.Get("http://server.example/")
	if err == nil {
		resp.Body.Close()
		return
	}
	var failure *retryhttp.Error
	fmt.Println(errors.Is(err, errOpen), errors.As(err, &failure))
	fmt.Println(failure.Attempts, failure.Stop)
	// Output:
	// true true
	// 1 final
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

func ExampleRandomKey() {
	keys := make(chan string, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys <- r.Header.Get("Idempotency-Key")
		if len(keys) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()

	policy := retryhttp.Policy{IdempotencyKey: retryhttp.RandomKey}
	client := &http.Client{Transport: retryhttp.New(nil, policy)}
	resp, err := client.Post(server.URL, "application/json", strings.NewReader(`{"amount": 42}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	first, second := <-keys, <-keys
	fmt.Println("same key:", first != "" && first == second)
	// Output: same key: true
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
	fmt.Println(within(backoff, 1, 250*time.Millisecond, 750*time.Millisecond))
	fmt.Println(within(backoff, 2, 375*time.Millisecond, 1125*time.Millisecond))
	// Output:
	// true
	// true
}

// 1, 2, 4, 8 and 16 seconds, each with up to a second on top.
func ExampleBackoff_PlusJitter() {
	backoff := retryhttp.Exponential(time.Second, 16*time.Second).PlusJitter(time.Second)
	fmt.Println(within(backoff, 1, 1*time.Second, 2*time.Second))
	fmt.Println(within(backoff, 5, 16*time.Second, 17*time.Second))
	// Output:
	// true
	// true
}

func ExampleFullJitter() {
	backoff := retryhttp.FullJitter(time.Second, 10*time.Second)
	fmt.Println(within(backoff, 1, 0, 1*time.Second))
	fmt.Println(within(backoff, 5, 0, 10*time.Second))
	// Output:
	// true
	// true
}

func ExampleEqualJitter() {
	backoff := retryhttp.EqualJitter(time.Second, 10*time.Second)
	fmt.Println(within(backoff, 1, 500*time.Millisecond, 1*time.Second))
	fmt.Println(within(backoff, 5, 5*time.Second, 10*time.Second))
	// Output:
	// true
	// true
}

func ExampleDecorrelatedJitter() {
	backoff := retryhttp.DecorrelatedJitter(time.Second, 10*time.Second)
	prev := backoff(1, 0)
	next := backoff(2, prev)
	fmt.Println(prev >= time.Second && prev <= 3*time.Second)
	fmt.Println(next >= time.Second && next <= min(3*prev, 10*time.Second))
	// Output:
	// true
	// true
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

// within reports whether the wait before retry n lies between lo and hi,
// however often it is drawn, and is not the same each time.
func within(b retryhttp.Backoff, n int, lo, hi time.Duration) bool {
	seen := make(map[time.Duration]bool)
	for range 1000 {
		d := b(n, 0)
		if d < lo || d > hi {
			return false
		}
		seen[d] = true
	}
	return len(seen) > 1
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

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

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
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	outcome := retryhttp.OutcomeOf(resp)
	fmt.Println(resp.Status, "after", outcome.Attempts, "attempts")
	fmt.Println("waited for the window:", outcome.Waited >= window)
	// Output:
	// 200 OK after 2 attempts
	// waited for the window: true
}

// A server sends a ping while a model waits for its turn, and an error if the turn does not come. The ping
// decides nothing, so the event after it still belongs to the attempt. The caller reads the pings too.
func ExampleClass_undecided() {
	const ping = "event: ping\ndata: {\"type\": \"ping\"}\n\n"
	server := serverStreaming(
		ping+"event: error\ndata: {\"type\": \"error\", \"error\": {\"type\": \"overloaded_error\"}}\n\n",
		ping+"event: message_start\ndata: {\"type\": \"message_start\"}\n\n",
	)
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		PeekBytes: 4096,
		Backoff:   retryhttp.Constant(10 * time.Millisecond),
		Classify: func(a retryhttp.Attempt) retryhttp.Class {
			events := bytes.Count(a.Peek, []byte("event: "))
			switch {
			case bytes.Contains(a.Peek, []byte(`"overloaded_error"`)):
				return retryhttp.Retryable
			case events > 0 && events == bytes.Count(a.Peek, []byte("event: ping")):
				return retryhttp.Undecided
			}
			return retryhttp.Classify(a)
		},
	})}
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println("attempt", retryhttp.OutcomeOf(resp).Attempts)
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if event, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			fmt.Println(event)
		}
	}
	// Output:
	// attempt 2
	// ping
	// message_start
}
