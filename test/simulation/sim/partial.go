package sim

import (
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// Partial is a service that fails a part of its attempts, at random, and has capacity for any
// number of them. It is a retrylab.DeadBackend: a load balancer in front of three backends, one of them
// dead, is such a service.
//
// The experiment is this project's own.
type Partial struct {
	Policy func() retryhttp.Policy // of a process

	// Fleet, if not nil, takes the place of Policy. It returns the Policy of a run, in its bubble.
	Fleet func(*testing.T) func() retryhttp.Policy

	Processes      int           // share the requests, each with a Transport of its own
	Rate           float64       // requests per second, of all processes
	Backends, Dead int           // one of the Backends gets an attempt; if it is Dead, it fails
	Refuse         bool          // a failure is a connection that is refused, instead of a 503
	WarmUp         time.Duration // of health, which fills the budgets
	For            time.Duration // from then to the last request
	Deadline       time.Duration // of each request. 0: none
	Seeds          int
}

// PartialResult is what became of the requests.
type PartialResult struct {
	Success engine.Number // the part of the requests that succeeded
	Load    engine.Number // attempts per request

	Failed retrylab.Times // how long each request took that failed
}

// Quantile returns how long a part of the failed requests took at most.
func (r PartialResult) Quantile(part float64) time.Duration { return r.Failed.Quantile(part) }

// Run runs the experiment.
func (p Partial) Run(t *testing.T) PartialResult {
	t.Helper()
	got := alone(t, retrylab.DeadBackend{
		Load: retrylab.Load{
			Rate: p.Rate, Processes: p.Processes, Latency: outageLatency, Uptime: max(p.WarmUp, 1), Deadline: p.Deadline,
			Seeds: p.Seeds,
		},
		Backends: p.Backends, Dead: p.Dead, Refuse: p.Refuse, For: p.For,
	}, retrylab.Policy{New: p.Policy, Fleet: p.Fleet})
	return PartialResult{engine.Number(got.Succeeded), engine.Number(got.Load), got.FailureTimes}
}
