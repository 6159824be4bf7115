package retrylab

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// Flapping is a service that goes down again and again, for a part of each period. There is room for any number of
// attempts.
type Flapping struct {
	Load

	Down  time.Duration // in each period, from its beginning. 0: 500 ms
	Every time.Duration // the period. 0: 1 s
	For   time.Duration // from the first time that it is down to the last request. 0: 20 s
}

// Name returns "flapping".
func (f Flapping) Name() string { return "flapping" }

// Validate implements Experiment.
func (f Flapping) Validate() error { return validate(f) }

// Run implements Experiment.
func (f Flapping) Run(t *testing.T, policy func() retryhttp.Policy, others ...Policy) Result {
	t.Helper()
	return run(t, f, policy, others)
}

func (f Flapping) plan() (plan, error) {
	f.Load = f.withDefaults()
	setDefault(&f.Down, 500*time.Millisecond)
	setDefault(&f.Every, time.Second)
	setDefault(&f.For, 20*time.Second)
	p := plan{
		Load: f.Load,
		reading: "The service is up just when a retry may be held, and down when it is sent. Compare lost with the row without a budget: " +
			"with a deadline that is shorter than Hold, a Gate may lose what it did not hold in time.",
		more:    []Setting{{"Down", f.Down.String()}, {"Every", f.Every.String()}, {"For", f.For.String()}},
		columns: []Column{colHit, colLost, colLoad, colPeak, colP50, colP99, colFail50, colFail99},
		changes: []change{hold(250 * time.Millisecond), ratio(0.5)},
		better:  fewer(colLost),
	}
	from := p.led()
	p.trouble = span{from, from + f.For}
	p.measured, p.peaks, p.settled, p.end = p.trouble, p.trouble, p.trouble, p.trouble.to
	p.service = func(t *trial) http.RoundTripper {
		return engine.Server(func(req *http.Request) (*http.Response, error) {
			if at := t.attempted() - from; at >= 0 && at%f.Every < f.Down {
				return engine.Answer(req, http.StatusServiceUnavailable)
			}
			return t.usually(req)
		})
	}
	return p, errors.Join(
		f.check(), atLeast("Down", f.Down, 1), atLeast("Every", f.Every, f.Down), atLeast("For", f.For, Bin),
	)
}
