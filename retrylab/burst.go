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

// Burst is processes that have just started, and make all their requests at once, as the service goes down. They make no
// others. The Rate and the Uptime of the Load are not used.
type Burst struct {
	Load

	Requests int           // of all processes together. 0: 1,000
	For      time.Duration // the length of the outage. 0: 200 ms
}

// Name returns "burst".
func (b Burst) Name() string { return "burst" }

// Validate implements Experiment.
func (b Burst) Validate() error { return validate(b) }

// Run implements Experiment.
func (b Burst) Run(t *testing.T, policy func() retryhttp.Policy, others ...Policy) Result {
	t.Helper()
	return run(t, b, policy, others)
}

func (b Burst) plan() (plan, error) {
	b.Load = b.withDefaults()
	setDefault(&b.Requests, 1000)
	setDefault(&b.For, 200*time.Millisecond)
	b.Rate = float64(b.Requests)
	p := plan{
		Load: b.Load,
		reading: "A process that has just started has earned nothing. Lost are requests that no token and no success has brought " +
			"through. The peak is the fullest 100 ms after the outage, as a part of all requests in a second.",
		more:     []Setting{{"Requests", fmt.Sprint(b.Requests)}, {"For", b.For.String()}},
		unused:   []string{"Rate", "Uptime"},
		columns:  []Column{colLost, colLoad, colPeakAfter, colTook, colP50, colP99, colFail50, colFail99},
		trouble:  span{0, forever},
		measured: span{0, b.For + 10*time.Second},
		peaks:    span{(b.For + Bin - 1) / Bin * Bin, b.For + 10*time.Second},
		settled:  span{0, b.For + 10*time.Second},
		end:      b.For + 10*time.Second,
		everyone: true,
		changes:  []change{bursts(b.Requests), hold(30 * time.Second)},
		better:   fewer(colLost),
	}
	p.traffic = func(t *trial, _ *rand.Rand) {
		var wg sync.WaitGroup
		for i := range b.Requests {
			wg.Go(func() { t.requestFrom(t.to[i%len(t.to)], time.Since(t.start)) })
		}
		wg.Wait()
	}
	p.service = func(t *trial) http.RoundTripper {
		return engine.Server(func(req *http.Request) (*http.Response, error) {
			if t.attempted() < b.For {
				return engine.Answer(req, http.StatusServiceUnavailable)
			}
			return t.usually(req)
		})
	}
	return p, errors.Join(b.check(), within("Requests", float64(b.Requests), 1, 1e5), atLeast("For", b.For, 1))
}
