package sim

import (
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// Seldom is a process that makes one request in a long time, to a service that fails a part of
// the attempts. Such a process earns few tokens.
//
// The experiment is this project's own.
type Seldom struct {
	Policy   func() retryhttp.Policy // of the process, which is fresh
	Every    time.Duration           // from the end of a request to the next
	Requests int
	Part     float64 // of the attempts fails
	Seeds    int
}

// SeldomResult is what became of the requests.
type SeldomResult struct {
	Hit  engine.Number // requests whose first attempt failed, in a run
	Lost float64       // the part of them that ended in a failure, over all runs
	Load engine.Number // attempts per request
}

func (s Seldom) Run(t *testing.T) SeldomResult {
	t.Helper()
	type run struct{ hit, lost, attempts float64 }
	runs := engine.Runs(t, s.Seeds, func(t *testing.T, rng *rand.Rand) run {
		var r run
		req, service := get(t), flaky{p: s.Part, latency: outageLatency, rng: rng}
		client := retryhttp.New(engine.Server(func(req *http.Request) (*http.Response, error) {
			r.attempts++
			return service.RoundTrip(req)
		}), s.Policy())
		for range s.Requests {
			time.Sleep(s.Every)
			resp, err := client.RoundTrip(req)
			ok := succeeded(resp, err)
			if !ok {
				r.lost++
			}
			if !ok || retryhttp.OutcomeOf(resp).Attempts > 1 {
				r.hit++
			}
		}
		return r
	})
	hit := engine.NumberOf(runs, func(r run) float64 { return r.hit })
	return SeldomResult{
		Hit:  hit,
		Lost: engine.NumberOf(runs, func(r run) float64 { return r.lost }).Mean / max(hit.Mean, 1),
		Load: engine.NumberOf(runs, func(r run) float64 { return r.attempts / float64(s.Requests) }),
	}
}
