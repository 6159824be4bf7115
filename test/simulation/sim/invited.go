package sim

import (
	"net/http"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// Invited is a service in trouble, a part of whose 503s names a wait of a second.
//
// The experiment is this project's own.
type Invited struct {
	Policy   func() retryhttp.Policy // of one process
	Rate     float64                 // requests per second
	WarmUp   time.Duration           // of health, which fills the budget
	For      time.Duration           // the length of the trouble
	After    time.Duration           // from the end of the trouble to the last request
	Part     float64                 // of the attempts fail in the trouble. 0: all
	Naming   float64                 // the part of these failures that have "Retry-After: 1"
	Capacity float64                 // attempts per second that it takes afterwards. It rejects the rest, and names no wait
	Seeds    int
}

func (i Invited) Run(t *testing.T) BusyResult {
	t.Helper()
	return Busy{
		Policy: i.Policy, Rate: i.Rate, WarmUp: i.WarmUp, For: i.For, After: i.After, Seeds: i.Seeds, rejects: i.rejects,
	}.Run(t)
}

func (i Invited) rejects(dice *engine.Dice) func(time.Duration) http.Header {
	work := new(engine.Workload)
	return func(at time.Duration) http.Header {
		switch {
		case at >= i.For:
			if !work.Take(at-i.For, i.Capacity) {
				return http.Header{}
			}
		case i.Part > 0 && dice.Float64() >= i.Part:
		case dice.Float64() < i.Naming:
			return http.Header{"Retry-After": {"1"}}
		default:
			return http.Header{}
		}
		return nil
	}
}
