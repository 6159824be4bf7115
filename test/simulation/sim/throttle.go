package sim

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// A Throttle is a service that sends all requests of one process away for a while, with a
// Retry-After that names the end. Then it takes requests up to its capacity, and sends away the
// rest, with a Retry-After of a second.
//
// Retry-After is RFC 9110, "HTTP Semantics", Roy Fielding, Mark Nottingham and Julian Reschke,
// 2022, section 10.2.3. The experiment is this project's own.
type Throttle struct {
	Policy   func() retryhttp.Policy
	Rate     float64       // requests per second
	WarmUp   time.Duration // of health, which fills the budget
	Closed   time.Duration // for so long; whole seconds
	After    time.Duration // from its end to the end of a run
	Capacity float64       // attempts per second that the service takes afterwards; a tenth of it at once
	Seeds    int
}

// ThrottleResult is what the process did.
type ThrottleResult struct {
	Ignored engine.Number // attempts while the service was closed, per request made in that time
	Lost    engine.Number // the part of the requests made in that time and after it that ended in a failure
	Peak    float64       // the most attempts in a bin afterwards, in any run, as a multiple of what is usual
}

func (c Throttle) Run(t *testing.T) ThrottleResult {
	t.Helper()
	type run struct{ ignored, offered, lost, made, peak float64 }
	runs := engine.Runs(t, c.Seeds, func(t *testing.T, rng *rand.Rand) run {
		end := c.Closed + c.After
		attempts, offered := engine.Series{Width: OutageBin}, engine.Series{Width: OutageBin}
		lost := engine.Series{Width: OutageBin}
		latency := engine.NewDice(rng)
		var start time.Time
		capacity := rate.NewLimiter(rate.Limit(c.Capacity), int(c.Capacity/10))
		req := get(t)
		client := engine.Healthy(1, engine.Server(func(req *http.Request) (*http.Response, error) {
			now := time.Now()
			in := now.Sub(start)
			attempts.Add(in, 1)
			if left := c.Closed - in; left > 0 || !capacity.AllowN(now, 1) {
				resp, err := engine.Answer(req, http.StatusTooManyRequests)
				asked := max(int((left+time.Second-1)/time.Second), 1)
				resp.Header = http.Header{"Retry-After": {strconv.Itoa(asked)}}
				return resp, err
			}
			time.Sleep(latency.Exponential(outageLatency))
			return engine.Answer(req, http.StatusOK)
		}), c.Policy, c.WarmUp, c.Rate, always(req))[0]

		start = time.Now()
		engine.Poisson(rng, end, c.Rate, engine.Constantly(c.Rate), func(at time.Duration) {
			offered.Add(at, 1)
			if !succeeded(client.RoundTrip(req)) {
				lost.Add(at, 1)
			}
		})
		r := run{
			ignored: attempts.Between(0, c.Closed) * c.Closed.Seconds(),
			offered: offered.Between(0, c.Closed) * c.Closed.Seconds(),
			lost:    engine.Total(lost.UpTo(end)), made: engine.Total(offered.UpTo(end)),
		}
		for _, perSecond := range attempts.UpTo(end)[c.Closed/OutageBin:] {
			r.peak = max(r.peak, perSecond/c.Rate)
		}
		return r
	})
	result := ThrottleResult{
		Ignored: engine.NumberOf(runs, func(r run) float64 { return r.ignored / r.offered }),
		Lost:    engine.NumberOf(runs, func(r run) float64 { return r.lost / r.made }),
	}
	for _, r := range runs {
		result.Peak = max(result.Peak, r.peak)
	}
	return result
}
