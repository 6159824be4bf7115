package sim

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
)

// A Reset is a connection that dies once, with all answers that are under way on it. The service
// is well: requests that are sent afterwards, on another connection, are answered.
//
// The experiment is this project's own.
type Reset struct {
	Policy func() retryhttp.Policy // of the process
	Rate   float64                 // requests per second
	Takes  time.Duration           // each answer
	WarmUp time.Duration           // of answers, before the connection dies
	Seeds  int
}

// ResetResult is what the connection's end cost.
type ResetResult struct {
	Hit  Mean // requests that were under way, in a run
	Lost Mean // the part of them that ended in a failure

	LostLater Mean // requests that were made afterwards and ended in a failure, in a run
	Load      Mean // attempts per request made afterwards, in the time of two answers
}

func (e Reset) Run(t *testing.T) ResetResult {
	t.Helper()
	type run struct{ hit, lost, lostLater, load float64 }
	runs := Runs(t, e.Seeds, func(t *testing.T, rng *rand.Rand) run {
		var mu sync.Mutex
		var r run
		var attempts, requests float64 // from the reset on
		start, dead := time.Now(), make(chan struct{})
		ends := e.Takes + e.WarmUp // the first answers are there after Takes
		client := retryhttp.New(server(func(req *http.Request) (*http.Response, error) {
			if time.Since(start) < ends {
				select {
				case <-time.After(e.Takes):
				case <-dead:
					return nil, syscall.ECONNRESET
				}
				return answer(req, http.StatusOK)
			}
			mu.Lock()
			attempts++
			mu.Unlock()
			time.Sleep(e.Takes)
			return answer(req, http.StatusOK)
		}), e.Policy())
		time.AfterFunc(ends, func() { close(dead) })
		req := get(t)
		Poisson(rng, ends+2*e.Takes, e.Rate, Constantly(e.Rate), func(at time.Duration) {
			resp, err := client.RoundTrip(req)
			mu.Lock()
			defer mu.Unlock()
			ok := succeeded(resp, err)
			if at >= ends {
				requests++
				if !ok {
					r.lostLater++
				}
				return
			}
			if !ok {
				r.lost++
			}
			if !ok || retryhttp.OutcomeOf(resp).Attempts > 1 {
				r.hit++
			}
		})
		r.load = attempts / requests
		return r
	})
	return ResetResult{
		Hit:       MeanOf(runs, func(r run) float64 { return r.hit }),
		Lost:      MeanOf(runs, func(r run) float64 { return r.lost / max(r.hit, 1) }),
		LostLater: MeanOf(runs, func(r run) float64 { return r.lostLater }),
		Load:      MeanOf(runs, func(r run) float64 { return r.load }),
	}
}
