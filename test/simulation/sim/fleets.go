package sim

import (
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// A Fleet is many processes, each with a budget of its own, and a service that fails each attempt
// with the same probability.
//
// "Fixing retries with token buckets and circuit breakers", Marc Brooker, 2022, asks what becomes
// of a budget that many clients keep apart.
type Fleet struct {
	Policy    func() retryhttp.Policy // of a process
	Processes int
	Rate      float64       // requests per second, of all processes together
	WarmUp    time.Duration // in which nothing fails
	Failing   float64       // the share of attempts that fail from then on
	For       time.Duration // from the warm-up's end to the end of a run
	Seeds     int
}

// CalmLoad is a load, in attempts per request, little above what a budget of a
// tenth of the successes allows for good.
const CalmLoad = 1.2

// FleetResult is what the service and the callers saw. The series have a bin for
// each second, start with the failures, and are means over the seeds.
type FleetResult struct {
	Load    engine.Number // attempts per request, over all of For
	Success engine.Number // the share of requests that succeeded, over all of For

	SettledLoad    engine.Number // over the last third of For
	SettledSuccess engine.Number

	// Calm is when the load fell to CalmLoad, for good, counted from the start of
	// the failures, or Never.
	Calm time.Duration

	LoadSeries    []float64 // attempts per request
	SuccessSeries []float64 // the share that succeeded of the requests made in that second

	// Spent is the spent part of what the budgets had at the start and earned: the retries of a
	// run, divided by 5 for each process and 0.5 for each success, as the default has it. It is
	// the highest among the runs, and never more than 1.
	Spent float64
}

func (f Fleet) Run(t *testing.T) FleetResult {
	t.Helper()
	const bin = time.Second
	type run struct {
		offered, load, good []float64
		spent               float64
	}
	runs := engine.Runs(t, f.Seeds, func(t *testing.T, rng *rand.Rand) run {
		offered, load, good := engine.Series{Width: bin}, engine.Series{Width: bin}, engine.Series{Width: bin}
		var attempts, requests, successes atomic.Int64 // of the whole run
		start := time.Now()
		failures, pick := engine.NewDice(rng), engine.NewDice(rng)
		clients := engine.Processes(f.Processes, engine.Server(func(req *http.Request) (*http.Response, error) {
			at := time.Since(start)
			attempts.Add(1)
			if at >= f.WarmUp {
				load.Add(at-f.WarmUp, 1)
				if failures.Float64() < f.Failing {
					return engine.Answer(req, http.StatusServiceUnavailable)
				}
			}
			return engine.Answer(req, http.StatusOK)
		}), f.Policy)
		req := get(t)

		engine.Poisson(rng, f.WarmUp+f.For, f.Rate, engine.Constantly(f.Rate), func(at time.Duration) {
			requests.Add(1)
			if at >= f.WarmUp {
				offered.Add(at-f.WarmUp, 1)
			}
			if !succeeded(clients[pick.IntN(len(clients))].RoundTrip(req)) {
				return
			}
			successes.Add(1)
			if at >= f.WarmUp {
				good.Add(at-f.WarmUp, 1)
			}
		})
		const burst, ratio = 5, 0.5 // the defaults
		return run{
			offered.UpTo(f.For), load.UpTo(f.For), good.UpTo(f.For),
			float64(attempts.Load()-requests.Load()) / (float64(burst*f.Processes) + ratio*float64(successes.Load())),
		}
	})

	per := func(a func(run) []float64, from int) engine.Number {
		return engine.NumberOf(runs, func(r run) float64 { return engine.Total(a(r)[from:]) / engine.Total(r.offered[from:]) })
	}
	loadOf, goodOf := func(r run) []float64 { return r.load }, func(r run) []float64 { return r.good }
	last := int(f.For/bin) * 2 / 3
	result := FleetResult{
		Load: per(loadOf, 0), Success: per(goodOf, 0),
		SettledLoad: per(loadOf, last), SettledSuccess: per(goodOf, last),
	}
	var offered, load, good [][]float64
	for _, r := range runs {
		offered, load, good = append(offered, r.offered), append(load, r.load), append(good, r.good)
		result.Spent = max(result.Spent, r.spent)
	}
	result.LoadSeries = ratios(engine.MeanBins(load), engine.MeanBins(offered))
	result.SuccessSeries = ratios(engine.MeanBins(good), engine.MeanBins(offered))
	result.Calm = Never
	for i := len(result.LoadSeries) - 1; i >= 0 && result.LoadSeries[i] <= CalmLoad; i-- {
		result.Calm = time.Duration(i) * bin
	}
	return result
}
