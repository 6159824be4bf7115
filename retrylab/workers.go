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

// Workers send one request after the other, through an outage. A worker whose request has failed begins the next one at
// once, so the outage hits a worker several times. The Rate of the Load is not used: it is what the workers make of
// the Latency.
type Workers struct {
	Load

	Workers int           // spread over the Processes. 0: 10
	For     time.Duration // the length of the outage. 0: 3 s
	After   time.Duration // from its end to the last request. 0: 5 s
}

// Name returns "workers".
func (w Workers) Name() string { return "workers" }

// Validate implements Experiment.
func (w Workers) Validate() error { return validate(w) }

// Run implements Experiment.
func (w Workers) Run(t *testing.T, policy func() retryhttp.Policy, others ...Policy) Result {
	t.Helper()
	return run(t, w, policy, others)
}

func (w Workers) plan() (plan, error) {
	w.Load = w.withDefaults()
	setDefault(&w.Workers, 10)
	setDefault(&w.For, 3*time.Second)
	setDefault(&w.After, 5*time.Second)
	w.Rate = float64(w.Workers) / w.Latency.Seconds()
	p := plan{
		Load: w.Load,
		reading: "A worker whose retries are used up takes its next request into the same outage. A policy that waits for the end of the " +
			"outage is hit once for each worker, so compare hit and lost together.",
		more:    []Setting{{"Workers", fmt.Sprint(w.Workers)}, {"For", w.For.String()}, {"After", w.After.String()}},
		unused:  []string{"Rate"},
		columns: []Column{colHit, colLost, colLater, colLoad, colPeakAfter, colP50, colP99, colFail50, colFail99},
		changes: []change{hold(2 * w.For)},
		better:  fewer(colLost),
	}
	from := p.led()
	p.trouble = span{from, from + w.For}
	p.measured = p.trouble
	p.end = p.trouble.to + w.After
	p.peaks, p.settled = span{p.trouble.to, p.end}, span{p.end - w.After/3, p.end}
	p.traffic = func(t *trial, _ *rand.Rand) {
		var wg sync.WaitGroup
		for worker := range w.Workers {
			client := t.to[worker%len(t.to)]
			wg.Go(func() {
				for at := time.Since(t.start); at < p.end && t.ctx.Err() == nil; at = time.Since(t.start) {
					t.requestFrom(client, at)
				}
			})
		}
		wg.Wait()
	}
	p.service = func(t *trial) http.RoundTripper {
		return engine.Server(func(req *http.Request) (*http.Response, error) {
			if t.trouble.has(t.attempted()) {
				return engine.AnswerAfter(refusalTakes, req, http.StatusServiceUnavailable)
			}
			return t.usually(req)
		})
	}
	return p, errors.Join(
		w.check(), within("Workers", float64(w.Workers), 1, 1e5), atLeast("For", w.For, Bin), atLeast("After", w.After, Bin),
	)
}
