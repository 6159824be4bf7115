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
			assert.LessOrEqual(t, r.Lost.Value, 0.01) // probes may use all their attempts in the outage
			assert.LessOrEqual(t, r.Quantile(0.5), c.p50)
			assert.LessOrEqual(t, r.Quantile(0.99), c.p99)
		})
	}
}
