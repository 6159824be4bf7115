// Budget shows a total outage without and with a budget. With a budget, retries die out, and a
// server that tries to come back meets the usual load, not four times as much.
package main

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/retryhttp/retryhttp"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	if err := outage("without a budget", retryhttp.Unlimited{}); err != nil {
		return err
	}
	// A Policy without a Budget has the same: 5 retries in reserve, and one more for every two
	// successes while the server is mostly well, or for every ten otherwise.
	return outage("with a budget", &retryhttp.TokenBucket{})
}

func outage(how string, budget retryhttp.Budget) error {
	var hits atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		http.Error(w, "down", http.StatusServiceUnavailable)
	}))
	defer server.Close()

	stops := make(map[retryhttp.Stop]int)
	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		MaxAttempts: 4,
		Backoff:     retryhttp.Constant(0), // no waits, to make the example fast
		Budget:      budget,
		// A Gate would send a probe, which needs no token.
		Gate:   &retryhttp.Gate{Hold: -1},
		OnDone: func(_ retryhttp.Attempt, o retryhttp.Outcome) { stops[o.Stop]++ }, // needs no lock: one request at a time
	})}
	defer client.CloseIdleConnections()

	const requests = 100
	for range requests {
		resp, err := client.Get(server.URL)
		if err != nil {
			return err
		}
		resp.Body.Close() // a 503: no further retry is allowed, and the response is returned
	}
	fmt.Printf("%s: %.2f attempts per request, gave up at MaxAttempts: %d, for the budget: %d\n",
		how, float64(hits.Load())/requests, stops[retryhttp.StopAttempts], stops[retryhttp.StopBudget])
	return nil
}
