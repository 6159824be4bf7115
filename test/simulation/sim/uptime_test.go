package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A process that has just started has earned few tokens. Its retries depend on what the successes
// after the outage earn.
func TestOutageSoonAfterTheStartLosesLittle(t *testing.T) {
	for _, c := range []struct {
		processes int
		uptime    time.Duration
		lost      float64
	}{
		{1, 1 * time.Second, 0.03},
		{1, 2 * time.Second, 0.03},
		{1, 5 * time.Second, 0.03},
		{1, 10 * time.Second, 0.03},
		{100, 1 * time.Second, 0.06},
	} {
		t.Run(fmt.Sprint(c.processes, " processes, up for ", c.uptime), func(t *testing.T) {
			o := Outage{
				Policy: defaults, Processes: c.processes, Rate: 1000, WarmUp: c.uptime - OutageLead,
				For: time.Second, After: 10 * time.Second, Capacity: 1300, Seeds: 4 / min(fewer, 2),
			}
			r := o.Run(t)
			t.Logf("lost %v, later %v, load %v, peak %.2f", r.Lost, r.LostLater, r.Load, r.Peak)
			assert.LessOrEqual(t, r.Lost.Mean, c.lost)
			assert.LessOrEqual(t, r.Load.Mean, 1.5)
			o.Policy, o.Seeds = ungated(tenth), 1
			assert.GreaterOrEqual(t, o.Run(t).Lost.Mean, 0.9, "a tenth for each success, and no line")
			o.Policy = once
			assert.Equal(t, 1.0, o.Run(t).Lost.Mean, "no retries")
		})
	}
}
