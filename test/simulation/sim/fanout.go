package sim

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// A Fanout is one fresh process that makes many requests at once, at the beginning of an outage,
// and no more after that. When the service is back, only retries can show it.
//
// The experiment is this project's own.
type Fanout struct {
	Policy   func() retryhttp.Policy // of the process
	Requests int
	For      time.Duration // the length of the outage
	Part     float64       // of the attempts fail in the outage. 0: all
	Seeds    int
}

// FanoutResult is how the requests ended.
type FanoutResult struct {
	Hit       engine.Number   // requests whose first attempt failed, in a run
	LostOfHit engine.Number   // the part of Hit that ended in a failure
	Lost      engine.Number   // the part of all requests that ended in a failure
	Took      []time.Duration // how long each request that succeeded took, in order, over all runs
	Peak      float64         // the most attempts in a bin of OutageBin after the outage, in any run
}

// Quantile returns how long a part of the requests that succeeded took at most.
func (r FanoutResult) Quantile(part float64) time.Duration { return engine.Quantile(r.Took, part) }

func (f Fanout) Run(t *testing.T) FanoutResult {
	t.Helper()
	type run struct {
		hit, lost, peak float64
		took            []time.Duration
	}
	runs := engine.Runs(t, f.Seeds, func(t *testing.T, rng *rand.Rand) run {
		dice, start, after := engine.NewDice(rng), time.Now(), engine.Series{Width: OutageBin}
		client := retryhttp.New(engine.Server(func(req *http.Request) (*http.Response, error) {
			at := time.Since(start)
			if at < f.For && (f.Part == 0 || dice.Float64() < f.Part) {
				return engine.Answer(req, http.StatusServiceUnavailable)
			}
			time.Sleep(dice.Exponential(outageLatency))
			if at >= f.For {
				after.Add(at-f.For, 1)
			}
			return engine.Answer(req, http.StatusOK)
		}), f.Policy())
		var r run
		var mu sync.Mutex
		var ended sync.WaitGroup
		req := get(t)
		for range f.Requests {
			ended.Go(func() {
				resp, err := client.RoundTrip(req)
				ok := succeeded(resp, err)
				mu.Lock()
				defer mu.Unlock()
				if !ok || retryhttp.OutcomeOf(resp).Attempts > 1 {
					r.hit++
				}
				if ok {
					r.took = append(r.took, time.Since(start))
				} else {
					r.lost++
				}
			})
		}
		ended.Wait()
		for _, perSecond := range after.PerSecond() {
			r.peak = max(r.peak, perSecond*OutageBin.Seconds())
		}
		return r
	})
	result := FanoutResult{
		Hit:       engine.NumberOf(runs, func(r run) float64 { return r.hit }),
		LostOfHit: engine.NumberOf(runs, func(r run) float64 { return r.lost / max(r.hit, 1) }),
		Lost:      engine.NumberOf(runs, func(r run) float64 { return r.lost / float64(f.Requests) }),
	}
	for _, r := range runs {
		result.Took = append(result.Took, r.took...)
		result.Peak = max(result.Peak, r.peak)
	}
	slices.Sort(result.Took)
	return result
}
