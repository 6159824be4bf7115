package simulation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp/retrylab/simulation/sim"
)

func TestServiceRecoversFromSpikeWithOneBudgetForAFleet(t *testing.T) {
	for name, c := range map[string]struct {
		processes, seeds int
		within           time.Duration
		calls            float64 // per second of the fleet, at most
	}{
		"100 processes":  {100, 8, 15 * time.Second, 100},
		"1000 processes": {1000, 2, 25 * time.Second, 250},
	} {
		t.Run(name, func(t *testing.T) {
			var shared sharing
			e := spike(c.processes, 65*time.Second, max(c.seeds/fewer, 1))
			e.Fleet = shared.fleet
			r := e.Run(t)
			assert.Equal(t, e.Seeds, r.Recovered(c.within), "%v", r.Recovery)
			assert.Zero(t, r.Goodput[33], "the spike did break it")
			for _, run := range shared.runs {
				assert.Less(t, run.perSecond.Between(0, e.Until), c.calls, "calls per second of the fleet")
				for _, p := range run.processes {
					assert.LessOrEqual(t, p.mostUngranted(time.Second), 2, "calls of a process in an Interval, beyond what it is granted")
				}
				assert.GreaterOrEqual(t, len(run.processes[0].at), 2, "calls are counted")
			}
		})
	}
}

func TestFleetWithOneBudgetAndADeadBackendOfThree(t *testing.T) {
	var shared sharing
	p := sim.Partial{
		Fleet: shared.fleet, Processes: 100, Rate: 1000, Backends: 3, Dead: 1,
		WarmUp: 20 * time.Second, For: 20 * time.Second, Seeds: 1,
	}
	r := p.Run(t)
	t.Logf("succeed %v, load %v, calls/s %v", r.Success, r.Load, shared.rates(p.WarmUp+p.For))
	assert.GreaterOrEqual(t, r.Success.Mean, 0.98)
	assert.LessOrEqual(t, r.Load.Mean, 1.55)
	for _, run := range shared.runs {
		for _, p := range run.processes {
			assert.LessOrEqual(t, p.mostUngranted(time.Second), 2, "calls of a process in an Interval, beyond what it is granted")
		}
	}
}

func TestServiceRecoversLaterFromSpikeWithABudgetInEachOf1000Processes(t *testing.T) {
	e := spike(1000, 65*time.Second, 4/fewer)
	e.Policy = defaults
	r := e.Run(t)
	assert.Zero(t, r.Recovered(25*time.Second), "%v", r.Recovery)
}
