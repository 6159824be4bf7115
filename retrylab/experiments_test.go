package retrylab_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab"
)

// fixedTenth earns a tenth of a retry for each success, and what it refuses fails at once.
var fixedTenth = retrylab.Policy{Name: "a fixed tenth", New: func() retryhttp.Policy {
	return retryhttp.Policy{Budget: &retryhttp.TokenBucket{Ratio: 0.1}, Gate: &retryhttp.Gate{Hold: -1}}
}}

func TestDeadBackendOfThreeCostsFewRequests(t *testing.T) {
	for name, refuse := range map[string]bool{"a 503": false, "refused connections": true} {
		t.Run(name, func(t *testing.T) {
			d := retrylab.DeadBackend{Load: busy(), Refuse: refuse}
			d.Uptime = 20 * time.Second
			r := d.Run(t, retrylab.Default, fixedTenth)
			assert.GreaterOrEqual(t, r.Policy().Succeeded.Mean, 0.98)
			assert.LessOrEqual(t, r.Policy().Load.Mean, 1.55)
			assert.InDelta(t, 0.76, r.Row("a fixed tenth").Succeeded.Mean, 0.03)
			assert.InDelta(t, 1.14, r.Row("a fixed tenth").Load.Mean, 0.03)
			assert.InDelta(t, 0.988, r.Row(retrylab.Unbounded).Succeeded.Mean, 0.006)
			assert.InDelta(t, 0.667, r.Row(retrylab.NoRetries).Succeeded.Mean, 0.015)
		})
	}
}

func TestDeadBackendsOfAll(t *testing.T) {
	d := retrylab.DeadBackend{Load: retrylab.Load{Seeds: 1}, Backends: 2, Dead: 2, For: 5 * time.Second}
	assert.Zero(t, d.Run(t, retrylab.Default).Row(retrylab.Unbounded).Succeeded.Mean)
}

func TestOverloadCostsLittleGoodput(t *testing.T) {
	o := retrylab.Overload{Load: retrylab.Load{Rate: 600, Seeds: 1}, Cost: 0.5}
	r := o.Run(t, retrylab.Default)
	none := r.Row(retrylab.NoRetries).Goodput.Mean
	// With x served and 600-x rejected at half a success each, x + (600-x)/2 = 500, so x = 400.
	assert.InDelta(t, 400.0/600, none, 0.04)
	assert.GreaterOrEqual(t, r.Policy().Goodput.Mean, 0.85*none)
	assert.LessOrEqual(t, r.Row(retrylab.Unbounded).Goodput.Mean, 0.05)

	o.Cost = -1
	r = o.Run(t, retrylab.Default)
	assert.InDelta(t, 1/1.2, r.Row(retrylab.Unbounded).Goodput.Mean, 0.03, "rejections without a cost")
}

func TestSpikeOutlastsItselfOnlyWithoutABudget(t *testing.T) {
	r := retrylab.Spike{Load: retrylab.Load{Rate: 40, Seeds: 2}}.Run(t, retrylab.Default)
	assert.GreaterOrEqual(t, r.Policy().Goodput.Least, 0.9)
	assert.LessOrEqual(t, r.Row(retrylab.Unbounded).Goodput.Most, 0.02)
	assert.GreaterOrEqual(t, r.Row(retrylab.Unbounded).Load.Mean, 3.0)
	assert.GreaterOrEqual(t, r.Row(retrylab.NoRetries).Goodput.Least, 0.9)
	assert.GreaterOrEqual(t, r.Row(retrylab.NoRetries).Lost.Mean, 0.9, "the spike did break it")
}

func TestDeployLosesFewRequests(t *testing.T) {
	r := retrylab.Deploy{Load: retrylab.Load{Rate: 500, Latency: 100 * time.Millisecond, Seeds: 2}}.Run(t, retrylab.Default)
	assert.LessOrEqual(t, r.Policy().Lost.Mean, 0.02)
	assert.LessOrEqual(t, r.Policy().Load.Mean, 1.3)
	none := r.Row(retrylab.NoRetries)
	// Each of 4 backends is down for 2 s, and then loses 500 attempts a second in 4, besides what is under way.
	assert.InDelta(t, 4*(2*125+12.5), none.Hit.Mean, 100)
	assert.Equal(t, 1.0, none.Lost.Mean)
	assert.Greater(t, none.FailureP99.Mean, 0.02, "answers under way are reset")
}

