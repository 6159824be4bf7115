package retrylab

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// DeadBackend is a load balancer with some dead backends. It picks a backend for each attempt at random,
// so a retry is likely to meet a backend that is well. There is room for any number of attempts. For a
// backend of three that hangs, use Outage{Part: 1.0 / 3, Silent: true, Room: -1}, with an AttemptTimeout.
type DeadBackend struct {
	Load

	Backends int           // 0: 3
	Dead     int           // 0: 1
	Refuse   bool          // connections are refused, instead of a 503 of the load balancer
	For      time.Duration // from the backend's death to the last request. 0: 20 s
}

// Name returns "dead-backend".
func (d DeadBackend) Name() string { return "dead-backend" }

// Validate implements Experiment.
func (d DeadBackend) Validate() error { return validate(d) }

// Run implements Experiment.
func (d DeadBackend) Run(t *testing.T, policy func() retryhttp.Policy, others ...Policy) Result {
	t.Helper()
	return run(t, d, policy, others)
}

func (d DeadBackend) plan() (plan, error) {
	d.Load = d.withDefaults()
	setDefault(&d.Backends, 3)
	setDefault(&d.Dead, 1)
	setDefault(&d.For, 20*time.Second)
	p := plan{
		Load: d.Load,
		reading: "A retry is likely to help here, so a budget that refuses many retries costs requests for nothing. Compare " +
			"succeeded with the row without a budget, and see in attempts what it costs.",
		more: []Setting{
			{"Backends", fmt.Sprint(d.Backends)}, {"Dead", fmt.Sprint(d.Dead)}, {"Refuse", fmt.Sprint(d.Refuse)},
			{"For", d.For.String()},
		},
		columns:  []Column{colSucceeded, colLost, colLoad, colPeak, colP50, colP99, colFail50, colFail99},
		before:   d.Uptime,
		trouble:  span{0, d.For},
		measured: span{0, d.For},
		peaks:    span{0, d.For},
		settled:  span{d.For / 4, d.For},
		end:      d.For,
		changes:  []change{ratio(0.5)},
		better:   more(colSucceeded),
	}
	failing := float64(d.Dead) / float64(d.Backends)
	p.service = func(t *trial) http.RoundTripper {
		return engine.Server(func(req *http.Request) (*http.Response, error) {
			t.attempted()
			switch {
			case t.dice.Float64() >= failing:
				return t.usually(req)
			case d.Refuse:
				return nil, dialError("dial", syscall.ECONNREFUSED)
			}
			return engine.Answer(req, http.StatusServiceUnavailable)
		})
	}
	err := errors.Join(
		d.check(), atLeast("Backends", d.Backends, 1), atLeast("Dead", d.Dead, 0), atLeast("For", d.For, Bin),
	)
	if d.Dead > d.Backends {
		err = errors.Join(err, fmt.Errorf("%s is %d, and must be at most Backends, which is %d", "Dead", d.Dead, d.Backends))
	}
	return p, err
}

// dialError is an error of the network, as net.Dial and connections return it.
func dialError(op string, err error) error { return &net.OpError{Op: op, Net: "tcp", Err: err} }
