package engine

import (
	"net/http"
	"slices"
	"time"

	"github.com/retryhttp/retryhttp"
)

// Server is a RoundTripper that answers each attempt by a function.
type Server func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f Server) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// Answer returns a response without a body.
func Answer(req *http.Request, status int) (*http.Response, error) {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

// AnswerAfter returns a response without a body after a time, or the context's error.
func AnswerAfter(d time.Duration, req *http.Request, status int) (*http.Response, error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return Answer(req, status)
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

// Processes are n clients with a Transport each. Each has a budget of its own, unless the policy
// names one Budget for all.
func Processes(n int, base http.RoundTripper, policy func() retryhttp.Policy) []*retryhttp.Transport {
	return processesOn(slices.Repeat([]http.RoundTripper{base}, n), policy)
}

func processesOn(bases []http.RoundTripper, policy func() retryhttp.Policy) []*retryhttp.Transport {
	transports := make([]*retryhttp.Transport, len(bases))
	for i, base := range bases {
		transports[i] = retryhttp.New(base, policy())
	}
	return transports
}

// Healthy are processes that have been well for a time, at a number of requests per second of all
// together. Their budgets have this time as deposits, at the cost of no RoundTrip. A Gate keeps
// nothing of successes. next returns the request of a deposit.
func Healthy(
	n int, base http.RoundTripper, policy func() retryhttp.Policy,
	d time.Duration, perSecond float64, next func() *http.Request,
) []*retryhttp.Transport {
	return HealthyOn(slices.Repeat([]http.RoundTripper{base}, n), policy, d, perSecond, next)
}

// HealthyOn is Healthy for processes with a base each.
func HealthyOn(
	bases []http.RoundTripper, policy func() retryhttp.Policy, d time.Duration, perSecond float64, next func() *http.Request,
) []*retryhttp.Transport {
	var budgets []retryhttp.Budget
	transports := processesOn(bases, func() retryhttp.Policy {
		p := policy()
		if own, ok := p.Budget.(*retryhttp.TokenBucket); p.Budget == nil || ok && own == nil {
			p.Budget = new(retryhttp.TokenBucket) // what it means
		}
		budgets = append(budgets, p.Budget)
		return p
	})
	tick := max(10*time.Millisecond, time.Duration(float64(time.Second)/perSecond))
	end, turn, owed := time.Now().Add(d), 0, 0.0
	for time.Now().Before(end) {
		time.Sleep(tick)
		for owed += perSecond * tick.Seconds(); owed >= 1; owed-- {
			budgets[turn%len(bases)].Deposit(next())
			turn++
		}
	}
	return transports
}
