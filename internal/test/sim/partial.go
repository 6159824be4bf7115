package sim

import (
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
)

// Partial is a service that fails a part of its attempts, at random, and has capacity for any
// number of them. A load balancer in front of three backends, one of them dead, is such a service:
// it picks a backend for each attempt, and so the next attempt is likely to succeed.
//
// The experiment is this project's own.
type Partial struct {
	Policy func() retryhttp.Policy // of a process

	// Fleet, if not nil, takes the place of Policy. It returns the Policy of a run, in its bubble.
	Fleet func(*testing.T) func() retryhttp.Policy

	Processes int           // share the requests, each with a Transport of its own
	Rate      float64       // requests per second, of all processes
	Failing   float64       // the part of the attempts that fail
	Refuse    bool          // a failure is a connection that is refused, instead of a 503
	WarmUp    time.Duration // of health, which fills the budgets
	For       time.Duration // from then to the last request
	Seeds     int
}

// PartialResult is what became of the requests.
type PartialResult struct {
	Success Mean // the part of the requests that succeeded
	Load    Mean // attempts per request

	Failed []time.Duration // how long each request took that failed, in order, over all runs
}

// Quantile returns how long a part of the failed requests took at most.
func (r PartialResult) Quantile(part float64) time.Duration { return quantile(r.Failed, part) }

func (p Partial) Run(t *testing.T) PartialResult {
	t.Helper()
	runs := Runs(t, p.Seeds, func(t *testing.T, rng *rand.Rand) *partialRun {
		r := &partialRun{Partial: p, dice: newDice(rng)}
		policy := p.Policy
		if p.Fleet != nil {
			policy = p.Fleet(t)
		}
		req, pick := get(t), newDice(rng)
		clients := healthy(p.Processes, server(r.serve), policy, p.WarmUp, p.Rate, always(req))
		start := time.Now()
		Poisson(rng, p.For, p.Rate, Constantly(p.Rate), func(at time.Duration) {
			ok := succeeded(clients[pick.intN(len(clients))].RoundTrip(req))
			r.record(ok, time.Since(start)-at)
		})
		return r
	})
	var result PartialResult
	for _, r := range runs {
		result.Failed = append(result.Failed, r.failed...)
	}
	slices.Sort(result.Failed)
	result.Success = MeanOf(runs, func(r *partialRun) float64 { return 1 - float64(len(r.failed))/r.requests })
	result.Load = MeanOf(runs, func(r *partialRun) float64 { return r.attempts / r.requests })
	return result
}

// partialRun is one run.
type partialRun struct {
	Partial
	dice *dice

	mu                 sync.Mutex
	requests, attempts float64
	failed             []time.Duration
}

// serve is the service. A failure comes at once.
func (r *partialRun) serve(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.attempts++
	r.mu.Unlock()
	switch {
	case r.dice.float64() >= r.Failing:
		time.Sleep(r.dice.exponential(outageLatency))
		return answer(req, http.StatusOK)
	case r.Refuse:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	return answer(req, http.StatusServiceUnavailable)
}

func (r *partialRun) record(ok bool, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	if !ok {
		r.failed = append(r.failed, took)
	}
}
