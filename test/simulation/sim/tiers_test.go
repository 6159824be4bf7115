package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestTiersOverAFlakyServiceSucceed(t *testing.T) {
	c := Tiers{
		Policy: defaults, Transports: 3, Rate: 300, Failing: 0.3,
		WarmUp: steady, For: 20 * time.Second, Seeds: 2,
	}
	r := c.Run(t)
	assert.GreaterOrEqual(t, r.Success.Mean, 0.995)
	assert.LessOrEqual(t, r.Load.Mean, 1.7)

	c.Policy = fixedTenth
	r = c.Run(t)
	assert.InDelta(t, 0.981, r.Success.Mean, 0.015, "a fixed tenth")
	assert.InDelta(t, 1.38, r.Load.Mean, 0.05, "a fixed tenth")
}

// The uppermost Transport retries what the others have given up. So its retries are retried, too.
func TestTiersOverAnOverloadedService(t *testing.T) {
	c := Tiers{
		Policy: once, Transports: 3, Rate: 300, Capacity: 250, Cost: 0.1,
		WarmUp: 20 * time.Second, For: time.Minute, Seeds: 1,
	}
	none := c.Run(t).Success.Mean

	c.Policy = defaults
	r := c.Run(t)
	assert.GreaterOrEqual(t, r.Success.Mean/none, 0.90)
	assert.LessOrEqual(t, r.Load.Mean, 1.7)

	c.Policy = fixedTenth
	r = c.Run(t)
	assert.InDelta(t, 0.96, r.Success.Mean/none, 0.02, "a fixed tenth")
	assert.InDelta(t, 1.24, r.Load.Mean, 0.05, "a fixed tenth")

	c.Policy, c.For = ungated(unlimited), 15*time.Second
	r = c.Run(t)
	assert.LessOrEqual(t, r.Success.Mean/none, 0.5, "no budget")
	assert.GreaterOrEqual(t, r.Load.Mean, 30.0, "no budget")
}
