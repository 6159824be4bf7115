package sim

import (
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
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
	Failed   Mean    // requests whose first attempt failed, in a run
	Lost     Mean    // requests of Failed that ended in a failure
	LostPart float64 // the part of Failed that was lost, over all runs

	Offered []float64 // requests per second
	Load    []float64 // attempts per second
}

// Relative returns the load as a multiple of what was offered, bin by bin.
func (r BlipResult) Relative() []float64 { return ratios(r.Load, r.Offered) }

func (b Blip) Run(t *testing.T) BlipResult {
	t.Helper()
	type run struct{ failed, lost, offered, load []float64 }
	runs := Runs(t, b.Seeds, func(t *testing.T, rng *rand.Rand) run {
		failed, lost := Series{Width: b.Bin}, Series{Width: b.Bin}
		offered, load := Series{Width: b.Bin}, Series{Width: b.Bin}
		start := time.Now()
		client := retryhttp.New(server(func(req *http.Request) (*http.Response, error) {
			in := time.Since(start) - b.WarmUp // the blip
			if in >= 0 {
				load.Add(in, 1)
			}
			if in >= 0 && in < b.For {
				return answer(req, http.StatusServiceUnavailable)
			}
			return answer(req, http.StatusOK)
		}), b.Policy())
		req := get(t)

		end := b.WarmUp + b.For + b.After
		Poisson(rng, end, b.Rate, Constantly(b.Rate), func(at time.Duration) {
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
		return run{upTo(&failed, end), upTo(&lost, end), upTo(&offered, end), upTo(&load, end)}
	})

	count := func(bins []float64) float64 { return total(bins) * b.Bin.Seconds() }
	var offered, load [][]float64
	for _, r := range runs {
		offered, load = append(offered, r.offered), append(load, r.load)
	}
	result := BlipResult{
		Failed:  MeanOf(runs, func(r run) float64 { return count(r.failed) }),
		Lost:    MeanOf(runs, func(r run) float64 { return count(r.lost) }),
		Offered: meanBins(offered),
		Load:    meanBins(load),
	}
	result.LostPart = result.Lost.Value / result.Failed.Value
	return result
}
