package retrylab

import (
	"math"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

var nan = math.NaN()

const forever = time.Duration(math.MaxInt64)

// span is a time from the start of a run's series.
type span struct{ from, to time.Duration }

func (s span) has(at time.Duration) bool { return at >= s.from && at < s.to }

// plan is what an experiment has the engine do.
type plan struct {
	Load

	name    string
	reading string
	more    []Setting // besides the Load's
	unused  []string  // fields of the Load
	columns []Column

	trouble  span // requests made in it may be hit
	measured span // in which attempts per request are counted; see trial.load
	peaks    span // in which the fullest bin is looked for
	settled  span // in which goodput is counted
	end      time.Duration

	everyone bool                           // each request of the trouble is hit
	most     float64                        // the highest rate; 0: Rate
	rate     func(at time.Duration) float64 // nil: Rate
	before   time.Duration                  // of health, which fills the budgets and is not run

	// edit changes every policy. nil: none
	edit func(retryhttp.Policy) retryhttp.Policy

	// service makes the service of a run. It draws from t.dice alone.
	service func(t *trial) http.RoundTripper

	// clients makes the clients of a run. nil: Processes that have been well for before.
	clients func(t *trial, service http.RoundTripper) []http.RoundTripper

	// traffic makes the requests of a run. nil: arrivals at random times until the end.
	traffic func(t *trial, rng *rand.Rand)

	// changes to the first policy are tried, and judged by better. nil: none
	changes []change
	better  better

	// variants adds policies. nil: none
	variants func(*testing.T, []Policy) []Policy
}

// lead is how much of the health before the trouble is run, and shown by the series.
const lead = time.Second

// led divides the uptime into what is run and what the budgets only have as deposits.
func (p *plan) led() time.Duration {
	run := min(p.Uptime, lead)
	p.before = p.Uptime - run
	return run
}

func (p *plan) rateAt(at time.Duration) float64 {
	if p.rate == nil {
		return p.Rate
	}
	return p.rate(at)
}

func (p *plan) arrivals(t *trial, rng *rand.Rand) {
	engine.Poisson(rng, p.end, max(p.most, p.Rate), p.rateAt, t.request)
}

func (p *plan) makeClients(t *trial, service http.RoundTripper) []http.RoundTripper {
	if p.clients != nil {
		return p.clients(t, service)
	}
	return t.healthy(p.Processes, service)
}

// healthy returns n Transports that have been well.
func (t *trial) healthy(n int, base http.RoundTripper) []http.RoundTripper {
	req := t.newRequest(t.ctx)
	transports := engine.Healthy(n, t.guard(base), t.policy, t.before, t.Rate, func() *http.Request { return req })
	clients := make([]http.RoundTripper, n)
	for i, c := range transports {
		clients[i] = c
	}
	return clients
}
