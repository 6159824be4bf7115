package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// An outage of 3 s hits more requests than the budget has tokens for. A retry that the budget
// refuses waits in line, until later successes pay for it.
func TestOutageOfSecondsLosesLittle(t *testing.T) {
	for _, c := range []struct {
		processes  int
		outage     time.Duration
		lost, load float64
		tenth      float64 // the least that is lost with a tenth for each success, and no line
		seeds      int
	}{
		{1, 3 * time.Second, 0.05, 1.05, 0.99, 4},
		{100, 1 * time.Second, 0.04, 1.5, 0.6, 4},
		{100, 3 * time.Second, 0.22, 1.25, 0.99, 4},
		// Few of these processes see 8 failures before their retries are over.
		{1000, 1 * time.Second, 0.45, 2.8, 0.5, 16},
		{1000, 3 * time.Second, 0.62, 2.8, 0.9, 4},
	} {
		t.Run(fmt.Sprint(c.processes, " processes, ", c.outage), func(t *testing.T) {
			o := Outage{
				Policy: defaults, Processes: c.processes, Rate: 1000, WarmUp: steady,
				For: c.outage, After: 10 * time.Second, Capacity: 1300, Seeds: c.seeds / min(fewer, 2),
			}
			r := o.Run(t)
			t.Logf("lost %v, later %v, load %v, peak %.2f", r.Lost, r.LostLater, r.Load, r.Peak)
			assert.LessOrEqual(t, r.Lost.Mean, c.lost)
			assert.LessOrEqual(t, r.Load.Mean, c.load)
			o.Policy, o.Seeds = ungated(tenth), 1
			assert.GreaterOrEqual(t, o.Run(t).Lost.Mean, c.tenth)
		})
	}
}

// Requests that are under way when the service is back time out one by one. So their retries do
// not come all at once.
func TestBlackHoleOfThreeSecondsLosesLittle(t *testing.T) {
	o := Outage{
		Policy: withTimeout(defaults, 2*time.Second), Processes: 1, Rate: 1000, WarmUp: steady, Hang: true,
		For: 3 * time.Second, After: 10 * time.Second, Capacity: 1300, Seeds: 4 / min(fewer, 2),
	}
	r := o.Run(t)
	t.Logf("lost %v, later %v, load %v, peak %.2f", r.Lost, r.LostLater, r.Load, r.Peak)
	assert.LessOrEqual(t, r.Lost.Mean, 0.12)
	assert.LessOrEqual(t, r.Peak, 5.0)
	o.Policy = withTimeout(ungated(tenth), 2*time.Second)
	assert.GreaterOrEqual(t, o.Run(t).Lost.Mean, 0.3, "a tenth for each success, and no line")
}

// The attempts under way when the service is back have failed before, most of them more than once.
func TestBlackHoleOfFiveSecondsLosesAQuarter(t *testing.T) {
	o := Outage{
		Processes: 1, Rate: 1000, WarmUp: steady, Hang: true,
		For: 5 * time.Second, After: 10 * time.Second, Capacity: 1300, Seeds: 4 / min(fewer, 2),
	}
	lost := func(name string, policy func() retryhttp.Policy) engine.Number {
		o.Policy = withTimeout(policy, time.Second)
		r := o.Run(t)
		t.Logf("%-7s lost %v, later %v, load %v, peak %.2f, p50 %v", name, r.Lost, r.LostLater, r.Load, r.Peak, r.Quantile(0.5))
		return r.Lost
	}
	by := lost("default", defaults)
	assert.LessOrEqual(t, by.Mean, 0.26+3*by.Error, "a run has 0.02 of chance")
	o.Seeds = 1
	assert.GreaterOrEqual(t, lost("plain", plain).Mean, 0.3)
	assert.Equal(t, 1.0, lost("once", once).Mean)
}
