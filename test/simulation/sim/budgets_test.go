package sim

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var failureShares = []float64{0.05, 0.1, 0.2, 0.5, 0.75, 1}

func policyNamed(t *testing.T, name string) func() (retryhttp.Policy, float64) {
	for _, b := range Budgets() {
		if b.Name == name {
			return b.Policy
		}
	}
	require.Fail(t, "no policy "+name)
	return nil
}

func TestWithoutABudgetLoadFollowsTheClosedForm(t *testing.T) {
	const sigmas = 6
	for name, retries := range map[string]int{"no retry": 0, "3 retries": 3} {
		for _, p := range failureShares {
			t.Run(fmt.Sprintf("%s, %v fail", name, p), func(t *testing.T) {
				got := PartialFailure(t, 1, BrookersClients(6*time.Second), p, policyNamed(t, name))[0]
				root := math.Sqrt(got.Requests)
				assert.InDelta(t, LoadOf(p, retries), got.Load, sigmas*LoadDeviation(p, retries)/root+1e-9, "load")
				within := sigmas * SuccessDeviation(p, retries) / root
				if within > 0 { // no bell curve has so few failures
					within = max(within, 2/got.Requests)
				}
				assert.InDelta(t, SuccessOf(p, retries), got.Success, within+1e-9, "success")
			})
		}
	}
}

func TestRetriesNeverExceedWhatWasEarned(t *testing.T) {
	const burst = 5
	for name, c := range map[string]struct {
		ratio float64
		free  float64 // attempts per request that need no token, after the first Hold
	}{"bucket of 5": {0.1, 0}, "default": {0.5, 0.02}} {
		for _, p := range failureShares {
			t.Run(fmt.Sprintf("%s, %v fail", name, p), func(t *testing.T) {
				got := PartialFailure(t, 1, BrookersClients(budgetTime), p, policyNamed(t, name))[0]
				assert.LessOrEqual(t, got.MostUnearned, burst+1e-6, "at any moment, of any client")
				// A bucket may spend within the window what it held at the window's start.
				most := LoadUnderBudget(p, c.ratio) + 100*burst/got.Requests + c.free
				assert.LessOrEqual(t, got.Load, most)
				if p == 1 {
					assert.Equal(t, 5.0, got.MostRetries, "nothing but what was there at the start")
					assert.LessOrEqual(t, got.Load, 1+c.free, "hardly a retry in the last two thirds")
				}
			})
		}
	}
}

// "Fixing retries with token buckets and circuit breakers", Marc Brooker, 2022, as its text has
// it: successes, and not attempts, fill the bucket. The post has plots only. There are 3 attempts,
// 50 ms apart, in one minute, of which the last two thirds count.
//
// The bounds are six times the deviation of twelve runs of this size from each other: 0.0009 in
// load, 0.0026 in success. They are times root 2, because the model's figures come from such runs,
// too.
func TestABucketOfFiveDoesWhatTheModelSays(t *testing.T) {
	for _, row := range []struct{ p, load, success float64 }{
		{0.1, 1.092, 0.980},
		{0.2, 1.087, 0.868},
		{0.5, 1.053, 0.525},
		{1, 1, 0},
	} {
		t.Run(fmt.Sprint(row.p, " fail"), func(t *testing.T) {
			got := PartialFailure(t, 1, BrookersClients(publishedTime), row.p, policyNamed(t, "bucket of 5"))[0]
			assert.InDelta(t, row.load, got.Load, 6*math.Sqrt2*0.0009)
			assert.InDelta(t, row.success, got.Success, 6*math.Sqrt2*0.0026)
			if row.p >= 0.2 { // else the tokens of the start last longer than a third of the time
				// Here the load deviates by 0.0003.
				load := LoadUnderBudget(row.p, 0.1)
				assert.InDelta(t, load, got.Load, 6*0.0003, "closed form of the load")
				assert.InDelta(t, load*(1-row.p), got.Success, 6*0.0026, "closed form of the success")
			}
		})
	}
}
