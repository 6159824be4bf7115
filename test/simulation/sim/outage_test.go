package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
)

// ungated is a policy without its Gate: of the default policy, it is the budget alone.
func ungated(policy func() retryhttp.Policy) func() retryhttp.Policy {
	return func() retryhttp.Policy {
		p := policy()
		p.Gate = &retryhttp.Gate{Hold: -1}
		return p
	}
}

// tenth is a policy with a fixed budget: each success earns a tenth of a retry, however many attempts fail.
func tenth() retryhttp.Policy {
	return retryhttp.Policy{Budget: &retryhttp.TokenBucket{Ratio: 0.1}}
}

func withTimeout(policy func() retryhttp.Policy, d time.Duration) func() retryhttp.Policy {
	return func() retryhttp.Policy {
		p := policy()
		p.AttemptTimeout = d
		return p
	}
}

func once() retryhttp.Policy { return retryhttp.Policy{MaxAttempts: 1} }

func TestGateLosesNothingToASecond(t *testing.T) {
	for name, c := range map[string]struct {
		capacity float64
		seeds    int
	}{
		"a third to spare": {1300, 8}, "double": {2000, 3}, "no limit": {0, 3},
	} {
		t.Run(name, func(t *testing.T) {
			o := Outage{
				Policy: defaults, Processes: 1, Rate: 1000, WarmUp: steady,
				For: time.Second, After: 10 * time.Second, Capacity: c.capacity, Seeds: c.seeds,
			}
			r := o.Run(t)
			assert.LessOrEqual(t, r.Lost.Mean, 0.01)
			assert.LessOrEqual(t, r.LostLater, 0.01*r.Hit.Mean)
			if c.seeds >= 8 { // else chance weighs as much as what is left
				assert.LessOrEqual(t, r.Load.Mean, 1.05)
			}
			assert.LessOrEqual(t, r.Peak, 2.0)
			assert.LessOrEqual(t, r.Quantile(0.5), 2500*time.Millisecond)
			assert.LessOrEqual(t, r.Quantile(0.99), 5*time.Second)

			o.Seeds = 2
			o.Policy = ungated(defaults)
			r = o.Run(t)
			assert.GreaterOrEqual(t, r.Lost.Mean, 0.5, "the budget alone")
			assert.GreaterOrEqual(t, r.Load.Mean, 2.0, "the budget alone")
			o.Policy = ungated(unlimited)
			r = o.Run(t)
			assert.GreaterOrEqual(t, r.Lost.Mean, 0.15, "no budget")
			assert.GreaterOrEqual(t, r.Peak, 3.0, "no budget")
			o.Policy = once
			assert.Equal(t, 1.0, o.Run(t).Lost.Mean, "no retries")
		})
	}
}

func TestGateLosesLittleWhereTheServiceComesBackSlowly(t *testing.T) {
	o := Outage{
		Policy: defaults, Processes: 1, Rate: 1000, WarmUp: steady,
		For: time.Second, After: 20 * time.Second, Seeds: 3,
		Capacity: 1300, Slowly: 5 * time.Second, // at first, two thirds of what its clients send,
	}
	with := o.Run(t)
	assert.LessOrEqual(t, with.Lost.Mean, 0.05)
	o.Policy = ungated(defaults)
	without := o.Run(t)
	assert.GreaterOrEqual(t, without.Lost.Mean, 0.7)
	assert.Less(t, with.LostLater, without.LostLater/2)
}

func TestGateGivesUpAnOutageThatOutlastsHold(t *testing.T) {
	o := Outage{
		Policy: defaults, Processes: 1, Rate: 1000, WarmUp: steady,
		For: 10 * time.Second, After: 5 * time.Second, Capacity: 1300, Seeds: 1,
	}
	with := o.Run(t)
	assert.GreaterOrEqual(t, with.Lost.Mean, 0.85)
	o.Policy = ungated(defaults)
	without := o.Run(t)
	assert.GreaterOrEqual(t, without.Lost.Mean, 0.99)
	assert.InDelta(t, without.Load.Mean, with.Load.Mean, 0.01)
}

func TestGateInABlackHole(t *testing.T) {
	o := Outage{
		Processes: 1, Rate: 1000, WarmUp: steady, Hang: true,
		For: time.Second, After: 10 * time.Second, Capacity: 1300, Seeds: 3,
	}
	t.Run("that outlasts AttemptTimeout", func(t *testing.T) {
		o.Policy = withTimeout(defaults, 500*time.Millisecond)
		r := o.Run(t)
		assert.LessOrEqual(t, r.Lost.Mean, 0.01)
		assert.LessOrEqual(t, r.Load.Mean, 1.05)
		assert.LessOrEqual(t, r.Peak, 2.0) // of three runs; one has 1.62, with a standard deviation of 0.09
		o.Policy = ungated(o.Policy)
		r = o.Run(t)
		assert.GreaterOrEqual(t, r.Lost.Mean, 0.3)
		assert.GreaterOrEqual(t, r.Peak, 3.0)
	})
	t.Run("that is over when the first attempt ends", func(t *testing.T) {
		o.Policy = withTimeout(defaults, 2*time.Second)
		with := o.Run(t)
		o.Policy = ungated(o.Policy)
		without := o.Run(t)
		assert.InDelta(t, without.Lost.Mean, with.Lost.Mean, 0.05)
	})
}

// A key is down after 8 failures in a row, and so seldom with partial failure. A retry that the
// budget refuses waits in line for up to 5 s, which saves requests that fail at once without a Gate.
func TestGateInPartialFailure(t *testing.T) {
	for _, c := range []struct {
		name      string
		processes int
		part      float64
		p99       time.Duration
		p50       time.Duration // at least
		seeds     int
	}{
		{"a tenth, 100 processes", 100, 0.1, time.Second, 0, 2},
		{"half, one process", 1, 0.5, 6 * time.Second, 0, 2},
		// Two seeds recover some hundred requests, of which a handful decide on the p99.
		{"half, 100 processes", 100, 0.5, 6 * time.Second, 0, 8},
		{"nine in ten, one process", 1, 0.9, 6 * time.Second, 0, 2},
		{"nine in ten, 100 processes", 100, 0.9, 13 * time.Second, time.Second, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := Outage{
				Policy: defaults, Processes: c.processes, Rate: 1000, WarmUp: steady,
				For: 10 * time.Second, After: 3 * time.Second, Part: c.part, Seeds: c.seeds,
			}
			with := o.Run(t)
			o.Policy = ungated(defaults)
			without := o.Run(t)
			assert.LessOrEqual(t, with.Lost.Mean, without.Lost.Mean+0.03)
			assert.InDelta(t, without.Load.Mean, with.Load.Mean, 0.1)
			assert.LessOrEqual(t, with.Quantile(0.99), c.p99)
			assert.GreaterOrEqual(t, with.Quantile(0.5), c.p50)
			assert.LessOrEqual(t, without.Quantile(0.99), 2*time.Second)
		})
	}
}
