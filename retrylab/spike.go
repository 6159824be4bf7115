package retrylab

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// Spike is a spike of load on a service that slows down under load. Its clients lose patience and try
// again, while the service goes on working for nobody. If retries keep the load up after the spike, the
// service never recovers.
//
// The model is of simple_collapse_sim in the repository simulator_example, Marc Brooker, 2023. The kind of
// failure is described in "Metastable Failures in Distributed Systems", Bronson et al., HotOS 2021.
type Spike struct {
	Load

	Times float64       // the load in the spike, as a multiple of the Rate. 0: 2.5
	For   time.Duration // 0: 10 s

	// Patience is the AttemptTimeout that each policy gets. An idle service needs a third of it for a
	// request, and as much as two thirds at the Rate. The Latency of the Load is not used. 0 means 3 s.
	Patience time.Duration

	After time.Duration // from the spike's end to the last request. 0: 50 s
}

// Name returns "spike".
func (s Spike) Name() string { return "spike" }

// Validate implements Experiment.
func (s Spike) Validate() error { return validate(s) }

// Run implements Experiment.
func (s Spike) Run(t *testing.T, policy func() retryhttp.Policy, others ...Policy) Result {
	t.Helper()
	return run(t, s, policy, others)
}

func (s Spike) plan() (plan, error) {
	s.Load = s.withDefaults()
	setDefault(&s.Times, 2.5)
	setDefault(&s.For, 10*time.Second)
	setDefault(&s.Patience, 3*time.Second)
	setDefault(&s.After, 50*time.Second)
	p := plan{
		Load: s.Load,
		reading: "Goodput is successes per request in the last quarter of the run, long after the spike. If it is near zero, " +
			"retries keep the service down. Attempts are counted from the spike to the end.",
		more: []Setting{
			{"Times", fmt.Sprint(s.Times)}, {"For", s.For.String()}, {"Patience", s.Patience.String()},
			{"After", s.After.String()},
		},
		unused:  []string{"Latency"},
		columns: []Column{colGoodput, colSucceeded, colLost, colLater, colLoad, colPeakAfter, colP50, colP99},
		most:    max(s.Times, 1) * s.Rate,
		changes: []change{ratio(0.1), bursts(1)},
		better:  more(colGoodput),
		edit: func(p retryhttp.Policy) retryhttp.Policy {
			p.AttemptTimeout = s.Patience
			return p
		},
	}
	// The service needs a while to be as busy as usual, so more of the health is run than usual.
	const ahead = 20 * time.Second
	p.before = max(s.Uptime-ahead, 0)
	from := min(s.Uptime, ahead)
	p.trouble = span{from, from + s.For}
	p.end = p.trouble.to + s.After
	p.measured, p.peaks = span{from, p.end}, span{p.trouble.to, p.end}
	p.settled = span{p.end - s.After/4, p.end}
	p.rate = func(at time.Duration) float64 {
		if p.trouble.has(at) {
			return s.Times * s.Rate
		}
		return s.Rate
	}
	p.service = s.service
	return p, errors.Join(
		s.check(), positive("Times", s.Times, 1e3), atLeast("For", s.For, Bin), atLeast("Patience", s.Patience, 1),
		atLeast("After", s.After, Bin),
	)
}

// The published model has 40 requests per second, a patience of 3 s, and 10 ms more for each request.
const slopeAtRate = 0.4

func (s Spike) service(t *trial) http.RoundTripper {
	third := float64(s.Patience) / 3
	service := &engine.Congested{
		Dice: t.dice, Network: time.Duration(math.Round(third / 10)), Work: time.Duration(math.Round(third)),
		Slope: time.Duration(math.Round(slopeAtRate / s.Rate * float64(time.Second))),
	}
	t.leave = service.Wait
	return engine.Server(func(req *http.Request) (*http.Response, error) {
		t.attempted()
		return service.RoundTrip(req)
	})
}
