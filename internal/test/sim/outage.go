package sim

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
)

// An Outage is a service that fails for a while, and afterwards has a limited capacity. Its
// clients are many or few processes, whose requests come at random times.
//
// The experiment is this project's own. Its questions are how many of the requests that the outage
// hits are lost, and what load retries put on the service during the outage and afterwards.
type Outage struct {
	Policy    func() retryhttp.Policy // of a process
	Processes int                     // among which the requests are spread, each with a Transport of its own
	Rate      float64                 // requests per second, of all processes
	WarmUp    time.Duration           // of health, which fills the budgets; three times their Window, and they are steady
	For       time.Duration           // its length
	After     time.Duration           // from its end to the end of a run
	Part      float64                 // of the attempts fail in the outage. 0: all
	Hang      bool                    // in the outage attempts get no answer, instead of a 503
	Seeds     int

	// Capacity is how many attempts per second the service takes, at a time after the outage. It
	// turns the rest away. nil: any number.
	Capacity func(after time.Duration) float64
}

// OutageBin is the width of the bins in which load is counted.
const OutageBin = 100 * time.Millisecond

const outageLatency = 10 * time.Millisecond // the mean

// OutageResult is what an outage cost.
type OutageResult struct {
	Hit  Mean // requests whose first attempt failed in the outage, in a run
	Lost Mean // the part of them that ended in a failure

	LostLater Mean // requests that came after the outage and ended in a failure, in a run

	Load Mean    // attempts per request in the outage
	Peak float64 // the most attempts in a bin after the outage, in any run, as a multiple of the usual

	Recovered []time.Duration // how long the requests that were hit took to succeed, in order, over all runs

	Offered, Attempts, Successes []float64 // per second, from OutageLead before the outage; means over the seeds
}

// Quantile returns how long a part of the recovered requests took at most.
func (r OutageResult) Quantile(part float64) time.Duration { return quantile(r.Recovered, part) }

// outageRun is one run.
type outageRun struct {
	Outage
	start                        time.Time // of the series
	offered, attempts, successes Series
	dice                         *dice

	room   float64 // what the service can take now
	roomAt time.Duration

	mu                   sync.Mutex
	hit, lost, lostLater float64
	recovered            []time.Duration
}

// OutageLead is how much of the time before the outage the series show.
const OutageLead = time.Second

func (o Outage) Run(t *testing.T) OutageResult {
	t.Helper()
	runs := Runs(t, o.Seeds, func(t *testing.T, rng *rand.Rand) *outageRun {
		r := &outageRun{
			Outage: o, dice: newDice(rng),
			offered: Series{Width: OutageBin}, attempts: Series{Width: OutageBin}, successes: Series{Width: OutageBin},
		}
		req, pick := get(t), newDice(rng)
		clients := healthy(o.Processes, server(r.serve), o.Policy, o.WarmUp, o.Rate, always(req))
		r.start = time.Now()
		Poisson(rng, OutageLead+o.For+o.After, o.Rate, Constantly(o.Rate), func(at time.Duration) {
			r.offered.Add(at, 1)
			resp, err := clients[pick.intN(len(clients))].RoundTrip(req)
			r.record(at-OutageLead, resp, err)
		})
		return r
	})
	return o.result(runs)
}

// serve is the service. Its clients' requests carry no time, so it looks at the clock.
func (r *outageRun) serve(req *http.Request) (*http.Response, error) {
	at := time.Since(r.start)
	r.attempts.Add(at, 1)
	in := at - OutageLead
	if in >= 0 && in < r.For && (r.Part == 0 || r.dice.float64() < r.Part) {
		if r.Hang {
			<-req.Context().Done()
			return nil, req.Context().Err()
		}
		return answer(req, http.StatusServiceUnavailable)
	}
	if in >= r.For && !r.take(in-r.For) {
		return answer(req, http.StatusServiceUnavailable)
	}
	time.Sleep(r.dice.exponential(outageLatency))
	return answer(req, http.StatusOK)
}

// take reports whether the service can take another attempt, at a time after the outage. The
// service can take at once what it could have taken in the last tenth of a second.
func (r *outageRun) take(after time.Duration) bool {
	if r.Capacity == nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	capacity := r.Capacity(after)
	r.room = min(r.room+capacity*(after-r.roomAt).Seconds(), capacity/10)
	r.roomAt = after
	if r.room < 1 {
		return false
	}
	r.room--
	return true
}

// record counts a request that was made at a time since the outage began.
func (r *outageRun) record(in time.Duration, resp *http.Response, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	during := in >= 0 && in < r.For
	ended := time.Since(r.start)
	took := ended - OutageLead - in
	if succeeded(resp, err) {
		r.successes.Add(ended, 1)
	}
	switch ok := succeeded(resp, err); {
	case ok && during && retryhttp.OutcomeOf(resp).Attempts > 1:
		r.hit++
		r.recovered = append(r.recovered, took)
	case !ok && during:
		r.hit++
		r.lost++
	case !ok && in >= r.For:
		r.lostLater++
	}
}

func (o Outage) result(runs []*outageRun) OutageResult {
	var offered, attempts, successes [][]float64
	var result OutageResult
	for _, r := range runs {
		end := OutageLead + o.For + o.After
		offered = append(offered, upTo(&r.offered, end))
		attempts = append(attempts, upTo(&r.attempts, end))
		successes = append(successes, upTo(&r.successes, end))
		after := upTo(&r.attempts, end)[(OutageLead+o.For)/OutageBin:]
		result.Peak = max(result.Peak, slices.Max(after)/o.Rate)
		result.Recovered = append(result.Recovered, r.recovered...)
	}
	slices.Sort(result.Recovered)
	result.Offered, result.Attempts, result.Successes = meanBins(offered), meanBins(attempts), meanBins(successes)
	result.Hit = MeanOf(runs, func(r *outageRun) float64 { return r.hit })
	result.Lost = MeanOf(runs, func(r *outageRun) float64 { return r.lost / max(r.hit, 1) })
	result.LostLater = MeanOf(runs, func(r *outageRun) float64 { return r.lostLater })
	result.Load = MeanOf(runs, func(r *outageRun) float64 {
		return r.attempts.Between(OutageLead, OutageLead+o.For) / r.offered.Between(OutageLead, OutageLead+o.For)
	})
	return result
}
