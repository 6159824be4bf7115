package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Tokens are there for all. No first attempt follows that could release the retries.
func TestGateReleasesAFanoutSoonAfterItsOutage(t *testing.T) {
	for name, c := range map[string]struct {
		requests int
		outage   time.Duration
		p50, p99 time.Duration
	}{
		"1,000 requests, 150 ms": {1000, 150 * time.Millisecond, time.Second, 2 * time.Second},
		"100 requests, 150 ms":   {100, 150 * time.Millisecond, time.Second, 2 * time.Second},
		"1,000 requests, 1 s":    {1000, time.Second, 3 * time.Second, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			r := Fanout{Policy: unlimited, Requests: c.requests, For: c.outage, Seeds: 8}.Run(t)
			t.Logf("p50 %v, p99 %v, longest %v, lost %v, peak %v", r.Quantile(0.5), r.Quantile(0.99), r.Quantile(1), r.Lost, r.Peak)
			assert.LessOrEqual(t, r.Lost.Mean, 0.01) // probes may use all their attempts in the outage
			assert.LessOrEqual(t, r.Quantile(0.5), c.p50)
			assert.LessOrEqual(t, r.Quantile(0.99), c.p99)
		})
	}
}

// A fresh process has Burst tokens. Its first attempts fail before any has succeeded.
func TestManyRequestsAtOnceInAFreshProcess(t *testing.T) {
	for name, c := range map[string]struct {
		outage time.Duration
		part   float64
		hit    float64
		lost   float64
	}{
		"1 % fail":                          {Never, 0.01, 100, 0.01},
		"a fifth fails in the first 100 ms": {100 * time.Millisecond, 0.2, 2000, 0.05},
		"down for the first 200 ms":         {200 * time.Millisecond, 0, 10_000, 0.20},
	} {
		t.Run(name, func(t *testing.T) {
			// The fewer requests, the more seeds: two dozen failures are too few to tell shares apart.
			f := Fanout{Policy: defaults, Requests: 10_000 / fewer, For: c.outage, Part: c.part, Seeds: 2 * fewer}
			r := f.Run(t)
			t.Logf("hit %v, lost %v, p50 %v, peak %v", r.Hit, r.LostOfHit, r.Quantile(0.5), r.Peak)
			assert.InEpsilon(t, c.hit/fewer, r.Hit.Mean, 0.3)
			assert.LessOrEqual(t, r.LostOfHit.Mean, c.lost)
			f.Policy = ungated(tenth)
			assert.GreaterOrEqual(t, f.Run(t).LostOfHit.Mean, 0.7, "a tenth for each success, and no line")
			f.Policy = ungated(unlimited)
			assert.LessOrEqual(t, f.Run(t).LostOfHit.Mean, 0.02, "no budget")
		})
	}
}
