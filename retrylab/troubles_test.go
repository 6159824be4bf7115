package retrylab_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab"
)

func TestReplicaThatBreaksIsLeftByADetour(t *testing.T) {
	hurried := func() retryhttp.Policy { return retryhttp.Policy{AttemptTimeout: 300 * time.Millisecond} }
	for _, r := range []retrylab.Replicas{
		{}, {HTTP2: true}, {Hang: true}, {Hang: true, HTTP2: true}, {Broken: 2, HTTP2: true},
	} {
		r.Load = retrylab.Load{Rate: 50, Uptime: 5 * time.Second, Seeds: 3}
		r.For = 5 * time.Second
		got := r.Run(t, hurried)
		with, without := got.Policy(), got.Row("policy, without detours")
		assert.GreaterOrEqual(t, with.Succeeded.Mean, 0.97, "%+v", r)
		assert.Zero(t, without.Detours.Mean)
		if r.HTTP2 {
			assert.Positive(t, with.Detours.Mean, "%+v", r)
			assert.LessOrEqual(t, without.Succeeded.Mean, 0.3, "%+v: before they break", r)
		}
		assert.GreaterOrEqual(t, with.Load.Mean, 1.0, "%+v", r)
		assert.LessOrEqual(t, with.Load.Mean, 1.3, "%+v", r)
	}
}

func TestReplicasAreChosenByConnectionForEachProcess(t *testing.T) {
	r := retrylab.Replicas{HTTP2: true, Load: retrylab.Load{Rate: 60, Processes: 3, Uptime: 5 * time.Second, Seeds: 1}, For: 5 * time.Second}
	none := r.Run(t, retrylab.Default).Row("policy, without detours")
	assert.InDelta(t, 0.7, none.Succeeded.Mean, 0.1, "one process of three is at the broken replica")
}

func TestFlappingServiceIsDownForAPartOfEachPeriod(t *testing.T) {
	f := retrylab.Flapping{Load: retrylab.Load{Rate: 200, Uptime: 5 * time.Second, Seeds: 2}, Down: 250 * time.Millisecond, For: 10 * time.Second}
	r := f.Run(t, retrylab.Default)
	assert.InEpsilon(t, 200*10*0.25, r.Row(retrylab.NoRetries).Hit.Mean, 0.15)
	assert.LessOrEqual(t, r.Policy().Lost.Mean, 0.05)
	assert.InDelta(t, 0.75, r.Row(retrylab.NoRetries).Goodput.Mean, 0.05)
}

func TestBurstOfAFreshProcessGetsThroughAShortOutage(t *testing.T) {
	r := retrylab.Burst{Load: retrylab.Load{Seeds: 2}, Requests: 500}.Run(t, retrylab.Default)
	assert.Zero(t, r.Policy().Lost.Mean)
	assert.InDelta(t, 500, r.Row(retrylab.NoRetries).Hit.Mean, 0)
	assert.Equal(t, 1.0, r.Row(retrylab.NoRetries).Lost.Mean)
	assert.Greater(t, r.Policy().Peak.Mean, r.Row(retrylab.NoRetries).Peak.Mean)
}

func TestCronFleetNeedsALongerBackoff(t *testing.T) {
	c := retrylab.Cron{Load: retrylab.Load{Seeds: 2}}
	r := c.Run(t, retrylab.Default)
	assert.InDelta(t, 600, r.Policy().Hit.Mean, 0, "three for each of 200 processes")
	assert.GreaterOrEqual(t, r.Policy().Lost.Mean, 0.5)
	assert.Contains(t, r.Advice, "Backoff FullJitter(5s, 30s), lost is ")
	patient := c.Run(t, func() retryhttp.Policy {
		return retryhttp.Policy{Backoff: retryhttp.FullJitter(5*time.Second, 30*time.Second)}
	})
	assert.LessOrEqual(t, patient.Policy().Lost.Mean, 0.1)
}

func TestLongOutageIsOutlastedByALongHold(t *testing.T) {
	l := retrylab.LongOutage{Load: retrylab.Load{Rate: 50, Uptime: 20 * time.Second, Seeds: 25}, For: 20 * time.Second}
	r := l.Run(t, retrylab.Default)
	assert.GreaterOrEqual(t, r.Policy().Lost.Mean, 0.95)
	// 0.149 on average, with a standard deviation of 0.012 for 25 runs.
	assert.LessOrEqual(t, r.Row("policy, Gate.Hold 40s").Lost.Mean, 0.2)
	assert.Empty(t, r.Advice, "the further row says it")
}

