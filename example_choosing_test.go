package retryhttp_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/retryhttp/retryhttp"
)

// These are the policies of docs/choosing.md, except the ones about bodies (example_body_test.go) and names
// (example_recipes_test.go). recipes_test.go exposes each to what it is for.

var interactive = retryhttp.Policy{
	AttemptTimeout: 500 * time.Millisecond, // what a healthy server hardly ever needs
}

var batch = retryhttp.Policy{
	MaxAttempts:    -1, // as many as there is time for
	MaxElapsed:     15 * time.Minute,
	AttemptTimeout: time.Minute,
	Backoff:        retryhttp.FullJitter(time.Second, time.Minute),
	MaxRetryAfter:  15 * time.Minute,
	Budget:         retryhttp.Unlimited{}, // the number of workers is the bound
}

var payment = retryhttp.Policy{
	MaxAttempts:    6,
	MaxElapsed:     5 * time.Minute,  // far less than the server remembers a key
	AttemptTimeout: 30 * time.Second, // finds a lost answer, and is longer than a slow answer
	BufferBytes:    1 << 20,          // a receipt that breaks off is requested again
	Backoff:        retryhttp.EqualJitter(2*time.Second, 30*time.Second),
	// Enough for ten payments at once. After an outage, one retry a second is left.
	Budget: &retryhttp.TokenBucket{Burst: 50, MinPerSecond: 1},
	Classify: func(a retryhttp.Attempt) retryhttp.Class {
		if a.Response != nil && a.Response.StatusCode == http.StatusConflict {
			return retryhttp.Retryable // an earlier attempt is being worked on
		}
		return retryhttp.Classify(a)
	},
}

// It must be made once, and the server honors an Idempotency-Key.
func ExamplePolicy_payment() {
	server := serverAnswering(409, 200)
	defer server.Close()
	body := strings.NewReader(`{"amount": 100}`)

	client := &http.Client{Transport: retryhttp.New(nil, payment)}
	req, err := http.NewRequest("POST", server.URL, body)
	if err != nil {
		fmt.Println(err)
		return
	}
	key := retryhttp.RandomKey(nil) // store it with the order before the request is sent
	req.Header.Set("Idempotency-Key", key)
	show(client.Do(req))
	// Output: 200 OK at attempt 2
}

var largeUpload = retryhttp.Policy{
	MaxAttempts:    3,
	AttemptTimeout: 20 * time.Minute, // the largest file on the slowest line
	Backoff:        retryhttp.FullJitter(time.Second, 30*time.Second),
}

// It takes minutes, and must arrive whole.
func ExamplePolicy_largeUpload() {
	server := serverAnswering(503, 200)
	defer server.Close()
	file, err := os.Open("README.md")
	if err != nil {
		fmt.Println(err)
		return
	}
	info, err := file.Stat()
	if err != nil {
		fmt.Println(err)
		return
	}

	client := &http.Client{Transport: retryhttp.New(nil, largeUpload), Timeout: time.Hour}
	req, err := http.NewRequest("PUT", server.URL, file)
	if err != nil {
		fmt.Println(err)
		return
	}
	req.ContentLength = info.Size()
	req.Header.Set("Expect", "100-continue") // so that a refusal comes before the file is sent
	show(client.Do(req))
	// Output: 200 OK at attempt 2
}

var limited = retryhttp.Policy{
	MaxAttempts:      6,
	MaxElapsed:       10 * time.Minute,
	AttemptTimeout:   30 * time.Second,
	MaxRetryAfter:    5 * time.Minute,
	RetryUnprocessed: true, // the API has only counted a POST that it refused
	Classify: func(a retryhttp.Attempt) retryhttp.Class {
		if resp := a.Response; resp != nil && resp.StatusCode == 403 {
			if _, asked := limitReset(a); asked {
				return retryhttp.Unprocessed // as a 429 is anyway
			}
		}
		return retryhttp.Classify(a)
	},
	RetryAfter: limitReset,
}

// limitReset reads the reset of a RateLimit, or of X-RateLimit-*, of which nothing is left.
func limitReset(a retryhttp.Attempt) (time.Duration, bool) {
	if wait, ok := retryhttp.RetryAfter(a.Response.Header); ok {
		return wait, true
	}
	left, reset, ok := retryhttp.RateLimit(a.Response.Header)
	return reset, ok && left == 0
}

var byTenant = retryhttp.Policy{
	MaxRetryAfter: 5 * time.Minute,
	Gate: &retryhttp.Gate{
		HoldFirst: true, // an attempt before the limit ends is refused, and may count
		Hold:      2 * time.Minute,
		Key:       tenant,
	},
	Budget: &retryhttp.TokenBucket{Key: tenant},
}

// tenant is whom the server counts requests for. It has a hash of the credential, because a key may be seen: a
// redisbudget.Bucket writes its keys into Redis.
func tenant(req *http.Request) string {
	return fmt.Sprintf("%s %x", req.URL.Host, sha256.Sum256([]byte(req.Header.Get("Authorization"))))
}

