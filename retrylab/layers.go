package retrylab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// Layers are services in a row, each of which calls the next through a Transport of its own, with the
// policy. The last one calls a server that fails for a while. No service sees the retries of the services
// below it: each answers with the status that it got.
type Layers struct {
	Load

	Services int           // Transports in a row; the Processes are clients of the first. 0: 3
	Part     float64       // of the server's attempts that fail, at random. 0: all
	For      time.Duration // 0: 20 s
	After    time.Duration // from then to the last request. 0: 10 s
}

// Name returns "layers".
func (l Layers) Name() string { return "layers" }

// Validate implements Experiment.
func (l Layers) Validate() error { return validate(l) }

// Run implements Experiment.
func (l Layers) Run(t *testing.T, policy func() retryhttp.Policy, others ...Policy) Result {
	t.Helper()
	return run(t, l, policy, others)
}

func (l Layers) plan() (plan, error) {
	l.Load = l.withDefaults()
	setDefault(&l.Services, 3)
	setDefault(&l.Part, 1)
	setDefault(&l.For, 20*time.Second)
	setDefault(&l.After, 10*time.Second)
	p := plan{
		Load: l.Load,
		reading: "Retries of layers multiply: three layers of 4 attempts make up to 64 of one request. Attempts are at the " +
			"server per request at the top, in the trouble. A budget in each layer should hold that near 1 when all attempts fail.",
		more: []Setting{
			{"Services", fmt.Sprint(l.Services)}, {"Part", fmt.Sprint(l.Part)}, {"For", l.For.String()},
			{"After", l.After.String()},
		},
		columns: []Column{colHit, colLost, colLater, colLoad, colPeakAfter, colP50, colP99, colFail50, colFail99},
		clients: l.clients,
	}
	from := p.led()
	p.trouble = span{from, from + l.For}
	p.measured = p.trouble
	p.end = p.trouble.to + l.After
	p.peaks, p.settled = span{p.trouble.to, p.end}, span{p.end - l.After/3, p.end}
	p.service = func(t *trial) http.RoundTripper {
		return engine.Server(func(req *http.Request) (*http.Response, error) {
			if at := t.attempted(); t.trouble.has(at) && (l.Part == 1 || t.dice.Float64() < l.Part) {
				return engine.Answer(req, http.StatusServiceUnavailable)
			}
			return t.usually(req)
		})
	}
	return p, errors.Join(
		l.check(), within("Services", float64(l.Services), 1, 10), within("Part", l.Part, 0, 1), atLeast("For", l.For, Bin),
		atLeast("After", l.After, Bin),
	)
}

// clients puts the services above the server. Only the first has many processes before it.
func (l Layers) clients(t *trial, server http.RoundTripper) []http.RoundTripper {
	next := server
	for range l.Services - 1 {
		next = &layer{t, t.healthy(1, next)[0]}
	}
	return t.healthy(t.Processes, next)
}

// layer answers a request with the answer of the service below it. It is another process, so its answer
// carries nothing of the Transport that it used except the status, and its context has only the deadline.
type layer struct {
	t    *trial
	next http.RoundTripper
}

func (l *layer) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(l.t.ctx)
	defer cancel()
	defer context.AfterFunc(req.Context(), cancel)()
	resp, err := l.next.RoundTrip(l.t.newRequest(ctx))
	if err != nil {
		if req.Context().Err() != nil {
			return nil, req.Context().Err()
		}
		return engine.Answer(req, http.StatusBadGateway)
	}
	_ = resp.Body.Close()
	return engine.Answer(req, resp.StatusCode)
}
