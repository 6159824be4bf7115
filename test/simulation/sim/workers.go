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

// Workers share one process and send one request after the other: each sends its next
// request when its last one has ended. While their service is down, they have little
// other traffic that finds out when it is back, and a single worker has none.
//
// The experiment is this project's own.
type Workers struct {
	Policy  func() retryhttp.Policy
	Workers int
	WarmUp  time.Duration // of health, which fills the budget
	For     time.Duration // the length of the outage
	After   time.Duration // from the end of the outage to the end of a run
	Hang    bool          // in the outage attempts get no answer, instead of a 503
	Seeds   int
}

// WorkersResult is what the outage cost.
type WorkersResult struct {
	Hit  engine.Number // requests that an attempt in the outage failed, in a run
	Lost engine.Number // the part of them that ended in a failure

	Load  engine.Number // attempts in the outage
	Crowd float64       // the most attempts in 100 ms after the outage, in any run
	Back  time.Duration // from the outage's end until every worker has had a success, at most; Never if one has not
	Held  time.Duration // the longest that a request was held

	Times [][]time.Duration // of all attempts from the outage's beginning on, of each run
}

func (w Workers) Run(t *testing.T) WorkersResult {
	t.Helper()
	type run struct {
		hit, lost, load float64
		back, held      time.Duration
		times           []time.Duration
	}
	runs := engine.Runs(t, w.Seeds, func(t *testing.T, rng *rand.Rand) run {
		var r run
		var mu sync.Mutex
		latency := engine.NewDice(rng)
		var start time.Time
		now := func() time.Duration { return time.Since(start) - OutageLead }
		onDone := func(_ retryhttp.Attempt, o retryhttp.Outcome) {
			mu.Lock()
			defer mu.Unlock()
			r.held = max(r.held, o.Held)
		}
		serve := engine.Server(func(req *http.Request) (*http.Response, error) {
			at := now()
			if at >= 0 {
				mu.Lock()
				r.times = append(r.times, at)
				mu.Unlock()
			}
			down := at >= 0 && at < w.For
			if down && w.Hang {
				<-req.Context().Done()
				return nil, req.Context().Err()
			}
			time.Sleep(latency.Exponential(outageLatency)) // a failure, too, takes time, or a worker would do nothing else
			if down {
				return engine.Answer(req, http.StatusServiceUnavailable)
			}
			return engine.Answer(req, http.StatusOK)
		})
		policy := func() retryhttp.Policy {
			p := w.Policy()
			p.OnDone = onDone
			return p
		}
		perSecond := float64(w.Workers) / outageLatency.Seconds()
		req := get(t)
		client := engine.Healthy(1, serve, policy, w.WarmUp, perSecond, always(req))[0]

		start = time.Now()
		var wg sync.WaitGroup
		for range w.Workers {
			wg.Go(func() {
				back := Never
				for now() < w.For+w.After {
					resp, err := client.RoundTrip(req)
					ok := succeeded(resp, err)
					if ok && now() >= w.For {
						back = min(back, now()-w.For)
					}
					mu.Lock()
					if !ok {
						r.lost++
					}
					if !ok || retryhttp.OutcomeOf(resp).Attempts > 1 {
						r.hit++
					}
					mu.Unlock()
				}
				mu.Lock()
				defer mu.Unlock()
				r.back = max(r.back, back)
			})
		}
		wg.Wait()
		for _, at := range r.times {
			if at < w.For {
				r.load++
			}
		}
		return r
	})

	var result WorkersResult
	for _, r := range runs {
		result.Back, result.Held = max(result.Back, r.back), max(result.Held, r.held)
		result.Times = append(result.Times, r.times)
		slices.Sort(r.times)
		crowd := engine.Series{Width: 100 * time.Millisecond}
		for _, at := range r.times {
			if at >= w.For {
				crowd.Add(at-w.For, 1)
			}
		}
		result.Crowd = max(result.Crowd, slices.Max(crowd.UpTo(w.After))*crowd.Width.Seconds())
	}
	result.Hit = engine.NumberOf(runs, func(r run) float64 { return r.hit })
	result.Lost = engine.NumberOf(runs, func(r run) float64 { return r.lost / max(r.hit, 1) })
	result.Load = engine.NumberOf(runs, func(r run) float64 { return r.load })
	return result
}
