package sim

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// Busy is one process with many requests, which come at random times to a service in trouble. What the
// trouble is, other experiments say.
type Busy struct {
	Policy func() retryhttp.Policy
	Rate   float64       // requests per second
	WarmUp time.Duration // of health, which fills the budget
	For    time.Duration // the length of the trouble
	After  time.Duration // from the end of the trouble to the last request
	Seeds  int

	// rejects makes the service of a run. The service answers an attempt with a 503 if the function that
	// rejects returns has a header for it, at a time from the beginning of the trouble.
	rejects func(*engine.Dice) func(at time.Duration) http.Header
}

// BusyResult is what became of the requests that came in the trouble.
type BusyResult struct {
	Hit       engine.Number   // requests whose first attempt failed, in a run
	Lost      engine.Number   // the part of all requests that ended in a failure
	LostOfHit engine.Number   // the part of Hit that did
	LostLater engine.Number   // requests that came after the trouble and ended in a failure, in a run
	Load      engine.Number   // attempts per request, in the trouble
	Peak      float64         // the most attempts in a bin of OutageBin after the trouble, in any run, as a multiple of the usual
	Took      []time.Duration // how long each request of Hit took, in order, over all runs
}

func (r BusyResult) String() string {
	return fmt.Sprintf(
		"lost %v, of those hit %v, later %v, load %v, peak %.2f, p50 %v, mean %v",
		r.Lost, r.LostOfHit, r.LostLater, r.Load, r.Peak, engine.Quantile(r.Took, 0.5), meanTime(r.Took),
	)
}

// busyRun is one run of a Busy.
type busyRun struct {
	start    time.Time // of the trouble
	attempts engine.Series

	mu                         sync.Mutex
	made, hit, lost, lostLater float64
	took                       []time.Duration
}

func (b Busy) Run(t *testing.T) BusyResult {
	t.Helper()
	runs := engine.Runs(t, b.Seeds, b.run)
	result := BusyResult{
		Hit:       engine.NumberOf(runs, func(r *busyRun) float64 { return r.hit }),
		Lost:      engine.NumberOf(runs, func(r *busyRun) float64 { return r.lost / r.made }),
		LostOfHit: engine.NumberOf(runs, func(r *busyRun) float64 { return r.lost / max(r.hit, 1) }),
		LostLater: engine.NumberOf(runs, func(r *busyRun) float64 { return r.lostLater }),
		Load:      engine.NumberOf(runs, func(r *busyRun) float64 { return r.attempts.Between(0, b.For) * b.For.Seconds() / r.made }),
	}
	for _, r := range runs {
		result.Took = append(result.Took, r.took...)
		for _, perSecond := range r.attempts.UpTo(b.For + b.After)[b.For/OutageBin:] {
			result.Peak = max(result.Peak, perSecond/b.Rate)
		}
	}
	slices.Sort(result.Took)
	return result
}

func (b Busy) run(t *testing.T, rng *rand.Rand) *busyRun {
	r := &busyRun{attempts: engine.Series{Width: OutageBin}}
	dice, req := engine.NewDice(rng), get(t)
	rejected := b.rejects(dice)
	client := engine.Healthy(1, engine.Server(func(req *http.Request) (*http.Response, error) {
		at := time.Since(r.start)
		r.attempts.Add(at, 1)
		if header := rejected(at); header != nil {
			resp, err := engine.Answer(req, http.StatusServiceUnavailable)
			resp.Header = header
			return resp, err
		}
		time.Sleep(dice.Exponential(outageLatency))
		return engine.Answer(req, http.StatusOK)
	}), b.Policy, b.WarmUp, b.Rate, always(req))[0]
	r.start = time.Now()
	engine.Poisson(rng, b.For+b.After, b.Rate, engine.Constantly(b.Rate), func(at time.Duration) {
		resp, err := client.RoundTrip(req)
		ok := succeeded(resp, err)
		r.record(at < b.For, ok, !ok || retryhttp.OutcomeOf(resp).Attempts > 1, time.Since(r.start)-at)
	})
	return r
}

func (r *busyRun) record(during, ok, hit bool, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !during {
		if !ok {
			r.lostLater++
		}
		return
	}
	r.made++
	if !ok {
		r.lost++
	}
	if hit {
		r.hit++
		r.took = append(r.took, took)
	}
}
