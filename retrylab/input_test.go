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
		{retrylab.Outage{Load: retrylab.Load{Processes: -2}}, "Processes is -2"},
		{retrylab.Outage{Load: retrylab.Load{Latency: -1}}, "Latency is -1ns"},
		{retrylab.Outage{Load: retrylab.Load{Deadline: -1}}, "Deadline is -1ns"},
		{retrylab.Outage{Load: retrylab.Load{Uptime: -1}}, "Uptime is -1ns"},
		{retrylab.Outage{Load: retrylab.Load{Seeds: -1}}, "Seeds is -1"},
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
	} {
		assert.ErrorContains(t, c.experiment.Validate(), c.says)
	}
}

func TestDefaultsAreValid(t *testing.T) {
	for _, e := range retrylab.All(retrylab.Load{}) {
		require.NoError(t, e.Validate())
	}
}

func TestDefaultsAreNamedInTheSettings(t *testing.T) {
	small := retrylab.Load{Rate: 20, Uptime: time.Second, Seeds: 1}
	text := retrylab.Overload{Load: small, For: time.Second}.Run(t, retrylab.Default).String()
	assert.Contains(t, text, "Cost 0.3")
	assert.Contains(t, text, "Processes 1")
	text = retrylab.Deploy{Load: small, Pause: -1, Down: time.Second, After: time.Second}.Run(t, retrylab.Default).String()
	assert.Contains(t, text, "Pause 0s")
}

func TestComparisonNamesBadPolicies(t *testing.T) {
	ok := retrylab.Policy{Name: "a", New: retrylab.Default}
	assert.NoError(t, retrylab.Comparison{Policies: []retrylab.Policy{ok}}.Validate())
	assert.ErrorContains(t, retrylab.Comparison{Policies: []retrylab.Policy{ok, ok}}.Validate(), `two policies are named "a"`)
	assert.ErrorContains(t, retrylab.Comparison{Policies: []retrylab.Policy{{Name: "b"}}}.Validate(), `"b" are nil`)
	baseline := retrylab.Policy{Name: retrylab.NoRetries, New: retrylab.Default}
	assert.Error(t, retrylab.Comparison{Policies: []retrylab.Policy{baseline}}.Validate())
}

func TestRowWithoutPolicyPanicsWithTheNames(t *testing.T) {
	r := retrylab.Result{Rows: []retrylab.Row{{Name: "policy"}, {Name: "other"}}}
	assert.PanicsWithValue(t, `retrylab: no policy is named "mine"; there are policy, other`, func() { r.Row("mine") })
}
