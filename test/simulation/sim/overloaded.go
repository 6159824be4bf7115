package sim

import (
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// An Overloaded is a service that can do a limited amount of work. It rejects attempts beyond that
// limit, and a rejection is work, too. So each attempt that it rejects leaves less for the
// attempts that it serves.
//
// There may be a spike of load. If retries keep the load up after the spike, the service rejects
// so many of them that it serves few or none. This is another way into the kind of failure that
// Collapse shows. The experiment is this project's own.
type Overloaded struct {
	Policy    func() retryhttp.Policy // of a process
	Processes int                     // among which the requests are spread, each with a Transport of its own
	Capacity  float64                 // attempts per second that the service can serve if it rejects none
	Cost      float64                 // the work of a rejection, as a part of the work of a success
	Load      float64                 // requests per second, as a part of the Capacity
	Posts     float64                 // the part of the requests that are a POST without a key, which no retry may repeat
	WarmUp    time.Duration           // of health, which fills the budgets
	Before    time.Duration           // from then to the spike
	Spike     float64                 // the load in the spike is so many times the Load
	SpikeFor  time.Duration
	After     time.Duration // from the end of the spike to the end of a run
	Seeds     int
}

// OverloadedBin is the width of the bins of an OverloadedResult.
const OverloadedBin = time.Second

// OverloadedResult is what the service did. The series begin after the WarmUp and have a bin for each
// OverloadedBin. They are means over the seeds, in parts of the Capacity.
type OverloadedResult struct {
	Offered  []float64 // requests
	Attempts []float64
	Goodput  []float64 // successes, by when they came
	Each     []float64 // Settled of each run
}

// Steady returns the goodput between the beginning and the spike, without the first quarter of that
// time, in which the budgets spend what they have saved.
func (r OverloadedResult) Steady(o Overloaded) float64 {
	return meanBetween(r.Goodput, o.Before/4, o.Before)
}

// Settled returns the goodput in the last third of the time after the spike.
func (r OverloadedResult) Settled(o Overloaded) float64 {
	return o.settled(r.Goodput)
}

func (o Overloaded) settled(goodput []float64) float64 {
	return meanBetween(goodput, o.end()-o.After/3, o.end())
}

func (o Overloaded) Run(t *testing.T) OverloadedResult {
	t.Helper()
	type run struct{ offered, attempts, goodput []float64 }
	runs := engine.Runs(t, o.Seeds, func(t *testing.T, rng *rand.Rand) run {
		offered, attempts, goodput := engine.Series{Width: OverloadedBin}, engine.Series{Width: OverloadedBin}, engine.Series{Width: OverloadedBin}
		latency := engine.NewDice(rng)
		service := &engine.Workload{Cost: o.Cost}
		req, pick := get(t), engine.NewDice(rng)
		post := get(t)
		post.Method = http.MethodPost
		var start time.Time
		clients := engine.Healthy(o.Processes, engine.Server(func(req *http.Request) (*http.Response, error) {
			at := time.Since(start)
			attempts.Add(at, 1/o.Capacity)
			if !service.Take(at, o.Capacity) {
				return engine.Answer(req, http.StatusServiceUnavailable)
			}
			time.Sleep(latency.Exponential(outageLatency))
			return engine.Answer(req, http.StatusOK)
		}), o.Policy, o.WarmUp, o.Load*o.Capacity, always(req))
		start = time.Now()
		engine.Poisson(rng, o.end(), max(o.Spike, 1)*o.Load*o.Capacity, o.rate, func(at time.Duration) {
			offered.Add(at, 1/o.Capacity)
			client, req := clients[pick.IntN(len(clients))], req
			if o.Posts > 0 && pick.Float64() < o.Posts {
				req = post
			}
			if succeeded(client.RoundTrip(req)) {
				goodput.Add(time.Since(start), 1/o.Capacity)
			}
		})
		return run{offered.UpTo(o.end()), attempts.UpTo(o.end()), goodput.UpTo(o.end())}
	})
	var offered, attempts, goodput [][]float64
	for _, r := range runs {
		offered, attempts, goodput = append(offered, r.offered), append(attempts, r.attempts), append(goodput, r.goodput)
	}
	result := OverloadedResult{
		Offered: engine.MeanBins(offered), Attempts: engine.MeanBins(attempts), Goodput: engine.MeanBins(goodput),
	}
	for _, g := range goodput {
		result.Each = append(result.Each, o.settled(g))
	}
	return result
}

func (o Overloaded) end() time.Duration { return o.Before + o.SpikeFor + o.After }

func (o Overloaded) rate(at time.Duration) float64 {
	if at >= o.Before && at < o.Before+o.SpikeFor {
		return o.Spike * o.Load * o.Capacity
	}
	return o.Load * o.Capacity
}

// meanBetween is the mean of the bins of OverloadedBin between two times.
func meanBetween(bins []float64, from, to time.Duration) float64 {
	between := bins[from/OverloadedBin : to/OverloadedBin]
	return engine.Total(between) / float64(len(between))
}
