package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
)

func TestGateOfWorkersInAClosedLoop(t *testing.T) {
	for _, workers := range []int{10, 50} {
		for _, outage := range []time.Duration{time.Second, 3 * time.Second} {
			t.Run(fmt.Sprint(workers, " workers, ", outage), func(t *testing.T) {
				w := Workers{
					Policy: defaults, Workers: workers, WarmUp: steady,
					For: outage, After: 5 * time.Second, Seeds: 8, // in one seed of a hundred, several lose at once
				}
				with := w.Run(t)
				w.Policy = ungated(defaults)
				without := w.Run(t)
				assert.LessOrEqual(t, with.Lost.Mean, 0.05)
				assert.GreaterOrEqual(t, without.Lost.Mean, 0.2)
				assert.LessOrEqual(t, with.Load.Mean, without.Load.Mean/2)
				assert.LessOrEqual(t, with.Back, 2*time.Second, "after the outage")
				assert.LessOrEqual(t, without.Back, 1500*time.Millisecond)
			})
		}
	}
}

func TestGateOfFewWorkersCostsThemNoMoreRequests(t *testing.T) {
	w := Workers{
		Policy: defaults, Workers: 3, WarmUp: steady, For: 10 * time.Second, After: 10 * time.Second, Seeds: 8,
	}
	with := w.Run(t)
	w.Policy = ungated(defaults)
	without := w.Run(t)
	assert.LessOrEqual(t, with.Lost.Mean*with.Hit.Mean, without.Lost.Mean*without.Hit.Mean/3)
	assert.LessOrEqual(t, with.Load.Mean, without.Load.Mean/3)
	assert.LessOrEqual(t, with.Back, 5*time.Second)
}

func TestGateNeverDelaysALoneClient(t *testing.T) {
	persistent := func() retryhttp.Policy {
		return retryhttp.Policy{
			MaxAttempts: -1, Budget: retryhttp.Unlimited{},
			Backoff: retryhttp.Exponential(250*time.Millisecond, 2*time.Second),
		}
	}
	for name, w := range map[string]Workers{
		"through an outage": {Policy: persistent, For: 20 * time.Second},
		"through a black hole": {
			Policy: withTimeout(persistent, time.Second), For: 20 * time.Second, Hang: true,
		},
		"request after request, with five retries": {
			Policy: func() retryhttp.Policy {
				return retryhttp.Policy{
					Backoff: retryhttp.Exponential(250*time.Millisecond, 2*time.Second),
					Budget:  &retryhttp.TokenBucket{Ratio: -1},
				}
			},
			For: 20 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w.Workers, w.After, w.Seeds = 1, 5*time.Second, 4
			with := w.Run(t)
			policy := w.Policy
			w.Policy = ungated(policy)
			without := w.Run(t)
			assert.Equal(t, without.Times, with.Times, "of attempts")
			assert.Zero(t, with.Held)
			assert.Greater(t, with.Load.Mean, 5.0, "attempts in the outage")
		})
	}
}
