package sim

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// A Herd is many clients, each in a process of its own. A service sends them away at the same
// moment, with the same Retry-After. When they return, the service works again, serves what it can
// and sends the others away with the same Retry-After.
//
// Retry-After is RFC 9110, "HTTP Semantics", Roy Fielding, Mark Nottingham and Julian Reschke,
// 2022, section 10.2.3. "Exponential Backoff And Jitter", Marc Brooker, 2015, shows that clients
// that act at the same time need to be spread. The experiment is this project's own.
type Herd struct {
	Policy   func() retryhttp.Policy // of a run
	Clients  int
	Asked    time.Duration // in Retry-After; whole seconds
	Capacity float64       // requests per second that the service is good for
	Queue    int           // requests that it takes on at once, and works off at that rate
	Seeds    int
}

// HerdBin is the width of the bins in which arrivals are counted.
const HerdBin = 10 * time.Millisecond

// HerdResult is how the herd came back. The first attempts, all made at the
// start, are in Attempts, but not in Peak and Arrivals.
type HerdResult struct {
	Soonest  time.Duration // the shortest time between two attempts of one client, in all runs
	Peak     engine.Number // arrivals in the fullest HerdBin
	Served   engine.Number // clients
	Attempts engine.Number // of all clients together
	Arrivals []float64     // per second, in bins of HerdBin from the start; the mean over the seeds
}

func (h Herd) Run(t *testing.T) HerdResult {
	t.Helper()
	type run struct {
		soonest                time.Duration
		peak, served, attempts float64
		arrivals               []float64
	}
	asked := http.Header{"Retry-After": {strconv.Itoa(int(h.Asked / time.Second))}}
	runs := engine.Runs(t, h.Seeds, func(t *testing.T, _ *rand.Rand) run {
		arrivals := engine.Series{Width: HerdBin}
		start := time.Now()
		capacity := rate.NewLimiter(rate.Limit(h.Capacity), h.Queue)
		service := func(req *http.Request) (*http.Response, error) {
			if now := time.Now(); now.After(start) {
				arrivals.Add(now.Sub(start), 1)
				if capacity.AllowN(now, 1) {
					return engine.Answer(req, http.StatusOK)
				}
			}
			resp, err := engine.Answer(req, http.StatusServiceUnavailable)
			resp.Header = asked
			return resp, err
		}

		policy, req := h.Policy(), get(t)
		soonest := make([]time.Duration, h.Clients)
		var served, attempts atomic.Int64
		var wg sync.WaitGroup
		for i := range h.Clients {
			soonest[i] = Never
			wg.Go(func() {
				var last time.Time
				client := retryhttp.New(engine.Server(func(req *http.Request) (*http.Response, error) {
					if !last.IsZero() {
						soonest[i] = min(soonest[i], time.Since(last))
					}
					last = time.Now()
					attempts.Add(1)
					return service(req)
				}), policy)
				if succeeded(client.RoundTrip(req)) {
					served.Add(1)
				}
			})
		}
		wg.Wait()
		r := run{Never, 0, float64(served.Load()), float64(attempts.Load()), arrivals.PerSecond()}
		for _, d := range soonest {
			r.soonest = min(r.soonest, d)
		}
		for _, perSecond := range r.arrivals {
			r.peak = max(r.peak, perSecond*HerdBin.Seconds())
		}
		return r
	})

	result := HerdResult{
		Soonest:  Never,
		Peak:     engine.NumberOf(runs, func(r run) float64 { return r.peak }),
		Served:   engine.NumberOf(runs, func(r run) float64 { return r.served }),
		Attempts: engine.NumberOf(runs, func(r run) float64 { return r.attempts }),
	}
	longest := 0
	for _, r := range runs {
		result.Soonest = min(result.Soonest, r.soonest)
		longest = max(longest, len(r.arrivals))
	}
	var series [][]float64
	for _, r := range runs {
		series = append(series, append(r.arrivals, make([]float64, longest-len(r.arrivals))...))
	}
	result.Arrivals = engine.MeanBins(series)
	return result
}
