package sim

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
)

// A Quota is a service that allows a number of attempts in each second. It answers the others with
// a 429 and a Retry-After of a second. The workers of one process share a list of jobs: each takes
// the next job as soon as its last job has ended, however that ended.
//
// The experiment is this project's own.
type Quota struct {
	Policy  func() retryhttp.Policy // of the process, which is fresh
	Allowed int                     // attempts in a second, from the start of that second
	Workers int
	Jobs    int
	Seeds   int
}

// quotaRefusal is how long a refusal takes. It is quick to make.
const quotaRefusal = time.Millisecond

// QuotaResult is what became of the jobs.
type QuotaResult struct {
	Lost Mean // the part of the jobs that ended in a failure
	Load Mean // attempts per job
	Took Mean // seconds until the last job ended
}

func (q Quota) Run(t *testing.T) QuotaResult {
	t.Helper()
	type run struct{ lost, load, took float64 }
	runs := Runs(t, q.Seeds, func(t *testing.T, rng *rand.Rand) run {
		start, latency, req := time.Now(), newDice(rng), get(t)
		window := quotaWindow{allowed: q.Allowed, start: start}
		var attempts, taken, lost atomic.Int64
		client := retryhttp.New(server(func(req *http.Request) (*http.Response, error) {
			attempts.Add(1)
			if !window.take() {
				time.Sleep(quotaRefusal)
				resp, err := answer(req, http.StatusTooManyRequests)
				resp.Header = http.Header{"Retry-After": {"1"}}
				return resp, err
			}
			time.Sleep(latency.exponential(outageLatency))
			return answer(req, http.StatusOK)
		}), q.Policy())

		var wg sync.WaitGroup
		for range q.Workers {
			wg.Go(func() {
				for taken.Add(1) <= int64(q.Jobs) {
					if !succeeded(client.RoundTrip(req)) {
						lost.Add(1)
					}
				}
			})
		}
		wg.Wait()
		jobs := float64(q.Jobs)
		return run{float64(lost.Load()) / jobs, float64(attempts.Load()) / jobs, time.Since(start).Seconds()}
	})
	return QuotaResult{
		Lost: MeanOf(runs, func(r run) float64 { return r.lost }),
		Load: MeanOf(runs, func(r run) float64 { return r.load }),
		Took: MeanOf(runs, func(r run) float64 { return r.took }),
	}
}

// quotaWindow counts the attempts of a second.
type quotaWindow struct {
	allowed int
	start   time.Time

	mu     sync.Mutex
	second int // since the start
	taken  int // attempts in that second
}

// take reports whether one more attempt is allowed in this second.
func (w *quotaWindow) take() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if second := int(time.Since(w.start) / time.Second); second != w.second {
		w.second, w.taken = second, 0
	}
	if w.taken == w.allowed {
		return false
	}
	w.taken++
	return true
}
