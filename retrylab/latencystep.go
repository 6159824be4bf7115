package retrylab

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// LatencyStep is a service with a long tail of latencies, which is slow for a while. Nothing fails, and
// there is room for any number of attempts. Each policy is run with and without a Hedge.
//
// 98 % of the answers take a tenth of the Latency to the Latency. Few take far longer: 0.3 % more than 7
// times the Latency, and one in 100,000 more than 180 times. They are fitted to "The Tail at Scale", Dean
// and Barroso, 2013. The Uptime before the step is run, so that a Hedge knows the latencies.
type LatencyStep struct {
	Load

	Slower float64       // latencies are so many times as long in the step. 0: 10
	For    time.Duration // the length of the step. 0: 10 s
	After  time.Duration // from its end to the last request. 0: 5 s
}

// Name returns "latency-step".
func (l LatencyStep) Name() string { return "latency-step" }

// Validate implements Experiment.
func (l LatencyStep) Validate() error { return validate(l) }

// Run implements Experiment.
func (l LatencyStep) Run(t *testing.T, policy func() retryhttp.Policy, others ...Policy) Result {
	t.Helper()
	return run(t, l, policy, others)
}

func (l LatencyStep) plan() (plan, error) {
	l.Load = l.withDefaults()
	setDefault(&l.Slower, 10)
	setDefault(&l.For, 10*time.Second)
	setDefault(&l.After, 5*time.Second)
	p := plan{
		Load: l.Load,
		reading: "The usual p99 is what a Hedge improves while latencies are steady. In the step every request is slow at first: " +
			"attempts show whether hedges double the load just then, and success p50 and p99 are of the step.",
		more:     []Setting{{"Slower", fmt.Sprint(l.Slower)}, {"For", l.For.String()}, {"After", l.After.String()}},
		columns:  []Column{colUsual99, colLost, colLoad, colP50, colP99, colPeak},
		trouble:  span{l.Uptime, l.Uptime + l.For},
		measured: span{l.Uptime, l.Uptime + l.For},
		end:      l.Uptime + l.For + l.After,
		everyone: true,
		variants: withAndWithoutHedge,
	}
	p.peaks, p.settled = span{p.trouble.from, p.trouble.to}, span{p.trouble.to, p.end}
	p.service = func(t *trial) http.RoundTripper {
		return engine.Server(func(req *http.Request) (*http.Response, error) {
			at := t.attempted()
			takes := float64(engine.LeafLatency(1-t.dice.Float64())) * t.Latency.Seconds() / 0.010
			if t.trouble.has(at) {
				takes *= l.Slower
			}
			return engine.AnswerAfter(time.Duration(takes), req, http.StatusOK)
		})
	}
	return p, errors.Join(
		l.check(), positive("Slower", l.Slower, 1e4), atLeast("For", l.For, Bin), atLeast("After", l.After, Bin),
	)
}

// withAndWithoutHedge puts beside each policy what it is with a Hedge, or without its own.
func withAndWithoutHedge(t *testing.T, policies []Policy) []Policy {
	t.Helper()
	var all []Policy
	for _, p := range policies {
		other := p.edited(p.Name+", with a Hedge", func(p retryhttp.Policy) retryhttp.Policy {
			p.Hedge = new(retryhttp.Hedge)
			return p
		})
		if hedges(t, p) {
			other = p.edited(p.Name+", without a Hedge", func(p retryhttp.Policy) retryhttp.Policy {
				p.Hedge = nil
				return p
			})
		}
		all = append(all, p, other)
	}
	return all
}

// hedges reports whether p has a Hedge. If it panics, it panics again in each run, which reports it.
func hedges(t *testing.T, p Policy) (has bool) {
	t.Helper()
	engine.Bubbles(t, 1, nil, func(t *testing.T, _ int) {
		defer func() { _ = recover() }()
		has = p.fleet()(t)().Hedge != nil
	})
	return has
}