func TestRateLimitLosesFewJobs(t *testing.T) {
	r := retrylab.RateLimit{Load: retrylab.Load{Seeds: 2}, Allowed: 20, Jobs: 300}.Run(t, retrylab.Default, fixedTenth)
	assert.LessOrEqual(t, r.Policy().Lost.Mean, 0.02)
	assert.InDelta(t, 300.0/20, r.Policy().Took.Mean, 6, "seconds")
	assert.GreaterOrEqual(t, r.Row("a fixed tenth").Lost.Mean, 0.1) // its refused jobs wait for a backoff, which paces the workers
	assert.GreaterOrEqual(t, r.Row(retrylab.NoRetries).Lost.Mean, 0.9)
	assert.Less(t, r.Row(retrylab.NoRetries).Took.Mean, 1.0, "seconds")
}

func TestRateLimitSharedByProcesses(t *testing.T) {
	r := retrylab.RateLimit{
		Load: retrylab.Load{Processes: 5, Seeds: 1}, Allowed: 20, Jobs: 100,
	}.Run(t, retrylab.Default)
	assert.InDelta(t, 100, r.Policy().Hit.Mean, 0)
}

func TestResetLosesOnlyToABudget(t *testing.T) {
	r := retrylab.Reset{Load: retrylab.Load{Rate: 50, Seeds: 16}}.Run(t, retrylab.Default)
	assert.InEpsilon(t, 250, r.Policy().Hit.Mean, 0.15)
	assert.LessOrEqual(t, r.Policy().Lost.Mean, 0.2)
	assert.Zero(t, r.Policy().LostLater.Mean)
	assert.Zero(t, r.Row(retrylab.Unbounded).Lost.Mean)
	assert.Equal(t, 1.0, r.Row(retrylab.NoRetries).Lost.Mean)
}

func TestLatencyStepWithAndWithoutHedge(t *testing.T) {
	l := retrylab.LatencyStep{Load: retrylab.Load{Rate: 500, Uptime: 20 * time.Second, Seeds: 1}}
	r := l.Run(t, retrylab.Default, retrylab.Policy{Name: "hedged", New: func() retryhttp.Policy {
		return retryhttp.Policy{Hedge: &retryhttp.Hedge{Share: 0.02}}
	}})
	plain, hedged := r.Policy(), r.Row("policy, with a Hedge")
	assert.Equal(t, 1.0, plain.Load.Mean)
	assert.InDelta(t, 1.05, hedged.Load.Mean, 0.01)
	assert.Less(t, hedged.UsualP99.Mean, 0.9*plain.UsualP99.Mean)
	assert.InDelta(t, 10*plain.UsualTimes.Quantile(0.5).Seconds(), plain.SuccessTimes.Quantile(0.5).Seconds(), 0.01)
	assert.InDelta(t, 1.02, r.Row("hedged").Load.Mean, 0.01)
	assert.Equal(t, 1.0, r.Row("hedged, without a Hedge").Load.Mean)
}

func TestLayersMultiplyOnlyWithoutABudget(t *testing.T) {
	r := retrylab.Layers{
		Load: retrylab.Load{Rate: 50, Uptime: 20 * time.Second, Seeds: 1}, For: 20 * time.Second,
	}.Run(t, retrylab.Default)
	assert.LessOrEqual(t, r.Policy().Load.Mean, 1.7)
	assert.Greater(t, r.Row(retrylab.Unbounded).Load.Mean, 20.0)
	assert.Equal(t, 1.0, r.Row(retrylab.NoRetries).Load.Mean)
	assert.InDelta(t, 1, r.Row(retrylab.NoRetries).Goodput.Mean, 0.05, "each hands on what the one below answers")
}

func TestLayersOfOneServiceAreAnOutage(t *testing.T) {
	r := retrylab.Layers{
		Load: retrylab.Load{Rate: 50, Seeds: 1}, Services: 1, Part: 0.3, For: 5 * time.Second, After: 3 * time.Second,
	}.Run(t, retrylab.Default)
	assert.LessOrEqual(t, r.Row(retrylab.Unbounded).Load.Mean, 1.6)
	assert.GreaterOrEqual(t, r.Row(retrylab.Unbounded).Load.Mean, 1.2)
}
