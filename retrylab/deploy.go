package retrylab

import (
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// Deploy is a rolling deployment: the backends of a service are replaced one after the other. Answers
// under way are reset when their backend goes, and until the new backend is there, connections are
// refused. The load balancer does not notice: it picks a backend for each attempt at random.
type Deploy struct {
	Load

	Backends int           // 0: 4
	Down     time.Duration // each of them. 0: 2 s
	Pause    time.Duration // until the next one goes. 0: 1 s; negative: none
	After    time.Duration // from the end of the deployment to the last request. 0: 10 s
}

// Name returns "deploy".
func (d Deploy) Name() string { return "deploy" }

// Validate implements Experiment.
func (d Deploy) Validate() error { return validate(d) }

// Run implements Experiment.
func (d Deploy) Run(t *testing.T, policy func() retryhttp.Policy, others ...Policy) Result {
	t.Helper()
	return run(t, d, policy, others)
}

func (d Deploy) plan() (plan, error) {
	d.Load = d.withDefaults()
	setDefault(&d.Backends, 4)
	setDefault(&d.Down, 2*time.Second)
	setDefault(&d.Pause, time.Second)
	setDefault(&d.After, 10*time.Second)
	d.Pause = max(d.Pause, 0)
	p := plan{
		Load: d.Load,
		reading: "A deployment that nobody should notice: nearly all requests should succeed, since a retry is likely to meet " +
			"another backend. Without retries, each backend that is down fails its part of the requests.",
		more: []Setting{
			{"Backends", fmt.Sprint(d.Backends)}, {"Down", d.Down.String()}, {"Pause", d.Pause.String()},
			{"After", d.After.String()},
		},
		columns: []Column{colHit, colLost, colLater, colLoad, colPeakAfter, colP50, colP99, colFail50, colFail99},
		changes: []change{ratio(0.5)},
		better:  fewer(colLost),
	}
	from := p.led()
	p.trouble = span{from, from + time.Duration(d.Backends)*(d.Down+d.Pause)}
	p.measured = p.trouble
	p.end = p.trouble.to + d.After
	p.peaks, p.settled = span{p.trouble.to, p.end}, span{p.end - d.After/3, p.end}
	p.service = func(t *trial) http.RoundTripper {
		return engine.Server(func(req *http.Request) (*http.Response, error) { return d.serve(t, req) })
	}
	return p, errors.Join(
		d.check(), within("Backends", float64(d.Backends), 1, 1e4), atLeast("Down", d.Down, 1), atLeast("After", d.After, Bin),
	)
}

// serve is the service.
func (d Deploy) serve(t *trial, req *http.Request) (*http.Response, error) {
	at := t.attempted()
	backend := t.dice.IntN(d.Backends)
	goes := t.trouble.from + time.Duration(backend)*(d.Down+d.Pause)
	takes := t.dice.Exponential(t.Latency)
	switch {
	case at >= goes && at < goes+d.Down:
		return nil, dialError("dial", syscall.ECONNREFUSED)
	case at < goes && at+takes >= goes:
		if _, err := engine.AnswerAfter(goes-at, req, http.StatusOK); err != nil {
			return nil, err
		}
		return nil, dialError("read", syscall.ECONNRESET)
	}
	return engine.AnswerAfter(takes, req, http.StatusOK)
}
