package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The service is well, so every retry succeeds, and only a budget loses requests. The bucket has
// 100 tokens.
func TestAnswersThatDieWithTheirConnection(t *testing.T) {
	for _, c := range []struct {
		takes time.Duration
		seeds int
		hit   float64
		lost  float64
	}{
		{5 * time.Second, 200, 250, 0.10},
		{15 * time.Second, 16, 750, 0.30},
		{60 * time.Second, 4, 3000, 0.35},
	} {
		t.Run(fmt.Sprint("answers of ", c.takes), func(t *testing.T) {
			if fewer > 1 && c.takes > 15*time.Second {
				t.Skip("more goroutines than the race detector can follow")
			}
			e := Reset{Policy: defaults, Rate: 50, Takes: c.takes, WarmUp: steady, Seeds: c.seeds / fewer}
			r := e.Run(t)
			t.Logf("hit %v, lost %v, later %v, load %v", r.Hit, r.Lost, r.LostLater, r.Load)
			assert.InEpsilon(t, c.hit, r.Hit.Mean, 0.15)
			// The race detector shuffles what happens at one instant, as all of these failures do. Then 28 %
			// of answers of 15 s are lost, and not 20 %.
			if fewer > 1 {
				c.lost += 0.05
			}
			assert.LessOrEqual(t, r.Lost.Mean, c.lost)
			assert.Zero(t, r.LostLater.Mean)
			e.Policy, e.Seeds = ungated(unlimited), 1
			assert.Zero(t, e.Run(t).Lost.Mean, "no budget")
			e.Policy = once
			assert.Equal(t, 1.0, e.Run(t).Lost.Mean, "no retries")
		})
	}
}
