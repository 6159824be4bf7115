package sim

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// A Loop is the workers of one process that send one request after the other to a port that is refused.
// A refusal takes no time. So nothing but its retries' waits holds a worker back.
//
// The experiment is this project's own.
type Loop struct {
	Policy  func() retryhttp.Policy // of the process, which is fresh
	Workers int
	Takes   time.Duration // how long a refusal takes. Requests without retries need more than 0, or time stands still
	From    time.Duration // attempts are counted from then
	For     time.Duration // from the start to the end of a run
	Seeds   int
}

// LoopResult is what the workers did.
type LoopResult struct {
	PerSecond engine.Number // attempts of a worker
	Load      engine.Number // attempts per request, from the start
}

func (r LoopResult) String() string {
	return fmt.Sprintf("%v attempts a second, load %v", r.PerSecond, r.Load)
}

// hot is how many attempts of a worker per second, over a run, end this run: time may stand still.
const hot = 1100

func (l Loop) Run(t *testing.T) LoopResult {
	t.Helper()
	type run struct{ counted, attempts, requests atomic.Int64 }
	runs := engine.Runs(t, l.Seeds, func(t *testing.T, _ *rand.Rand) *run {
		r, start := new(run), time.Now()
		client := retryhttp.New(engine.Server(func(*http.Request) (*http.Response, error) {
			r.attempts.Add(1)
			if time.Since(start) >= l.From {
				r.counted.Add(1)
			}
			time.Sleep(l.Takes)
			return nil, refused()
		}), l.Policy())
		req, enough := get(t), int64(hot*l.Workers)*int64(l.For/time.Second)
		var ended sync.WaitGroup
		for range l.Workers {
			ended.Go(func() {
				for time.Since(start) < l.For && r.attempts.Load() < enough {
					_, _ = client.RoundTrip(req)
					r.requests.Add(1)
				}
			})
		}
		ended.Wait()
		if n := r.attempts.Load(); n >= enough {
			t.Errorf("%d attempts in %v", n, time.Since(start))
		}
		return r
	})
	counted := float64(l.Workers) * (l.For - l.From).Seconds()
	return LoopResult{
		PerSecond: engine.NumberOf(runs, func(r *run) float64 { return float64(r.counted.Load()) / counted }),
		Load:      engine.NumberOf(runs, func(r *run) float64 { return float64(r.attempts.Load()) / float64(r.requests.Load()) }),
	}
}
