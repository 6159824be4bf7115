package retrylab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// Cron is a fleet of processes that start in the same moment, as a crontab has it. Each makes its requests one after the
// other, and ends. The service takes so many attempts a second, and answers the others with 503. The Rate and the Uptime of
// the Load are not used.
type Cron struct {
	Load // 0 Processes mean 200

	Requests int     // of each process. 0: 3
	Takes    float64 // attempts per second that the service takes. 0: a tenth of all requests
}

// Name returns "cron".
func (c Cron) Name() string { return "cron" }

// Validate implements Experiment.
func (c Cron) Validate() error { return validate(c) }

// Run implements Experiment.
func (c Cron) Run(t *testing.T, policy func() retryhttp.Policy, others ...Policy) Result {
	t.Helper()
	return run(t, c, policy, others)
}

func (c Cron) plan() (plan, error) {
	setDefault(&c.Processes, 200)
	c.Load = c.withDefaults()
	setDefault(&c.Requests, 3)
	all := float64(c.Requests * c.Processes)
	setDefault(&c.Takes, all/10)
	if c.Takes > 0 { // else Takes is named below
		c.Rate = c.Takes
	}
	shortest := all / c.Rate // seconds for all requests
	end := time.Duration(2*min(shortest, longest.Seconds())+1) * time.Second
	p := plan{
		Load: c.Load,
		reading: "Processes that have just started have no successes to pay for retries, and all come back at once. Lost should be small, " +
			"and took near requests divided by what the service takes. Jitter in the crontab helps more than any policy.",
		more:     []Setting{{"Requests", fmt.Sprint(c.Requests)}, {"Takes", fmt.Sprintf("%g/s", c.Takes)}},
		unused:   []string{"Rate", "Uptime"},
		columns:  []Column{colLost, colLoad, colTook, colPeak, colP50, colP99, colFail50, colFail99},
		trouble:  span{0, forever},
		measured: span{0, end},
		peaks:    span{0, end},
		settled:  span{0, end},
		end:      end,
		everyone: true,
		changes:  []change{hold(30 * time.Second), backoff(5*time.Second, 30*time.Second), bursts(30), persistence(10, 5*time.Second, 30*time.Second)},
		better:   fewer(colLost),
	}
	p.traffic = func(t *trial, _ *rand.Rand) {
		var wg sync.WaitGroup
		for _, process := range t.to {
			wg.Go(func() {
				for range c.Requests {
					t.requestFrom(process, time.Since(t.start))
				}
			})
		}
		wg.Wait()
	}
	p.service = func(t *trial) http.RoundTripper {
		work := engine.Rested(c.Takes)
		return engine.Server(func(req *http.Request) (*http.Response, error) {
			if !work.Take(t.attempted(), c.Takes) {
				return engine.Answer(req, http.StatusServiceUnavailable)
			}
			return t.usually(req)
		})
	}
	return p, errors.Join(
		c.check(), within("Requests", float64(c.Requests), 1, 1e4), positive("Takes", c.Takes, 1e6),
	)
}
