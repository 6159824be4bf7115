package sim

import (
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// An Outage is a service that fails for a while, and afterwards has a limited capacity. Its
// clients are many or few processes, whose requests come at random times. It is a retrylab.Outage, in
// requests per second.
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
	Deadline  time.Duration           // of each request. 0: none
	Seeds     int

	// Capacity is how many attempts per second the service takes after the outage. It turns the rest away.
	// 0 means any number. If Slowly is not 0, it takes half of them at first, and all after Slowly.
	Capacity float64
	Slowly   time.Duration
}

// OutageBin is the width of the bins in which load is counted.
const OutageBin = retrylab.Bin

// OutageLead is how much of the time before the outage the series show.
const OutageLead = time.Second

const outageLatency = 10 * time.Millisecond // the mean

// OutageResult is what an outage cost.
type OutageResult struct {
	Hit  engine.Number // requests whose first attempt failed in the outage, in a run
	Lost engine.Number // the part of them that ended in a failure

	LostLater float64 // requests that came after the outage and ended in a failure, in a run

	Load engine.Number // attempts per request in the outage
	Peak float64       // the most attempts in a bin after the outage, in any run, as a multiple of the usual

	Recovered retrylab.Times // how long the requests that were hit took to succeed

	Offered, Attempts, Successes []float64 // per second, from OutageLead before the outage; means over the seeds
}

// Quantile returns how long a part of the recovered requests took at most.
func (r OutageResult) Quantile(part float64) time.Duration { return r.Recovered.Quantile(part) }

// Run runs the experiment.
func (o Outage) Run(t *testing.T) OutageResult {
	t.Helper()
	room := -1.0
	if o.Capacity > 0 {
		room = o.Capacity / o.Rate
	}
	got := alone(t, retrylab.Outage{
		Load: retrylab.Load{
			Rate: o.Rate, Processes: o.Processes, Latency: outageLatency, Uptime: o.WarmUp + OutageLead,
			Deadline: o.Deadline, Seeds: o.Seeds,
		},
		For: o.For, Part: o.Part, Silent: o.Hang, Room: room, Slowly: o.Slowly, After: o.After,
	}, retrylab.Policy{New: o.Policy})
	return OutageResult{
		Hit: engine.Number(got.Hit), Lost: engine.Number(got.Lost), LostLater: got.LostLater.Mean * got.Later.Mean, Load: engine.Number(got.Load), Peak: got.Peak.Most,
		Recovered: got.SuccessTimes, Offered: got.Offered, Attempts: got.Attempts, Successes: got.Successes,
	}
}
