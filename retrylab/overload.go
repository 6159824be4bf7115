package retrylab

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// Overload is a service that gets more than it can do. It answers the rest with 503, and a rejection is
// work, too: each attempt that it rejects leaves less for the attempts that it serves.
type Overload struct {
	Load

	// Room is how many attempts the service can serve if it rejects none, as a multiple of the Rate. 0
	// means 1/1.2: it gets a fifth more than it can do.
	Room float64

	// Cost is the work of a rejection, as a part of the work of a success. 0 means 0.3, and a negative
	// value means none.
	Cost float64

	For time.Duration // from the beginning of the overload to the last request. 0: 30 s
}

// Name returns "overload".
func (o Overload) Name() string { return "overload" }

// Validate implements Experiment.
func (o Overload) Validate() error { return validate(o) }

// Run implements Experiment.
func (o Overload) Run(t *testing.T, policy func() retryhttp.Policy, others ...Policy) Result {
	t.Helper()
	return run(t, o, policy, others)
}

func (o Overload) plan() (plan, error) {
	o.Load = o.withDefaults()
	setDefault(&o.Room, 1/1.2)
	setDefault(&o.Cost, 0.3)
	setDefault(&o.For, 30*time.Second)
	cost := max(o.Cost, 0)
	p := plan{
		Load: o.Load,
		reading: "Goodput is successes per request. No retry can raise it above the row without retries, because the service " +
			"is full: a policy should come close to that row. Attempts above 1 are work that the service does for nothing.",
		more: []Setting{
			{"Room", fmt.Sprintf("%.3g", o.Room)}, {"Cost", fmt.Sprint(cost)}, {"For", o.For.String()},
		},
		columns:  []Column{colGoodput, colSucceeded, colLoad, colPeak, colP50, colP99, colFail50, colFail99},
		before:   o.Uptime,
		trouble:  span{0, o.For},
		measured: span{0, o.For},
		peaks:    span{0, o.For},
		settled:  span{o.For / 4, o.For}, // before, the budgets spend what they have saved
		end:      o.For,
		changes:  []change{ratio(0.1)},
		better:   more(colGoodput),
	}
	p.service = func(t *trial) http.RoundTripper {
		work := &engine.Workload{Cost: cost}
		return engine.Server(func(req *http.Request) (*http.Response, error) {
			if !work.Take(t.attempted(), o.Room*o.Rate) {
				return engine.Answer(req, http.StatusServiceUnavailable)
			}
			return t.usually(req)
		})
	}
	return p, errors.Join(
		o.check(), positive("Room", o.Room, 1e3), within("Cost", cost, 0, 1e3), atLeast("For", o.For, Bin),
	)
}