func TestInvitedRetriesComeWhenTheyWereTold(t *testing.T) {
	r := retrylab.Invited{Load: retrylab.Load{Rate: 100, Uptime: 20 * time.Second, Seeds: 2}}.Run(t, retrylab.Default)
	assert.LessOrEqual(t, r.Policy().Lost.Mean, 0.02)
	assert.LessOrEqual(t, r.Policy().Load.Mean, 1.05, "none in the trouble")
	assert.InEpsilon(t, 200, r.Row(retrylab.NoRetries).Hit.Mean, 0.2)
}

func TestWorkersAreHitOnceIfTheirRetriesAreHeld(t *testing.T) {
	r := retrylab.Workers{Load: retrylab.Load{Seeds: 2}}.Run(t, retrylab.Default)
	assert.InDelta(t, 10, r.Policy().Hit.Mean, 2)
	assert.LessOrEqual(t, r.Policy().Lost.Mean, 0.1)
	assert.GreaterOrEqual(t, r.Row(retrylab.Unbounded).Hit.Mean, 25.0)
}

func TestAdviceNamesWhatHelps(t *testing.T) {
	d := retrylab.DeadBackend{Load: retrylab.Load{Rate: 200, Uptime: 20 * time.Second, Seeds: 2}, Backends: 2}
	advice := d.Run(t, retrylab.Default).Advice
	assert.Regexp(t, `^What to change: with TokenBucket\.Ratio 0\.5, succeeded is [89][0-9.]+.* in place of [567][0-9.]+.* attempts per request in place of 1\.`, advice)
}

// A Budget of the user's own, and what a fleet shares, is not replaced.
func TestAdviceLeavesWhatIsShared(t *testing.T) {
	d := retrylab.DeadBackend{Load: retrylab.Load{Rate: 50, Seeds: 2}, Backends: 2, For: 5 * time.Second}
	fleet := retrylab.Policy{Name: "mine", Fleet: func(*testing.T) func() retryhttp.Policy { return retrylab.Default }}
	report := retrylab.Comparison{Experiments: []retrylab.Experiment{d}, Policies: []retrylab.Policy{fleet}}.Run(t)
	assert.Empty(t, report.Results[0].Advice)
	own := func() retryhttp.Policy { return retryhttp.Policy{Budget: retryhttp.Unlimited{}} }
	assert.Empty(t, d.Run(t, own).Advice)
}

// A request that has no time for a retry loses by its deadline, and not by a budget.
func TestReadingOfAResetSaysThatTheDeadlineIsShort(t *testing.T) {
	r := retrylab.Reset{Load: retrylab.Load{Rate: 20, Seeds: 1}, Takes: time.Second}
	assert.Contains(t, r.Run(t, retrylab.Default).Reading, "Every retry would succeed here")
	r.Deadline = 1900 * time.Millisecond
	assert.Contains(t, r.Run(t, retrylab.Default).Reading, "their Deadline is shorter than two answers take")
}

func TestHedgesAreCountedWhereAPolicyHasThem(t *testing.T) {
	d := retrylab.DeadBackend{Load: retrylab.Load{Rate: 100, Uptime: 20 * time.Second, Seeds: 1}, For: 10 * time.Second}
	names := func(r retrylab.Result) (all []string) {
		for _, c := range r.Columns {
			all = append(all, c.Name)
		}
		return all
	}
	assert.NotContains(t, names(d.Run(t, retrylab.Default)), "hedges")
	hedged := d.Run(t, func() retryhttp.Policy {
		return retryhttp.Policy{Hedge: &retryhttp.Hedge{After: 10 * time.Millisecond, Share: 0.1}}
	})
	require.Contains(t, names(hedged), "hedges")
	assert.InDelta(t, 0.1, hedged.Policy().Hedges.Mean, 0.05)
	assert.Zero(t, hedged.Row(retrylab.NoRetries).Hedges.Mean)
}

func TestPolicyIsSaidWithWhatItHasBesideTheDefaults(t *testing.T) {
	d := retrylab.DeadBackend{Load: retrylab.Load{Rate: 5, Seeds: 1}, For: time.Second}
	says := func(p func() retryhttp.Policy) []retrylab.Setting { return d.Run(t, p).Policies }
	assert.Equal(t, []retrylab.Setting{{Name: "policy", Value: "the defaults"}}, says(retrylab.Default))
	own := says(func() retryhttp.Policy {
		return retryhttp.Policy{
			MaxAttempts: 3, AttemptTimeout: time.Second, Classify: retryhttp.Classify, Budget: retryhttp.Unlimited{},
			Gate: &retryhttp.Gate{Hold: 2 * time.Second, HoldFirst: true}, Hedge: new(retryhttp.Hedge),
		}
	})
	require.Len(t, own, 1)
	for _, part := range []string{
		"MaxAttempts 3", "AttemptTimeout 1s", "Classify of its own", "Budget Unlimited{}", "Gate Gate{Hold 2s, HoldFirst}", "Hedge Hedge{}",
	} {
		assert.Contains(t, own[0].Value, part)
	}
}
