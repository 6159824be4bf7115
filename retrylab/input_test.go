package retrylab_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/retrylab"
)

func TestBadInputIsNamed(t *testing.T) {
	for _, c := range []struct {
		experiment retrylab.Experiment
		says       string
	}{
		{retrylab.Outage{Load: retrylab.Load{Rate: -1}}, "retrylab: outage: Rate is -1, and must be above 0"},
		{retrylab.Outage{Load: retrylab.Load{Rate: math.NaN()}}, "Rate is NaN"},
		{retrylab.Outage{Load: retrylab.Load{Rate: math.Inf(1)}}, "Rate is +Inf"},
		{retrylab.Outage{Load: retrylab.Load{Rate: 1e-6}}, "Rate is 1e-06, and must be from 1e-05 to 1e+06"},
		{retrylab.Outage{Load: retrylab.Load{Processes: -2}}, "Processes is -2"},
		{retrylab.Outage{Load: retrylab.Load{Latency: -1}}, "Latency is -1ns"},
		{retrylab.Outage{Load: retrylab.Load{Deadline: -1}}, "Deadline is -1ns"},
		{retrylab.Outage{Load: retrylab.Load{Uptime: -1}}, "Uptime is -1ns"},
		{retrylab.Outage{Load: retrylab.Load{Seeds: -1}}, "Seeds is -1"},
		{retrylab.Outage{Load: retrylab.Load{Uptime: 25 * time.Hour}}, "Uptime is 25h0m0s, and must be at most 24h0m0s"},
		{retrylab.Outage{For: -time.Second}, "For is -1s"},
		{retrylab.Outage{Part: 2}, "Part is 2"},
		{retrylab.Outage{Room: math.NaN()}, "Room is NaN"},
		{retrylab.Outage{After: -1}, "After is -1ns"},
		{retrylab.DeadBackend{Backends: 3, Dead: 4}, "Dead is 4, and must be at most Backends, which is 3"},
		{retrylab.DeadBackend{Backends: -1, Dead: -1}, "Backends is -1"},
		{retrylab.DeadBackend{For: -1}, "For is -1ns"},
		{retrylab.Overload{Room: -1}, "Room is -1"},
		{retrylab.Overload{Cost: math.Inf(1)}, "Cost is +Inf"},
		{retrylab.Spike{Times: -1}, "Times is -1"},
		{retrylab.Spike{Patience: -1}, "Patience is -1ns"},
		{retrylab.Deploy{Backends: -1}, "Backends is -1"},
		{retrylab.Deploy{Down: -1}, "Down is -1ns"},
		{retrylab.RateLimit{Allowed: -1}, "Allowed is -1"},
		{retrylab.RateLimit{Workers: -1, Jobs: -1}, "Workers is -1, and must be above 0\nJobs is -1"},
		{retrylab.Reset{Takes: -1}, "Takes is -1ns"},
		{retrylab.LatencyStep{Slower: -1}, "Slower is -1"},
		{retrylab.Layers{Services: 11}, "Services is 11"},
		{retrylab.Layers{Part: -0.5}, "Part is -0.5"},
		{retrylab.Replicas{Replicas: -1, For: -1}, "Replicas is -1"},
		{retrylab.Replicas{Broken: 4}, "Broken is 4, and must be at most Replicas, which is 3"},
		{retrylab.Replicas{Broken: -1}, "Broken is -1"},
		{retrylab.Replicas{For: -1}, "For is -1ns"},
		{retrylab.Flapping{Down: -1}, "Down is -1ns"},
		{retrylab.Flapping{Down: 2 * time.Second}, "Every is 1s, and must be at least 2s"},
		{retrylab.Flapping{For: -1}, "For is -1ns"},
		{retrylab.Burst{Requests: -1}, "Requests is -1"},
		{retrylab.Burst{For: -1}, "For is -1ns"},
		{retrylab.Cron{Requests: -1}, "Requests is -1"},
		{retrylab.Cron{Takes: -1}, "Takes is -1"},
		{retrylab.Cron{Load: retrylab.Load{Processes: -2}}, "Processes is -2"},
		{retrylab.LongOutage{For: -1}, "For is -1ns"},
		{retrylab.LongOutage{Hold: -1}, "Hold is -1ns"},
		{retrylab.LongOutage{Load: retrylab.Load{Rate: -1}}, "long-outage: Rate is -1"},
		{retrylab.Invited{For: -1}, "For is -1ns"},
		{retrylab.Invited{Room: -1}, "Room is -1"},
		{retrylab.Invited{After: -1}, "After is -1ns"},
		{retrylab.Workers{Workers: -1}, "Workers is -1"},
		{retrylab.Workers{For: -1}, "For is -1ns"},
		{retrylab.Workers{After: -1}, "After is -1ns"},
	} {
		assert.ErrorContains(t, c.experiment.Validate(), c.says)
	}
}

func TestDefaultsAreValid(t *testing.T) {
	for _, e := range retrylab.All(retrylab.Load{}) {
		require.NoError(t, e.Validate())
	}
}

// The next request comes hours after the end of the run.
func TestARequestAnHourIsEnoughForARun(t *testing.T) {
	rare := retrylab.Load{Rate: 0.0003, Seeds: 1}
	assert.Empty(t, retrylab.Outage{Load: rare}.Run(t, retrylab.Default).Failures)
	assert.Empty(t, retrylab.Cron{Takes: 1e-5, Load: retrylab.Load{Seeds: 1}}.Run(t, retrylab.Default).Failures)
}

func TestDefaultsAreNamedInTheSettings(t *testing.T) {
	small := retrylab.Load{Rate: 20, Uptime: time.Second, Seeds: 1}
	text := retrylab.Overload{Load: small, For: time.Second}.Run(t, retrylab.Default).String()
	assert.Contains(t, text, "cost 0.3")
	assert.Contains(t, text, "processes 1")
	text = retrylab.Deploy{Load: small, Pause: -1, Down: time.Second, After: time.Second}.Run(t, retrylab.Default).String()
	assert.Contains(t, text, "pause 0s")
}

func TestComparisonNamesBadPolicies(t *testing.T) {
	ok := retrylab.Policy{Name: "a", New: retrylab.Default}
	assert.NoError(t, retrylab.Comparison{Policies: []retrylab.Policy{ok}}.Validate())
	assert.ErrorContains(t, retrylab.Comparison{Policies: []retrylab.Policy{ok, ok}}.Validate(), `two policies are named "a"`)
	assert.ErrorContains(t, retrylab.Comparison{Policies: []retrylab.Policy{{Name: "b"}}}.Validate(), `"b" are nil`)
	assert.EqualError(t, retrylab.Comparison{Experiments: []retrylab.Experiment{nil}}.Validate(), "retrylab: experiment 0 is nil")
	baseline := retrylab.Policy{Name: retrylab.NoRetries, New: retrylab.Default}
	assert.Error(t, retrylab.Comparison{Policies: []retrylab.Policy{baseline}}.Validate())
}

func TestRowWithoutPolicyPanicsWithTheNames(t *testing.T) {
	r := retrylab.Result{Rows: []retrylab.Row{{Name: "policy"}, {Name: "other"}}}
	assert.PanicsWithValue(t, `retrylab: no policy is named "mine"; there are policy, other`, func() { r.Row("mine") })
}
