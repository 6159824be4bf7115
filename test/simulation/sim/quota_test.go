package sim

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A refusal is quick, so workers without retries run through all jobs in a moment. A retry that
// waits for as long as the server asks slows its worker down to the allowed rate.
func TestWorkersUnderAQuotaLoseFewJobs(t *testing.T) {
	for _, c := range []struct {
		workers int
		lost    float64
	}{
		{10, 0.01},
		{50, 0.12}, // by MaxAttempts
	} {
		t.Run(fmt.Sprint(c.workers, " workers"), func(t *testing.T) {
			q := Quota{Policy: defaults, Allowed: 20, Workers: c.workers, Jobs: 1000, Seeds: 8}
			r := q.Run(t)
			t.Logf("lost %v, load %v, took %v s", r.Lost, r.Load, r.Took)
			assert.LessOrEqual(t, r.Lost.Mean, c.lost)
			q.Policy = unlimited
			assert.InDelta(t, q.Run(t).Lost.Mean, r.Lost.Mean, 0.01, "without a budget")
			q.Policy = ungated(tenth)
			assert.GreaterOrEqual(t, q.Run(t).Lost.Mean, 0.8, "a tenth for each success, and no line")
			q.Policy = once
			assert.GreaterOrEqual(t, q.Run(t).Lost.Mean, 0.95, "no retries")
		})
	}
}
