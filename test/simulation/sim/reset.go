package sim

import (
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// A Reset is a connection that dies once, with all answers that are under way on it. The service
// is well: requests that are sent afterwards, on another connection, are answered. It is a
// retrylab.Reset.
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
	Hit  engine.Number // requests that were under way, in a run
	Lost engine.Number // the part of them that ended in a failure

	LostLater engine.Number // the part of the requests made afterwards that ended in a failure
	Load      engine.Number // attempts per request made afterwards
}

// Run runs the experiment.
func (e Reset) Run(t *testing.T) ResetResult {
	t.Helper()
	got := alone(t, retrylab.Reset{
		Load:  retrylab.Load{Rate: e.Rate, Uptime: e.WarmUp, Seeds: e.Seeds},
		Takes: e.Takes,
	}, retrylab.Policy{New: e.Policy})
	return ResetResult{engine.Number(got.Hit), engine.Number(got.Lost), engine.Number(got.LostLater), engine.Number(got.Load)}
}
