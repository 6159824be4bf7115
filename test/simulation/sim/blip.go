package sim

import (
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// A Blip is one process whose service fails every attempt for a while, and
// works before and after.
//
// The budget is from "Fixing retries with token buckets and circuit
// breakers", Marc Brooker, 2022, whose bucket has a fixed size. The experiment
// shows what that costs a busy client, and is this project's own.
type Blip struct {
	Policy func() retryhttp.Policy // of a process
	Rate   float64                 // requests per second
	WarmUp time.Duration           // before the blip
	For    time.Duration           // the length of the blip
	After  time.Duration           // from the end of the blip to the end of a run
	Bin    time.Duration           // of the series
	Seeds  int
}

// BlipResult is what the blip cost. The series start with the blip, and are
// means over the seeds.
type BlipResult struct {
	Failed   engine.Number // requests whose first attempt failed, in a run
	Lost     engine.Number // requests of Failed that ended in a failure
	LostPart float64       // the part of Failed that was lost, over all runs

	Offered []float64 // requests per second
	Load    []float64 // attempts per second
}

// Relative returns the load as a multiple of what was offered, bin by bin.
func (r BlipResult) Relative() []float64 { return ratios(r.Load, r.Offered) }

func (b Blip) Run(t *testing.T) BlipResult {
	t.Helper()
	type run struct{ failed, lost, offered, load []float64 }
	runs := engine.Runs(t, b.Seeds, func(t *testing.T, rng *rand.Rand) run {
		failed, lost := engine.Series{Width: b.Bin}, engine.Series{Width: b.Bin}
		offered, load := engine.Series{Width: b.Bin}, engine.Series{Width: b.Bin}
		start := time.Now()
		client := retryhttp.New(engine.Server(func(req *http.Request) (*http.Response, error) {
			in := time.Since(start) - b.WarmUp // the blip
			if in >= 0 {
				load.Add(in, 1)
			}
			if in >= 0 && in < b.For {
				return engine.Answer(req, http.StatusServiceUnavailable)
			}
			return engine.Answer(req, http.StatusOK)
		}), b.Policy())
		req := get(t)

		end := b.WarmUp + b.For + b.After
		engine.Poisson(rng, end, b.Rate, engine.Constantly(b.Rate), func(at time.Duration) {
			in := at - b.WarmUp
			if in >= 0 {
				offered.Add(in, 1)
			}
			resp, err := client.RoundTrip(req)
			switch {
			case !succeeded(resp, err):
				lost.Add(in, 1)
				failed.Add(in, 1)
			case retryhttp.OutcomeOf(resp).Attempts > 1:
				failed.Add(in, 1)
			}
		})
		end -= b.WarmUp
		return run{failed.UpTo(end), lost.UpTo(end), offered.UpTo(end), load.UpTo(end)}
	})

	count := func(bins []float64) float64 { return engine.Total(bins) * b.Bin.Seconds() }
	var offered, load [][]float64
	for _, r := range runs {
		offered, load = append(offered, r.offered), append(load, r.load)
	}
	result := BlipResult{
		Failed:  engine.NumberOf(runs, func(r run) float64 { return count(r.failed) }),
		Lost:    engine.NumberOf(runs, func(r run) float64 { return count(r.lost) }),
		Offered: engine.MeanBins(offered),
		Load:    engine.MeanBins(load),
	}
	result.LostPart = result.Lost.Mean / result.Failed.Mean
	return result
}
