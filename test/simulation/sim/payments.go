package sim

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// Payments are slow requests that one process makes at the same moment, with an
// Idempotency-Key each, when their service has just failed. There is no other traffic.
// So no first attempt finds out that the service is back, and a success takes a while.
//
// The experiment is this project's own.
type Payments struct {
	Policy func() retryhttp.Policy
	Number int
	For    time.Duration // the length of the outage
	Takes  time.Duration // a payment that succeeds
	Seeds  int
}

// PaymentsResult is what became of the payments, of all runs.
type PaymentsResult struct {
	Paid  engine.Number   // the part that succeeded
	Took  []time.Duration // until it succeeded, in order
	Calls engine.Number   // attempts per payment
}

// Quantile returns how long a part of the payments that succeeded took at most.
func (r PaymentsResult) Quantile(part float64) time.Duration { return engine.Quantile(r.Took, part) }

func (p Payments) Run(t *testing.T) PaymentsResult {
	t.Helper()
	type run struct {
		took  []time.Duration
		calls float64
	}
	runs := engine.Runs(t, p.Seeds, func(t *testing.T, _ *rand.Rand) run {
		var r run
		var mu sync.Mutex
		start := time.Now()
		client := retryhttp.New(engine.Server(func(req *http.Request) (*http.Response, error) {
			mu.Lock()
			r.calls++
			mu.Unlock()
			if time.Since(start) < p.For {
				return engine.Answer(req, http.StatusServiceUnavailable)
			}
			time.Sleep(p.Takes)
			return engine.Answer(req, http.StatusOK)
		}), p.Policy())
		var wg sync.WaitGroup
		for range p.Number {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, serviceURL, nil)
			require.NoError(t, err)
			req.Header.Set("Idempotency-Key", retryhttp.RandomKey(req))
			wg.Go(func() {
				if succeeded(client.RoundTrip(req)) {
					mu.Lock()
					defer mu.Unlock()
					r.took = append(r.took, time.Since(start))
				}
			})
		}
		wg.Wait()
		return r
	})

	var result PaymentsResult
	for _, r := range runs {
		result.Took = append(result.Took, r.took...)
	}
	slices.Sort(result.Took)
	result.Paid = engine.NumberOf(runs, func(r run) float64 { return float64(len(r.took)) / float64(p.Number) })
	result.Calls = engine.NumberOf(runs, func(r run) float64 { return r.calls / float64(p.Number) })
	return result
}
