package sim

import (
	"math"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// Never is a time that has not come.
const Never = time.Duration(math.MaxInt64)

// A Collapse is a spike of load on a service that slows down under load. The clients lose patience
// and try again, while the service goes on working on requests that no client waits for. If
// retries keep the load up after the spike, the service never recovers.
//
// The model and its numbers are from simple_collapse_sim in the repository simulator_example, Marc
// Brooker, 2023. The kind of failure is described in "Metastable Failures in Distributed Systems",
// Nathan Bronson, Abutalib Aghayev, Aleksey Charapko and Timothy Zhu, HotOS 2021.
type Collapse struct {
	Policy    func() retryhttp.Policy                  // of a process; AttemptTimeout is set to CollapsePatience
	Fleet     func(*testing.T) func() retryhttp.Policy // if not nil, returns the Policy of a run, in its bubble
	Processes int                                      // among which the requests are spread, each with a Transport of its own
	Spike     float64                                  // requests per second in the spike
	SpikeFor  time.Duration
	Until     time.Duration // the end of a run
	Seeds     int
}

// The numbers of the published model.
const (
	CollapseRate     = 40.0 // requests per second, except in the spike
	CollapsePatience = 3 * time.Second
	CollapseSpikeAt  = 20 * time.Second

	collapseNetwork = 100 * time.Millisecond // mean, each way
	collapseWork    = time.Second
	collapseSlope   = 10 * time.Millisecond // more work for each request that is being worked on
)

// CollapseResult is what became of the service. The series have a bin for each
// second, and are means over the seeds.
type CollapseResult struct {
	Offered []float64 // requests per second
	Load    []float64 // attempts per second
	Goodput []float64 // successes per second, by when they came

	// Recovery is, for each seed, the time from the spike's end to the first
	// moment from which the service keeps up, or Never. It keeps up while in
	// every 10 s at least 0.9 times as many requests succeed as were made in 10 s
	// that began 2 s earlier, which is what a request takes.
	Recovery []time.Duration

	// Settled is the goodput in the last quarter of a run.
	Settled engine.Number
}

// Recovered counts the seeds in which the service recovered within a time after
// the spike.
func (r CollapseResult) Recovered(within time.Duration) int {
	n := 0
	for _, d := range r.Recovery {
		if d != Never && d <= within {
			n++
		}
	}
	return n
}

func (r CollapseResult) Slowest() time.Duration {
	var slowest time.Duration
	for _, d := range r.Recovery {
		slowest = max(slowest, d)
	}
	return slowest
}

func (c Collapse) Run(t *testing.T) CollapseResult {
	t.Helper()
	type run struct{ offered, load, goodput []float64 }
	runs := engine.Runs(t, c.Seeds, func(t *testing.T, rng *rand.Rand) run {
		const bin = time.Second
		offered, load, goodput := engine.Series{Width: bin}, engine.Series{Width: bin}, engine.Series{Width: bin}
		start := time.Now()
		ofProcess := c.Policy
		if c.Fleet != nil {
			ofProcess = c.Fleet(t)
		}
		policy := func() retryhttp.Policy {
			p := ofProcess()
			p.AttemptTimeout = CollapsePatience
			return p
		}
		service := &engine.Congested{
			Dice: engine.NewDice(rng), Network: collapseNetwork, Work: collapseWork, Slope: collapseSlope,
		}
		clients := engine.Processes(c.Processes, engine.Server(func(req *http.Request) (*http.Response, error) {
			load.Add(time.Since(start), 1)
			return service.RoundTrip(req)
		}), policy)
		req, pick := get(t), engine.NewDice(rng)

		engine.Poisson(rng, c.Until, max(CollapseRate, c.Spike), c.rate, func(at time.Duration) {
			offered.Add(at, 1)
			if succeeded(clients[pick.IntN(len(clients))].RoundTrip(req)) {
				goodput.Add(time.Since(start), 1)
			}
		})
		service.Wait()
		return run{offered.UpTo(c.Until), load.UpTo(c.Until), goodput.UpTo(c.Until)}
	})

	var offered, load, goodput [][]float64
	var result CollapseResult
	spikeEnd := int((CollapseSpikeAt + c.SpikeFor) / time.Second)
	for _, r := range runs {
		offered, load, goodput = append(offered, r.offered), append(load, r.load), append(goodput, r.goodput)
		result.Recovery = append(result.Recovery, recovery(r.offered, r.goodput, spikeEnd))
	}
	result.Offered, result.Load, result.Goodput = engine.MeanBins(offered), engine.MeanBins(load), engine.MeanBins(goodput)
	result.Settled = engine.NumberOf(goodput, func(bins []float64) float64 {
		last := bins[len(bins)*3/4:]
		return engine.Total(last) / float64(len(last))
	})
	return result
}

func (c Collapse) rate(at time.Duration) float64 {
	if at >= CollapseSpikeAt && at < CollapseSpikeAt+c.SpikeFor {
		return c.Spike
	}
	return CollapseRate
}

// recovery finds CollapseResult.Recovery in the series of one run. It compares goodput with the
// requests that were really offered, and not with the mean rate. Over 10 s, a Poisson process may
// differ from the mean rate by a tenth.
func recovery(offered, goodput []float64, from int) time.Duration {
	const window, lag, share = 10, 2, 0.9
	recovered := Never
	for i := len(goodput) - window; i >= from; i-- {
		if engine.Total(goodput[i:i+window]) < share*engine.Total(offered[i-lag:i-lag+window]) {
			break
		}
		recovered = time.Duration(i-from) * time.Second
	}
	return recovered
}
