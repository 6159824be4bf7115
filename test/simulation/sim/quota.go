package sim

import (
	"testing"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// A Quota is a service that allows a number of attempts in each second. It answers the others with
// a 429, and mostly a Retry-After of a second. The workers of one process share a list of jobs: each takes
// the next job as soon as its last job has ended, however that ended. It is a retrylab.RateLimit.
//
// The experiment is this project's own.
type Quota struct {
	Policy  func() retryhttp.Policy // of the process, which is fresh
	Allowed int                     // attempts in a second, from the start of that second
	Workers int
	Jobs    int
	Seeds   int
	Bare    bool // the 429 has no Retry-After
}

// QuotaResult is what became of the jobs.
type QuotaResult struct {
	Lost engine.Number // the part of the jobs that ended in a failure
	Load engine.Number // attempts per job
	Took engine.Number // seconds until the last job ended
}

// Run runs the experiment.
func (q Quota) Run(t *testing.T) QuotaResult {
	t.Helper()
	got := alone(t, retrylab.RateLimit{
		Load:    retrylab.Load{Latency: outageLatency, Seeds: q.Seeds},
		Allowed: q.Allowed, Workers: q.Workers, Jobs: q.Jobs, Bare: q.Bare,
	}, retrylab.Policy{New: q.Policy})
	return QuotaResult{engine.Number(got.Lost), engine.Number(got.Load), engine.Number(got.Took)}
}
