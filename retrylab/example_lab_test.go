package retrylab_test

import (
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab"
)

func policy() retryhttp.Policy {
	return retryhttp.Policy{AttemptTimeout: 2 * time.Second}
}

func TestPolicyInAnOutage(t *testing.T) {
	load := retrylab.Load{Rate: 200, Processes: 4, Uptime: 20 * time.Second}
	result := retrylab.Outage{Load: load, For: 2 * time.Second}.Run(t, policy)
	if mine := result.Policy(); mine.Lost.Mean > 0.2 || mine.Load.Mean > 1.5 {
		t.Errorf("too much is lost, or sent into the outage:\n%v", result)
	}
}

func TestBudgetsInADeployment(t *testing.T) {
	report := retrylab.Comparison{
		Experiments: []retrylab.Experiment{retrylab.Deploy{Backends: 3}, retrylab.Overload{Cost: 0.5}},
		Policies: []retrylab.Policy{
			{Name: "default", New: retrylab.Default},
			{Name: "a third for each success", New: func() retryhttp.Policy {
				return retryhttp.Policy{Budget: &retryhttp.TokenBucket{HealthyRatio: 0.33}}
			}},
		},
	}.Run(t)
	t.Log(report)
}
