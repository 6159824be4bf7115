package sim

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
)

// An Overcommit is a service that is asked for more than it can do, for as long as the experiment
// lasts. It rejects the rest with a 503, and a rejection costs a part of what a success costs. So
// each retry takes something from the requests that could be served.
type Overcommit struct {
	Policy    func() retryhttp.Policy
	Processes int
	Rate      float64 // requests per second, of all processes
	Capacity  float64 // successes per second, if nothing is rejected
	Rejection float64 // the cost of a rejection, as a part of a success
	For       time.Duration
	Seeds     int
}

// Run returns the successes per second, in the second half of the experiment.
func (o Overcommit) Run(t *testing.T) Mean {
	t.Helper()
	return MeanOf(Runs(t, o.Seeds, func(t *testing.T, rng *rand.Rand) float64 {
		s := overcommitted{Overcommit: o, dice: newDice(rng), at: time.Now()}
		req, pick := get(t), newDice(rng)
		clients := healthy(o.Processes, server(s.serve), o.Policy, time.Minute, o.Rate, always(req))
		s.at = time.Now()
		served := Series{Width: time.Second}
		Poisson(rng, o.For, o.Rate, Constantly(o.Rate), func(at time.Duration) {
			if resp, err := clients[pick.intN(len(clients))].RoundTrip(req); succeeded(resp, err) {
				served.Add(at, 1)
			}
		})
		return served.Between(o.For/2, o.For)
	}), func(goodput float64) float64 { return goodput })
}

type overcommitted struct {
	Overcommit
	dice *dice

	mu   sync.Mutex
	room float64
	at   time.Time
}

func (s *overcommitted) serve(req *http.Request) (*http.Response, error) {
	if !s.take(time.Now()) {
		return answer(req, http.StatusServiceUnavailable)
	}
	time.Sleep(s.dice.exponential(outageLatency))
	return answer(req, http.StatusOK)
}

// take reports whether the service can take another attempt. What it could have done in the last
// tenth of a second, it can do at once.
func (s *overcommitted) take(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room = min(s.room+s.Capacity*now.Sub(s.at).Seconds(), s.Capacity/10)
	s.at = now
	if s.room < 1 {
		s.room -= s.Rejection
		return false
	}
	s.room--
	return true
}
