package sim

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// Paths are two paths on one host: one is down for a while, and one is well, except for
// a few of its attempts. By default they have one budget and one Gate.
//
// The experiment is this project's own.
type Paths struct {
	Policy func() retryhttp.Policy
	Rate   float64       // requests per second, on both paths together
	Ill    float64       // the part of them on the path that is down for a while
	Flaws  float64       // the part of the attempts on the other path that fails all the time
	WarmUp time.Duration // of health, which fills the budget
	For    time.Duration // the length of the outage
	After  time.Duration // from the end of the outage to the end of a run
	Seeds  int
}

// PathsResult is what became of the requests that were made in the outage.
type PathsResult struct {
	Well, Ill PathResult
}

// PathResult is what became of the requests of one path that failed at first.
type PathResult struct {
	Lost      engine.Number   // the part of them that ended in a failure
	Load      engine.Number   // attempts per request of the path in the outage
	Recovered []time.Duration // how long the others took, in order, over all runs
}

// Quantile returns how long a part of the recovered requests took at most.
func (r PathResult) Quantile(part float64) time.Duration { return engine.Quantile(r.Recovered, part) }

func (p Paths) Run(t *testing.T) PathsResult {
	t.Helper()
	runs := engine.Runs(t, p.Seeds, func(t *testing.T, rng *rand.Rand) [2]*pathRun {
		var paths [2]*pathRun // well and ill
		var requests [2]*http.Request
		for i, path := range []string{"well", "ill"} {
			paths[i] = new(pathRun)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, serviceURL+path, nil)
			require.NoError(t, err)
			requests[i] = req
		}
		var start time.Time // of the outage
		chance, pick := engine.NewDice(rng), engine.NewDice(rng)
		next := func() *http.Request {
			if pick.Float64() < p.Ill {
				return requests[1]
			}
			return requests[0]
		}
		client := engine.Healthy(1, engine.Server(func(req *http.Request) (*http.Response, error) {
			down := time.Since(start) < p.For
			fails := chance.Float64() < p.Flaws
			path := paths[0]
			if req.URL.Path == "/ill" {
				path, fails = paths[1], down
			}
			if down {
				path.attempt()
			}
			if fails {
				return engine.Answer(req, http.StatusServiceUnavailable)
			}
			time.Sleep(chance.Exponential(outageLatency))
			return engine.Answer(req, http.StatusOK)
		}), p.Policy, p.WarmUp, p.Rate, next)[0]

		start = time.Now()
		engine.Poisson(rng, p.For+p.After, p.Rate, engine.Constantly(p.Rate), func(at time.Duration) {
			req := next()
			resp, err := client.RoundTrip(req)
			path := paths[0]
			if req == requests[1] {
				path = paths[1]
			}
			if at < p.For {
				path.done(resp, err, time.Since(start)-at)
			}
		})
		return paths
	})
	return PathsResult{
		Well: pathResult(runs, 0),
		Ill:  pathResult(runs, 1),
	}
}

// pathRun is one path in one run.
type pathRun struct {
	mu                            sync.Mutex
	requests, attempts, hit, lost float64
	recovered                     []time.Duration
}

func (p *pathRun) attempt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attempts++
}

func (p *pathRun) done(resp *http.Response, err error, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests++
	switch {
	case !succeeded(resp, err):
		p.hit++
		p.lost++
	case retryhttp.OutcomeOf(resp).Attempts > 1:
		p.hit++
		p.recovered = append(p.recovered, took)
	}
}

func pathResult(runs [][2]*pathRun, path int) PathResult {
	var result PathResult
	for _, r := range runs {
		result.Recovered = append(result.Recovered, r[path].recovered...)
	}
	slices.Sort(result.Recovered)
	result.Lost = engine.NumberOf(runs, func(r [2]*pathRun) float64 { return r[path].lost / max(r[path].hit, 1) })
	result.Load = engine.NumberOf(runs, func(r [2]*pathRun) float64 { return r[path].attempts / r[path].requests })
	return result
}
