package sim

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
)

func TestGateOfSlowPayments(t *testing.T) {
	// Ten payments at once need ten tokens.
	enough := func() retryhttp.Policy { return retryhttp.Policy{Budget: &retryhttp.TokenBucket{Burst: 30}} }
	for _, outage := range []time.Duration{100 * time.Millisecond, time.Second, 3 * time.Second} {
		t.Run(outage.String(), func(t *testing.T) {
			p := Payments{Policy: enough, Number: 10, For: outage, Takes: 2 * time.Second, Seeds: 100}
			with := p.Run(t)
			p.Policy = ungated(enough)
			without := p.Run(t)
			chance := 3 * math.Hypot(with.Paid.Error, without.Paid.Error)
			assert.GreaterOrEqual(t, with.Paid.Mean, without.Paid.Mean-0.005-chance)
			assert.GreaterOrEqual(t, with.Paid.Mean, 0.98)
			assert.LessOrEqual(t, with.Quantile(1), 10*time.Second)
			assert.GreaterOrEqual(t, with.Quantile(0.5), 4*time.Second, "the price: the first answer takes 2 s")
			if outage >= time.Second {
				assert.LessOrEqual(t, without.Paid.Mean, 0.5)
			} else {
				assert.LessOrEqual(t, without.Quantile(0.5), 3*time.Second)
			}
		})
	}
}
