package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
)

// fixedTenth is a budget that earns a tenth of a retry for each success, however the server is. A
// retry that it refuses fails at once.
func fixedTenth() retryhttp.Policy { return ungated(tenth)() }

func TestOneDeadBackendOfThreeCostsFewRequests(t *testing.T) {
	for name, p := range map[string]Partial{
		"one process":                        {Processes: 1},
		"one process, refused connections":   {Processes: 1, Refuse: true},
		"100 processes":                      {Processes: 100},
		"100 processes, refused connections": {Processes: 100, Refuse: true},
	} {
		t.Run(name, func(t *testing.T) {
			p.Rate, p.Backends, p.Dead, p.WarmUp, p.For, p.Seeds = 1000, 3, 1, 20*time.Second, 20*time.Second, 1
			p.Policy = defaults
			r := p.Run(t)
			assert.GreaterOrEqual(t, r.Success.Mean, 0.98)
			assert.LessOrEqual(t, r.Load.Mean, 1.55)

			p.Policy = fixedTenth
			r = p.Run(t)
			assert.InDelta(t, 0.76, r.Success.Mean, 0.03, "a fixed tenth")
			assert.InDelta(t, 1.14, r.Load.Mean, 0.03, "a fixed tenth")
		})
	}
	t.Run("without a budget, 1.2 % fail", func(t *testing.T) {
		r := Partial{
			Policy: ungated(unlimited), Processes: 1, Rate: 1000, Backends: 3, Dead: 1,
			For: 20 * time.Second, Seeds: 1,
		}.Run(t)
		assert.InDelta(t, SuccessOf(1.0/3, 3), r.Success.Mean, 6*SuccessDeviation(1.0/3, 3)/141) // 20,000 requests
		assert.InDelta(t, LoadOf(1.0/3, 3), r.Load.Mean, 6*LoadDeviation(1.0/3, 3)/141)
	})
}

func TestOneDeadBackendOfTwo(t *testing.T) {
	for name, processes := range map[string]int{"one process": 1, "100 processes": 100} {
		t.Run(name, func(t *testing.T) {
			p := Partial{
				Policy: defaults, Processes: processes, Rate: 1000, Backends: 2, Dead: 1,
				WarmUp: 20 * time.Second, For: 20 * time.Second, Seeds: 16 / fewer,
			}
			r := p.Run(t)
			assert.GreaterOrEqual(t, r.Success.Mean, 0.59)
			assert.LessOrEqual(t, r.Load.Mean, 1.55)

			p.Policy = fixedTenth
			r = p.Run(t)
			assert.InDelta(t, 0.56, r.Success.Mean, 0.02, "a fixed tenth")
			assert.InDelta(t, 1.12, r.Load.Mean, 0.03, "a fixed tenth")
		})
	}
}

func TestAFifthThatFailsIsRetriedAtAnyRate(t *testing.T) {
	for name, c := range map[string]struct {
		rate  float64
		span  time.Duration
		seeds int
		tenth float64
	}{
		"1,000 a second": {1000, 20 * time.Second, 1, 0.92},
		"20 a second":    {20, 20 * time.Second, 20, 0.92},
		"one a second":   {1, 100 * time.Second, 80, 0.90},
		"one in 10 s":    {0.1, 1000 * time.Second, 80, 0.90},
	} {
		t.Run(name, func(t *testing.T) {
			p := Partial{
				Policy: defaults, Processes: 1, Rate: c.rate, Backends: 5, Dead: 1,
				WarmUp: 20 * time.Second, For: c.span, Seeds: c.seeds,
			}
			assert.GreaterOrEqual(t, p.Run(t).Success.Mean, 0.995)

			p.Policy = fixedTenth
			assert.InDelta(t, c.tenth, p.Run(t).Success.Mean, 0.025, "a fixed tenth")
		})
	}
}

// If most attempts fail, retries can save few requests, and callers that wait are worse off. A request whose
// retry the budget refuses ends after this retry's backoff, which is an eighth of a second in the mean.
func TestRequestsFailSoonWhereMostAttemptsFail(t *testing.T) {
	for name, dead := range map[string]int{"70 %": 7, "90 %": 9} {
		for _, processes := range []int{1, 100} {
			t.Run(fmt.Sprintf("%s, %d processes", name, processes), func(t *testing.T) {
				p := Partial{
					Policy: defaults, Processes: processes, Rate: 1000, Backends: 10, Dead: dead,
					WarmUp: 20 * time.Second, For: 20 * time.Second, Seeds: 1,
				}
				r := p.Run(t)
				assert.LessOrEqual(t, r.Load.Mean, 1.2)
				assert.LessOrEqual(t, r.Quantile(0.5), 200*time.Millisecond)

				p.Policy = fixedTenth
				r = p.Run(t)
				assert.LessOrEqual(t, r.Load.Mean, 1.12, "a fixed tenth")
				assert.InDelta(t, 130*time.Millisecond, r.Quantile(0.5), float64(10*time.Millisecond), "a fixed tenth")
			})
		}
	}
}
