package retryhttp_test

import (
	"fmt"
	"math"
	"net/http"
	"sync/atomic"

	"github.com/retryhttp/retryhttp"
)

// retryingByDefault returns an *http.Transport like real that sends all requests through a Transport
// with the policy, which sends them through real. Code that asserts that http.DefaultTransport is an
// *http.Transport goes on working.
func retryingByDefault(real *http.Transport, policy retryhttp.Policy) *http.Transport {
	retrying := retryhttp.New(real, policy)
	outer := real.Clone()
	outer.ForceAttemptHTTP2 = false                  // or net/http registers its own HTTP/2 for https below
	outer.CloseIdleConnections()                     // net/http decides so now, once and for all
	outer.ForceAttemptHTTP2 = real.ForceAttemptHTTP2 // for the clones that others make
	outer.RegisterProtocol("http", retrying)
	outer.RegisterProtocol("https", retrying)
	return outer
}

// The main function replaces http.DefaultTransport before anything else uses it.
func ExampleNew_defaultTransport() {
	server := serverAnswering(503, 200)
	defer server.Close()

	real := http.DefaultTransport.(*http.Transport)
	http.DefaultTransport = retryingByDefault(real, retryhttp.Policy{})
	defer func() { http.DefaultTransport = real }() // in this Example alone

	resp, err := http.Get(server.URL) // code that knows nothing of retries
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status, "at attempt", retryhttp.OutcomeOf(resp).Attempts)
	// Output: 200 OK at attempt 2
}

// broke is a Budget that has nothing, and never will.
type broke struct{}

func (broke) Withdraw(retryhttp.Retry) (cost float64, ok bool) { return math.Inf(1), false }
func (broke) Refund(*http.Request, float64)                    {}
func (broke) Deposit(*http.Request)                            {}

// A budget of nothing is the last reason not to retry. So the requests that end for this reason are
// the requests that another budget would have retried.
func ExamplePolicy_dryRun() {
	server := serverAnswering(503)
	defer server.Close()

	var requests, failed, retryable atomic.Int64
	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		Budget:  broke{},
		Backoff: retryhttp.Constant(0), // for which a refused request waits before it ends
		OnDone: func(a retryhttp.Attempt, o retryhttp.Outcome) {
			requests.Add(1)
			if a.Err != nil || a.Response.StatusCode >= 500 {
				failed.Add(1)
			}
			if o.Stop == retryhttp.StopBudget {
				retryable.Add(1)
			}
		},
	})}
	for _, method := range []string{"GET", "PUT", "POST"} {
		req, err := http.NewRequest(method, server.URL, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		show(client.Do(req))
	}
	fmt.Println(requests.Load(), "requests,", failed.Load(), "failed,", retryable.Load(), "would be retried")
	// Output:
	// 503 Service Unavailable
	// 503 Service Unavailable
	// 503 Service Unavailable
	// 3 requests, 3 failed, 2 would be retried
}
