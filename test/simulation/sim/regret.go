package sim

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// A Regret is one stretch of requests to a service with outages, run twice: without a Gate and
// with one. Both runs have the same arrivals, the same outages, and the same jitter for the same
// retry of the same request. So a request that only one run loses is the Gate's doing, by itself
// or through the requests that the Gate let go first.
//
// The experiment is this project's own.
type Regret struct {
	Processes int
	Rate      float64          // requests per second, of all processes
	Budget    retryhttp.Budget // of a process; nil: the default
	Down      []Span           // the outages
	Timeout   time.Duration    // of a request, by its context. 0: none
	WarmUp    time.Duration    // of health, which fills the budgets
	Until     time.Duration    // from then to the last request
	Seeds     int
}

// Span is a time, counted from the end of the WarmUp.
type Span struct{ From, To time.Duration }

// RegretResult counts requests, of all runs.
type RegretResult struct {
	Hit           int // by an outage at their first attempt
	Without, With int // lost without a Gate, and with a Gate
	Only          int // lost with a Gate only
}

func (r Regret) Run(t *testing.T) RegretResult {
	t.Helper()
	type outcome struct{ ok, hit bool }
	alone, gated := &retryhttp.Gate{Hold: -1}, (*retryhttp.Gate)(nil)
	var runs [2][][]outcome
	for i, gate := range []*retryhttp.Gate{alone, gated} {
		runs[i] = engine.Runs(t, r.Seeds, func(t *testing.T, rng *rand.Rand) []outcome {
			var start time.Time
			clients := engine.Healthy(r.Processes, engine.Server(func(req *http.Request) (*http.Response, error) {
				if r.down(time.Since(start)) {
					return engine.Answer(req, http.StatusServiceUnavailable)
				}
				time.Sleep(outageLatency)
				return engine.Answer(req, http.StatusOK)
			}), func() retryhttp.Policy { return retryhttp.Policy{Budget: r.Budget, Gate: gate} },
				r.WarmUp, r.Rate, always(get(t)))
			start = time.Now()

			var mu sync.Mutex
			var outcomes []outcome
			var arrivals int
			jitters, pick := fork(rng), fork(rng)
			engine.Poisson(rng, r.Until, r.Rate, engine.Constantly(r.Rate), func(at time.Duration) {
				// Arrivals do not coincide, and so this order is the same in both runs.
				mu.Lock()
				i := arrivals
				arrivals++
				jitter, client := jitters.Uint64(), clients[pick.IntN(len(clients))]
				outcomes = append(outcomes, outcome{})
				mu.Unlock()

				ctx := retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) { p.Backoff = fullJitterFrom(jitter) })
				if r.Timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, r.Timeout)
					defer cancel()
				}
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, serviceURL, nil)
				require.NoError(t, err)
				ok := succeeded(client.RoundTrip(req))
				mu.Lock()
				defer mu.Unlock()
				outcomes[i] = outcome{ok, r.down(at)}
			})
			return outcomes
		})
	}

	var result RegretResult
	for seed := range r.Seeds {
		without, with := runs[0][seed], runs[1][seed]
		require.Len(t, with, len(without), "the same requests")
		for i := range without {
			if without[i].hit {
				result.Hit++
			}
			if !without[i].ok {
				result.Without++
			}
			if !with[i].ok {
				result.With++
			}
			if without[i].ok && !with[i].ok {
				result.Only++
			}
		}
	}
	return result
}

func (r Regret) down(at time.Duration) bool {
	for _, s := range r.Down {
		if at >= s.From && at < s.To {
			return true
		}
	}
	return false
}

// fullJitterFrom is the default Backoff with jitter from a seed. The same retry always gets the
// same jitter, whatever came before it.
func fullJitterFrom(seed uint64) retryhttp.Backoff {
	limit := retryhttp.Exponential(250*time.Millisecond, 30*time.Second)
	return func(n int, prev time.Duration) time.Duration {
		u := rand.New(rand.NewPCG(seed, uint64(n))).Float64()
		return time.Duration(u * float64(limit(n, prev)))
	}
}
