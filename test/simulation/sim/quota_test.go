package sim

import (
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
)

// A refusal is quick, so workers without retries run through all jobs in a moment. A retry that
// waits for as long as the server asks slows its worker down to the allowed rate. So does a retry that
// the budget refuses, because its request ends after the retry's backoff.
func TestWorkersUnderAQuotaLoseFewJobs(t *testing.T) {
	for _, c := range []struct {
		workers int
		lost    float64
		tenth   float64 // the least that is lost with a tenth for each success
	}{
		{10, 0.01, 0.2},
		{50, 0.12, 0.8}, // by MaxAttempts
	} {
		t.Run(fmt.Sprint(c.workers, " workers"), func(t *testing.T) {
			q := Quota{Policy: defaults, Allowed: 20, Workers: c.workers, Jobs: 1000, Seeds: 8}
			r := q.Run(t)
			t.Logf("lost %v, load %v, took %v s", r.Lost, r.Load, r.Took)
			assert.LessOrEqual(t, r.Lost.Mean, c.lost)
			q.Policy = unlimited
			free := q.Run(t)
			assert.InDelta(t, free.Lost.Mean, r.Lost.Mean, 0.01+3*math.Hypot(free.Lost.Error, r.Lost.Error), "without a budget")
			q.Policy = ungated(tenth)
			assert.GreaterOrEqual(t, q.Run(t).Lost.Mean, c.tenth, "a tenth for each success, and no line")
			q.Policy = once
			assert.GreaterOrEqual(t, q.Run(t).Lost.Mean, 0.95, "no retries")
		})
	}
}

// A 429 that names no wait may be a limit or an overload, and the library cannot tell. A user who knows that
// it is a limit has RetryAfter ask for the limit's second. The table of docs/migrating.md is this test's.
func TestWorkersUnderALimitThatNamesNoWait(t *testing.T) {
	for _, c := range []struct {
		workers int
		lost    float64 // at most, by those who ask for a second
	}{
		{2, 0.01}, {5, 0.01}, {10, 0.01}, {20, 0.05}, {50, 0.13},
	} {
		t.Run(fmt.Sprint(c.workers, " workers"), func(t *testing.T) {
			lost := func(name string, policy func() retryhttp.Policy) float64 {
				r := Quota{Policy: policy, Allowed: 20, Workers: c.workers, Jobs: 1000, Seeds: 8, Bare: true}.Run(t)
				t.Logf("%-17s lost %v, load %v, took %v s", name, r.Lost, r.Load, r.Took)
				return r.Lost.Mean
			}
			unchanged := lost("the default", defaults)
			lost("a base of 1 s", slower)
			asking := lost("asking for 1 s", asksForASecond)
			aws := lost("the rules of AWS", ofAWS)
			lost("retries unbounded", ungated(unlimited))
			assert.LessOrEqual(t, asking, c.lost)
			assert.Less(t, asking, unchanged)
			if c.workers > 2 {
				assert.Less(t, unchanged, aws)
			}
		})
	}
}

func slower() retryhttp.Policy {
	return retryhttp.Policy{Backoff: retryhttp.FullJitter(time.Second, 20*time.Second)}
}

// asksForASecond is a Policy for a limit that counts by seconds, and does not say so.
func asksForASecond() retryhttp.Policy {
	return retryhttp.Policy{RetryAfter: func(a retryhttp.Attempt) (time.Duration, bool) {
		if a.Response == nil {
			return 0, false
		}
		wait, ok := retryhttp.RetryAfter(a.Response.Header)
		if !ok && a.Response.StatusCode == http.StatusTooManyRequests {
			return time.Second, true
		}
		return wait, ok
	}}
}

// ofAWS has the rules of the AWS SDKs of 2026 for throttles: 500 tokens, of which a retry costs 5 and a success
// earns 1, and a base of a second.
func ofAWS() retryhttp.Policy {
	return retryhttp.Policy{
		MaxAttempts: 3,
		Backoff:     retryhttp.FullJitter(time.Second, 20*time.Second),
		Budget:      &retryhttp.TokenBucket{Ratio: 0.2, HealthyRatio: 0.2, Burst: 100, Window: -1},
		Gate:        &retryhttp.Gate{Hold: -1},
	}
}
