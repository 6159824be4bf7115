package retryhttp_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-cleanhttp"

	"github.com/retryhttp/retryhttp"
)

// These are the policies of docs/choosing.md.

// Somebody waits for the answer, for two seconds at most.
func ExamplePolicy_interactiveCall() {
	server := serverAnswering(503, 200)
	defer server.Close()

	policy := retryhttp.Policy{
		MaxAttempts:    3,
		AttemptTimeout: 500 * time.Millisecond, // what a healthy server hardly ever needs
	}
	client := &http.Client{Transport: retryhttp.New(nil, policy), Timeout: 2 * time.Second}

	show(client.Get(server.URL))
	// Output: 200 OK
}

// Nobody waits, and everything has to be done in the end.
func ExamplePolicy_batchJob() {
	server := serverAnswering(503, 200)
	defer server.Close()

	policy := retryhttp.Policy{
		MaxAttempts:    -1, // as many as there is time for
		MaxElapsed:     15 * time.Minute,
		AttemptTimeout: time.Minute,
		Backoff:        retryhttp.FullJitter(time.Second, time.Minute),
		MaxRetryAfter:  15 * time.Minute,
		Budget:         retryhttp.Unlimited{}, // the number of workers is the bound
	}
	client := &http.Client{Transport: retryhttp.New(nil, policy)}

	show(client.Get(server.URL))
	// Output: 200 OK
}

// It must be made once, and the server honors an Idempotency-Key.
func ExamplePolicy_payment() {
	server := serverAnswering(503, 200)
	defer server.Close()
	body := strings.NewReader(`{"amount": 100}`)

	policy := retryhttp.Policy{
		AttemptTimeout: 30 * time.Second, // a lost answer is found out; a slow one is not given up
		MaxElapsed:     5 * time.Minute,  // far less than the server remembers a key
	}
	client := &http.Client{Transport: retryhttp.New(nil, policy)}
	req, err := http.NewRequest("POST", server.URL, body)
	if err != nil {
		fmt.Println(err)
		return
	}
	req.Header.Set("Idempotency-Key", "order-4711") // stored with the order before it is sent

	show(client.Do(req))
	// Output: 200 OK
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

	policy := retryhttp.Policy{
		MaxAttempts: 3,
		Backoff:     retryhttp.FullJitter(time.Second, 30*time.Second),
	}
	base := cleanhttp.DefaultPooledTransport()
	base.ResponseHeaderTimeout = time.Minute // from the last byte sent; AttemptTimeout would count from the first
	client := &http.Client{Transport: retryhttp.New(base, policy)}
	req, err := http.NewRequest("PUT", server.URL, file)
	if err != nil {
		fmt.Println(err)
		return
	}
	req.ContentLength = info.Size()
	req.Header.Set("Expect", "100-continue") // so that a refusal comes before the file is sent

	show(client.Do(req))
	// Output: 200 OK
}

// It says when to come back, and not always with a 429.
func ExamplePolicy_rateLimits() {
	server := serverAnswering(429, 200)
	defer server.Close()

	policy := retryhttp.Policy{
		MaxAttempts:   6,
		MaxRetryAfter: 5 * time.Minute,
		Classify: func(a retryhttp.Attempt) retryhttp.Class {
			if a.Response != nil && a.Response.StatusCode == http.StatusForbidden {
				if _, limited := retryhttp.RetryAfter(a.Response.Header); limited {
					return retryhttp.Retryable
				}
			}
			return retryhttp.Classify(a)
		},
	}
	client := &http.Client{Transport: retryhttp.New(nil, policy)}

	show(client.Get(server.URL))
	// Output: 200 OK
}

// It runs for seconds, on thousands of machines, and somebody looks at it.
func ExamplePolicy_commandLine() {
	server := serverAnswering(503, 200)
	defer server.Close()
	stderr := io.Discard

	policy := retryhttp.Policy{
		MaxAttempts:   3,
		MaxElapsed:    10 * time.Second,
		MaxRetryAfter: 5 * time.Second,
		Budget:        &retryhttp.TokenBucket{Burst: 2},
		OnRetry: func(a retryhttp.Attempt) {
			fmt.Fprintf(stderr, "%s is busy, trying again in %v\n", a.Request.URL.Host, a.Wait.Round(100*time.Millisecond))
		},
	}
	client := &http.Client{Transport: retryhttp.New(nil, policy)}

	show(client.Get(server.URL))
	// Output: 200 OK
}

// show prints what came of a request.
func show(resp *http.Response, err error) {
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
}
