package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
)

// first holds first attempts, too, while a Retry-After closes their key.
func first() retryhttp.Policy { return retryhttp.Policy{Gate: &retryhttp.Gate{HoldFirst: true}} }

func TestGateOfAProcessThatIsSentAway(t *testing.T) {
	c := Throttle{
		Policy: defaults, Rate: 1000, WarmUp: steady, Closed: 2 * time.Second, After: 10 * time.Second,
		Capacity: 1300, Seeds: 3 / min(fewer, 3),
	}
	t.Run("a third to spare", func(t *testing.T) {
		with := c.Run(t)
		assert.InDelta(t, 1, with.Ignored.Mean, 0.01, "first attempts go on")
		d := c
		d.Policy = ungated(defaults)
		without := d.Run(t)
		assert.Less(t, with.Lost.Mean, 0.85*without.Lost.Mean)
		d.Policy = first
		held := d.Run(t)
		assert.Less(t, held.Ignored.Mean, 0.01, "not even first attempts")
		assert.LessOrEqual(t, held.Lost.Mean, 0.01)
	})
	t.Run("HoldFirst, with double the capacity", func(t *testing.T) {
		d := c
		d.Policy, d.Capacity = first, 2000
		r := d.Run(t)
		assert.Less(t, r.Ignored.Mean, 0.01)
		assert.LessOrEqual(t, r.Lost.Mean, 0.01)
	})
}
