package retryhttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp"
)

// An API counts requests by the minute, and its 429 names no wait. The user knows it, and RetryAfter asks for
// the time that is left.
func ExamplePolicy_limitWithoutRetryAfter() {
	const window = 100 * time.Millisecond // a minute, in earnest
	var requests atomic.Int64
	began := time.Now()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1); time.Since(began) < window {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
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
	fmt.Println(resp.Status, "after", requests.Load(), "attempts")
	// Output: 200 OK after 2 attempts
}
