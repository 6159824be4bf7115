package sim

import (
	"net/http"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// A Flapping service is down for a part of each period, and well for the rest. In between it has room for
// more than the usual load, and rejects what is beyond. If it has room for less than all requests of a period,
// it loses some, whatever the policy.
//
// The experiment is this project's own.
type Flapping struct {
	Policy   func() retryhttp.Policy // of one process
	Rate     float64                 // requests per second
	WarmUp   time.Duration           // of health, which fills the budget
	Down     time.Duration           // at the beginning of each period
	Every    time.Duration           // the period
	For      time.Duration           // it flaps for so long
	Capacity float64                 // attempts per second that it takes while it is well. 0: any number
	Seeds    int
}

func (f Flapping) Run(t *testing.T) BusyResult {
	t.Helper()
	return Busy{
		Policy: f.Policy, Rate: f.Rate, WarmUp: f.WarmUp, For: f.For, After: 10 * time.Second, Seeds: f.Seeds,
		rejects: f.rejects,
	}.Run(t)
}

func (f Flapping) rejects(*engine.Dice) func(time.Duration) http.Header {
	work := new(engine.Workload)
	return func(at time.Duration) http.Header {
		down := at < f.For && at%f.Every < f.Down
		if down || f.Capacity > 0 && !work.Take(at, f.Capacity) {
			return http.Header{}
		}
		return nil
	}
}
