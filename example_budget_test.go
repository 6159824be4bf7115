package retryhttp_test

import (
	"expvar"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/retryhttp/retryhttp"
)

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
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()

	budget := &measured{Budget: new(retryhttp.TokenBucket)}
	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{Budget: budget})}
	for range 2 {
		resp, err := client.Get(server.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
	}
	fmt.Println("granted:", &budget.granted, "refused:", &budget.refused)
	// Output: granted: 1 refused: 0
}