// A limit that belongs to a credential holds up nobody who uses another one.
func ExampleGate_limitsByCredential() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer busy" {
			w.Header().Set("RateLimit", `"default";r=0;t=1`)
		}
	}))
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, byTenant)}
	for _, credential := range []string{"Bearer busy", "Bearer other", "Bearer busy"} {
		req, err := http.NewRequest(http.MethodGet, server.URL, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		req.Header.Set("Authorization", credential)
		resp, err := client.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Printf("%s: %s, held: %t\n", credential, resp.Status, retryhttp.OutcomeOf(resp).Held > 0)
	}
	// Output:
	// Bearer busy: 200 OK, held: false
	// Bearer other: 200 OK, held: false
	// Bearer busy: 200 OK, held: true
}

var quickRead = retryhttp.Policy{
	Hedge:          &retryhttp.Hedge{Share: 0.02},
	AttemptTimeout: 2 * time.Second,
}

var crawl = retryhttp.Policy{
	MaxAttempts:    3,
	AttemptTimeout: 20 * time.Second, // with a buffered body, and with the wait of a limiter below
	StallTimeout:   20 * time.Second, // for pages above BufferBytes
	MaxRetryAfter:  5 * time.Second,  // a longer wait is for the crawler's own queue
	BufferBytes:    4 << 20,          // longer pages are not retried when they break off
	// A held retry keeps a worker waiting.
	Gate: &retryhttp.Gate{Hold: time.Second},
}

var webhooks = retryhttp.Policy{
	MaxAttempts:    2, // further attempts come from the queue
	AttemptTimeout: 10 * time.Second,
	MaxElapsed:     2 * time.Second, // what failed slowly goes back to the queue, too
	MaxRetryAfter:  time.Hour,       // for Gate.Status; no worker waits for longer than MaxElapsed
	Gate:           new(retryhttp.Gate),
}

// It sends events to many hosts of other people, at least once each, with a queue for each host.
func ExampleGate_Status() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "600")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, webhooks)}
	req, err := http.NewRequest("POST", server.URL, strings.NewReader(`{"event": "paid"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	req.Header.Set("Idempotency-Key", "delivery-4711") // the same however often it is sent
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	host := webhooks.Gate.Status(req)
	fmt.Println(resp.Status, "down:", host.Down, "closed for", host.Closed.Round(time.Minute))
	// Output: 429 Too Many Requests down: false closed for 10m0s
}

var command = retryhttp.Policy{
	MaxAttempts:    3,
	MaxElapsed:     10 * time.Second,
	AttemptTimeout: 3 * time.Second,
	MaxRetryAfter:  5 * time.Second,
	Budget:         &retryhttp.TokenBucket{Burst: 2},
	OnRetry: func(a retryhttp.Attempt) {
		fmt.Fprintf(os.Stderr, "%s is busy, trying again in %v\n", a.Request.URL.Host, a.Wait.Round(100*time.Millisecond))
	},
}

var fromCron = retryhttp.Policy{
	MaxAttempts:    10,
	MaxElapsed:     4 * time.Minute,
	AttemptTimeout: 15 * time.Second,
	Backoff:        retryhttp.FullJitter(5*time.Second, time.Minute),
	Budget:         &retryhttp.TokenBucket{Burst: 30}, // as many as the run has requests, and some
}

// gaveUp reports whether a later run may have more success: the retries ended, and not the request.
func gaveUp(resp *http.Response, err error) bool {
	o := retryhttp.OutcomeOf(resp) // zero without a response
	var e *retryhttp.Error
	if errors.As(err, &e) {
		o = e.Outcome
	}
	return o.Stop != "" && o.Stop != retryhttp.StopFinal && o.Stop != retryhttp.StopCanceled
}

// It is started by cron on many machines, and its requests must get through within minutes.
func ExamplePolicy_cron() {
	server := serverAnswering(200, 404, 503)
	defer server.Close()

	policy := fromCron
	policy.MaxAttempts = 1 // the example has no time for more
	client := &http.Client{Transport: retryhttp.New(nil, policy)}
	for range 3 {
		resp, err := client.Get(server.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(resp.StatusCode, "gave up:", gaveUp(resp, err))
	}
	// Output:
	// 200 gave up: false
	// 404 gave up: false
	// 503 gave up: true
}

// firstThatAnswers asks one host after the other. A host that is down is asked only if it is the last.
func firstThatAnswers(client *http.Client, gate *retryhttp.Gate, requests ...*http.Request) (resp *http.Response, err error) {
	for i, req := range requests {
		last := i == len(requests)-1
		if !last && gate.Status(req).Down {
			continue
		}
		resp, err = client.Do(req)
		if last || err == nil && retryhttp.OutcomeOf(resp).Stop == retryhttp.StopFinal {
			break
		}
		if err == nil {
			resp.Body.Close()
		}
	}
	return resp, err
}

// A second host stands in when the retries of the first have ended.
func ExampleGate_fallback() {
	broken, well := serverAnswering(503), serverAnswering(200)
	defer broken.Close()
	defer well.Close()

	gate := &retryhttp.Gate{Hold: 500 * time.Millisecond}
	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		Gate: gate, MaxAttempts: 2, Backoff: retryhttp.Constant(10 * time.Millisecond),
	})}
	var requests []*http.Request
	for _, host := range []string{broken.URL, well.URL} {
		req, err := http.NewRequest(http.MethodGet, host, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		requests = append(requests, req)
	}
	show(firstThatAnswers(client, gate, requests...))
	// Output: 200 OK at attempt 1
}
