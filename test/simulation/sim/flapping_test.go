package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
)

// A success must earn as much as with a server that is well, or the retries of each period would come too
// late. A service that is well for three fifths of the time needs room for five thirds of the load.
func TestFlappingServiceLosesLittle(t *testing.T) {
	for _, c := range []struct {
		down, every, span time.Duration
		lost              float64
		seeds             int
	}{
		{400 * time.Millisecond, time.Second, 20 * time.Second, 0.01, 1},
		{400 * time.Millisecond, time.Second, time.Minute, 0.08, 16}, // 0.0765
		{time.Second, 3 * time.Second, time.Minute, 0.01, 1},
	} {
		t.Run(fmt.Sprint(c.down, " of each ", c.every, " for ", c.span), func(t *testing.T) {
			if fewer > 1 && c.span == time.Minute {
				t.Skip("the race detector takes too long")
			}
			f := Flapping{
				Rate: 1000, WarmUp: steady, Down: c.down, Every: c.every, For: c.span, Capacity: 2000, Seeds: c.seeds,
			}
			run := func(name string, policy func() retryhttp.Policy) BusyResult {
				f.Policy = policy
				r := f.Run(t)
				t.Logf("%-7s %v", name, r)
				return r
			}
			r := run("default", defaults)
			assert.LessOrEqual(t, r.Lost.Mean, c.lost)
			assert.LessOrEqual(t, r.Load.Mean, 1.5)
			f.Seeds = 1
			assert.GreaterOrEqual(t, run("plain", plain).Load.Mean, 1.7)
			f.For = 21 * time.Second // every period is the same without retries
			down := c.down.Seconds() / c.every.Seconds()
			assert.InDelta(t, down, run("once", once).Lost.Mean, 0.02)
		})
	}
}
