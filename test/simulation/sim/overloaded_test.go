package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestOverloadCostsLittleGoodput(t *testing.T) {
	for _, c := range []struct{ cost, least, tenth float64 }{
		{0, 0.97, 1}, {0.1, 0.95, 0.99}, {0.3, 0.90, 0.96}, {0.5, 0.85, 0.90},
	} {
		t.Run(fmt.Sprintf("a rejection costs %v of a success", c.cost), func(t *testing.T) {
			o := Overloaded{
				Policy: once, Processes: 1, Capacity: 500, Cost: c.cost, Load: 1.2,
				WarmUp: 20 * time.Second, Before: 40 * time.Second, Seeds: 1,
			}
			none := o.Run(t).Steady(o)
			share := func() float64 { return o.Run(t).Steady(o) / none }
			o.Policy = defaults
			assert.GreaterOrEqual(t, share(), c.least)
			o.Policy = fixedTenth
			assert.InDelta(t, c.tenth, share(), 0.03, "a fixed tenth")
		})
	}
	t.Run("without a budget, rejections take all of it", func(t *testing.T) {
		o := Overloaded{
			Policy: ungated(unlimited), Processes: 1, Capacity: 200, Cost: 0.5, Load: 1.2,
			Before: 20 * time.Second, Seeds: 1,
		}
		assert.LessOrEqual(t, o.Run(t).Steady(o), 0.05)
	})
}

// spiked is a service with room for a little more than its load, and a spike of three times the
// load.
func spiked(processes int, room, cost float64, spike time.Duration) Overloaded {
	return Overloaded{
		Processes: processes, Capacity: 500, Cost: cost, Load: 1 / (1 + room),
		WarmUp: 20 * time.Second, Before: time.Second,
		Spike: 3, SpikeFor: spike, After: 24 * time.Second, Seeds: 1,
	}
}

// comesBack asserts that o has the goodput that it has without retries, from 16 to 24 s after the
// spike.
func comesBack(t *testing.T, o Overloaded) {
	t.Helper()
	if o.Processes <= 20 {
		o.Seeds = 8 / fewer
	}
	o.Policy = once
	none := o.Run(t).Settled(o)
	o.Policy = defaults
	assert.GreaterOrEqual(t, o.Run(t).Settled(o)/none, 0.97)
	o.Policy = fixedTenth
	assert.GreaterOrEqual(t, o.Run(t).Settled(o)/none, 0.97, "a fixed tenth")
}

func TestServiceThatRejectsAtACostRecoversFromSpike(t *testing.T) {
	for _, c := range []struct {
		processes  int
		room, cost float64
	}{
		// The worst case: with half a retry for each success, 57 % of the attempts succeed, so the retries
		// would go on, and with them the rejections, each of which costs half a success.
		{1, 0.1, 0.5},
		{1, 0.33, 0.5}, {1, 0.1, 0.2},
		{20, 0.1, 0.5}, {20, 0.33, 0.5},
		{1000, 0.1, 0.5},
	} {
		t.Run(fmt.Sprintf("%d processes, room for %v, a rejection costs %v", c.processes, c.room, c.cost), func(t *testing.T) {
			comesBack(t, spiked(c.processes, c.room, c.cost, 10*time.Second))
		})
	}
	t.Run("without a budget, never", func(t *testing.T) {
		o := spiked(1, 0.33, 0.5, 10*time.Second)
		o.Policy, o.Capacity, o.After = ungated(unlimited), 200, time.Minute
		assert.LessOrEqual(t, o.Run(t).Settled(o), 0.05)
	})
}

// A process of a fleet sees few results, so it learns late that retries keep the server down. With a trial of 15 s and a
// rest of 10 s, one run in five kept four fifths of its goodput for good.
func TestFleetsRecoverFromSpikeWhereRejectionsCost(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long; make nightly runs it")
	}
	low := 0
	for _, processes := range []int{20, 100} {
		o := spiked(processes, 0.1, 0.5, 10*time.Second)
		o.After, o.Seeds = 100*time.Second, 16/fewer
		o.Policy = once
		none := o.Run(t).Settled(o)
		o.Policy = defaults
		for _, settled := range o.Run(t).Each {
			if settled < 0.95*none {
				low++
			}
		}
	}
	assert.LessOrEqual(t, low, 1)
}

// After a short spike, more requests still wait for their retries.
func TestServiceThatRejectsAtACostRecoversFromShortSpike(t *testing.T) {
	for _, processes := range []int{1, 20} {
		for _, spike := range []time.Duration{time.Second, 3 * time.Second} {
			t.Run(fmt.Sprintf("%d processes, %v", processes, spike), func(t *testing.T) {
				comesBack(t, spiked(processes, 0.1, 0.5, spike))
			})
		}
	}
}
