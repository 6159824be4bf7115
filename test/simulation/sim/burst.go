package sim

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// A Burst is some requests at once of one process or of several, and no more until the next burst: a
// command, a cron job, a page that asks a service twice. Nothing but their own retries shows these
// processes how the service is, and few successes earn tokens.
//
// Chance is in the backoffs alone, which have no seed. The experiment is this project's own.
type Burst struct {
	Policy    func() retryhttp.Policy // of a process
	Service   func() engine.Server    // makes the service of a run, whose time begins then
	Processes int                     // in a burst. 0: 1
	Requests  int                     // of a process, in a burst
	Bursts    int                     // 0: 1
	Every     time.Duration           // from a burst to the next
	Fresh     bool                    // the processes of each burst have just started
	Poll      time.Duration           // so long after a burst, each process asks for pollPath. 0: it does not
	Seeds     int
}

// pollPath is on the same host, and nothing counts its requests.
const pollPath = "/poll"

// BurstResult is what became of the requests.
type BurstResult struct {
	Lost  engine.Number   // the part of the requests that ended in a failure
	Load  engine.Number   // attempts per request
	Took  []time.Duration // how long each request took, in order, over all runs
	Later []time.Duration // the same, without the first burst of each run
}

func (r BurstResult) String() string {
	return fmt.Sprintf("lost %v, load %v, p50 %v, mean %v", r.Lost, r.Load, engine.Quantile(r.Took, 0.5), meanTime(r.Took))
}

// meanTime is the mean of the times, or 0 if there are none.
func meanTime(times []time.Duration) time.Duration {
	sum := time.Duration(0)
	for _, d := range times {
		sum += d
	}
	return sum / time.Duration(max(len(times), 1))
}

// burstRun is one run of a Burst.
type burstRun struct {
	base     engine.Server
	attempts atomic.Int64

	mu          sync.Mutex
	made, lost  float64
	took, later []time.Duration
}

func (b Burst) Run(t *testing.T) BurstResult {
	t.Helper()
	runs := engine.Runs(t, b.Seeds, func(t *testing.T, _ *rand.Rand) *burstRun {
		r := &burstRun{base: b.Service()}
		b.play(t, r)
		return r
	})
	result := BurstResult{
		Lost: engine.NumberOf(runs, func(r *burstRun) float64 { return r.lost / r.made }),
		Load: engine.NumberOf(runs, func(r *burstRun) float64 { return float64(r.attempts.Load()) / r.made }),
	}
	for _, r := range runs {
		result.Took = append(result.Took, r.took...)
		result.Later = append(result.Later, r.later...)
	}
	slices.Sort(result.Took)
	slices.Sort(result.Later)
	return result
}

// play returns when all requests have ended.
func (b Burst) play(t *testing.T, r *burstRun) {
	req, poll := get(t), get(t)
	poll.URL.Path = pollPath
	start := func() []*retryhttp.Transport { return engine.Processes(max(b.Processes, 1), r, b.Policy) }
	processes := start()
	var ended sync.WaitGroup
	for i := range max(b.Bursts, 1) {
		if i > 0 {
			time.Sleep(b.Every)
			if b.Fresh {
				processes = start()
			}
		}
		for _, p := range processes {
			for range b.Requests {
				ended.Go(func() { r.request(p, req, i > 0) })
			}
			if b.Poll > 0 {
				ended.Go(func() {
					time.Sleep(b.Poll)
					_, _ = p.RoundTrip(poll)
				})
			}
		}
	}
	ended.Wait()
}

func (r *burstRun) request(client http.RoundTripper, req *http.Request, later bool) {
	begin := time.Now()
	ok := succeeded(client.RoundTrip(req))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made++
	if !ok {
		r.lost++
	}
	r.took = append(r.took, time.Since(begin))
	if later {
		r.later = append(r.later, time.Since(begin))
	}
}

// RoundTrip counts an attempt that is not a poll's.
func (r *burstRun) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Path != pollPath {
		r.attempts.Add(1)
	}
	return r.base(req)
}
