package retrylab

import (
	"errors"
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

// RateLimit is a service that allows so many attempts in each second, and answers the others with 429 and
// "Retry-After: 1", unless Bare is set. Workers share a list of jobs: each takes the next job as soon as its
// last job has ended, however that ended. Each job is one request. The Rate and the Uptime of the Load are not used,
// except for Allowed: the processes have just started.
type RateLimit struct {
	Load

	Allowed int // attempts in each second. 0: a fifth of the Rate, and at least 1
	Workers int // spread over the Processes. 0: 10
	Jobs    int // 0: 500

	// Bare leaves the Retry-After out.
	Bare bool
}

// refusalTakes is how long a refusal takes. It is quick to make.
const refusalTakes = time.Millisecond

// Name returns "rate-limit".
func (r RateLimit) Name() string { return "rate-limit" }

// Validate implements Experiment.
func (r RateLimit) Validate() error { return validate(r) }

// Run implements Experiment.
func (r RateLimit) Run(t *testing.T, policy func() retryhttp.Policy, others ...Policy) Result {
	t.Helper()
	return run(t, r, policy, others)
}

func (r RateLimit) plan() (plan, error) {
	r.Load = r.withDefaults()
	setDefault(&r.Allowed, max(int(r.Rate/5), 1))
	setDefault(&r.Workers, 10)
	setDefault(&r.Jobs, 500)
	// The shortest time in which all jobs could be done, twice.
	end := 2 * (time.Duration(r.Jobs/max(r.Allowed, 1)) + 1) * time.Second
	r.Rate = float64(r.Allowed)
	p := plan{
		Load: r.Load,
		reading: "Workers without retries run through their jobs in a moment and lose most. A retry that waits as long as the " +
			"service asks slows its worker down to the allowed rate. Without a Retry-After it waits too short at first. Lost should be small, and took near jobs divided by the allowed rate.",
		more: []Setting{
			{"Allowed", fmt.Sprintf("%d/s", r.Allowed)}, {"Workers", fmt.Sprint(r.Workers)}, {"Jobs", fmt.Sprint(r.Jobs)}, {"Bare", fmt.Sprint(r.Bare)},
		},
		unused:   []string{"Rate", "Uptime"},
		columns:  []Column{colLost, colLoad, colTook, colPeak, colP50, colP99, colFail50, colFail99},
		trouble:  span{0, forever},
		measured: span{0, end},
		peaks:    span{0, end},
		settled:  span{0, end},
		end:      end,
		everyone: true,
		traffic:  r.work,
		changes:  []change{hold(30 * time.Second), asksFor(time.Second), bursts(30), persistence(10, 5*time.Second, 30*time.Second)},
		better:   fewer(colLost),
	}
	p.service = func(t *trial) http.RoundTripper {
		window := &engine.Window{Allowed: r.Allowed}
		return engine.Server(func(req *http.Request) (*http.Response, error) {
			if window.Take(t.attempted()) {
				return t.usually(req)
			}
			resp, err := engine.AnswerAfter(refusalTakes, req, http.StatusTooManyRequests)
			if err == nil && !r.Bare {
				resp.Header.Set("Retry-After", "1")
			}
			return resp, err
		})
	}
	return p, errors.Join(
		r.check(), atLeast("Allowed", r.Allowed, 1), atLeast("Workers", r.Workers, 1), atLeast("Jobs", r.Jobs, 1),
	)
}

// work has the workers do the jobs.
func (r RateLimit) work(t *trial, _ *rand.Rand) {
	var taken atomic.Int64
	var wg sync.WaitGroup
	for worker := range r.Workers {
		client := t.to[worker%len(t.to)]
		wg.Go(func() {
			for taken.Add(1) <= int64(r.Jobs) && t.ctx.Err() == nil {
				t.requestFrom(client, time.Since(t.start))
			}
		})
	}
	wg.Wait()
}
