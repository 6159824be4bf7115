package sim

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// Tiers are services in a row, each of which calls the next through a Transport of its own. All of
// them are well, except the lowest: it fails a part of its attempts, or has too little capacity. Every
// Transport above it sees what the retries of the Transports below have left.
//
// The experiment is this project's own.
type Tiers struct {
	Policy     func() retryhttp.Policy // of a Transport
	Transports int
	Rate       float64       // requests per second that the client of the uppermost makes
	Failing    float64       // the part of its attempts that the lowest service fails
	Capacity   float64       // attempts per second that the lowest service can serve if it rejects none. 0: any number
	Cost       float64       // the work of a rejection, as a part of the work of a success
	WarmUp     time.Duration // of health, which fills the budgets
	For        time.Duration // from then to the last request
	Seeds      int
}

// TiersResult is what the client had, and what the lowest service got.
type TiersResult struct {
	Success engine.Number // the part of the client's requests that succeeded
	Load    engine.Number // attempts at the lowest service per request of the client
}

func (c Tiers) Run(t *testing.T) TiersResult {
	t.Helper()
	type run struct{ requests, attempts, successes float64 }
	runs := engine.Runs(t, c.Seeds, func(t *testing.T, rng *rand.Rand) run {
		var mu sync.Mutex
		var r run
		var start time.Time
		chance := engine.NewDice(rng)
		work := &engine.Workload{Cost: c.Cost}
		lowest := engine.Server(func(req *http.Request) (*http.Response, error) {
			mu.Lock()
			r.attempts++
			mu.Unlock()
			if chance.Float64() < c.Failing || c.Capacity > 0 && !work.Take(time.Since(start), c.Capacity) {
				return engine.Answer(req, http.StatusServiceUnavailable)
			}
			time.Sleep(chance.Exponential(outageLatency))
			return engine.Answer(req, http.StatusOK)
		})
		req := get(t)
		client := c.stack(lowest, req)
		start = time.Now()
		engine.Poisson(rng, c.For, c.Rate, engine.Constantly(c.Rate), func(time.Duration) {
			ok := succeeded(client.RoundTrip(req))
			mu.Lock()
			defer mu.Unlock()
			r.requests++
			if ok {
				r.successes++
			}
		})
		return r
	})
	return TiersResult{
		Success: engine.NumberOf(runs, func(r run) float64 { return r.successes / r.requests }),
		Load:    engine.NumberOf(runs, func(r run) float64 { return r.attempts / r.requests }),
	}
}

// stack returns the uppermost Transport. Each of them has been well for the WarmUp.
func (c Tiers) stack(lowest http.RoundTripper, req *http.Request) http.RoundTripper {
	next := lowest
	for i := range c.Transports {
		if i > 0 {
			next = &service{next}
		}
		next = engine.Healthy(1, next, c.Policy, c.WarmUp, c.Rate, always(req))[0]
	}
	return next
}
