package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

func TestFleetStaysWithinItsBudgets(t *testing.T) {
	// A tenth of the full size: what counts is the rate of each process.
	const rate = 100.0
	for _, c := range []struct {
		processes int
		failing   float64
		load      [2]float64 // over the last third of a minute, from and to
		success   [2]float64
		early     float64 // the least load in the second to the sixth second
	}{
		// With a tenth failing, the budget pays for nearly every retry.
		{1, 0.1, [2]float64{1.05, 1.16}, [2]float64{0.95, 1}, 1},
		{10, 0.1, [2]float64{1.05, 1.16}, [2]float64{0.95, 1}, 1},
		{100, 0.1, [2]float64{1.05, 1.16}, [2]float64{0.95, 1}, 1},
		{1000, 0.1, [2]float64{1.05, 1.16}, [2]float64{0.99, 1}, 1},
		// With half failing, a success earns a tenth or a half, as chance has it.
		{1, 0.5, [2]float64{1.04, 1.34}, [2]float64{0.46, 0.68}, 1},
		{10, 0.5, [2]float64{1.04, 1.34}, [2]float64{0.46, 0.68}, 1},
		{100, 0.5, [2]float64{1.04, 1.5}, [2]float64{0.46, 0.75}, 1},
		// In an outage retries die out.
		{1, 1, [2]float64{1, 1}, [2]float64{0, 0}, 1},
		{10, 1, [2]float64{1, 1}, [2]float64{0, 0}, 1},
		{100, 1, [2]float64{1, 1.01}, [2]float64{0, 0}, 1.2},
		// A process with a request in 10 s has Burst tokens for it, and a
		// thousand of them have a minute's worth of retries. It is finite.
		{1000, 0.5, [2]float64{1.3, 1.8}, [2]float64{0.6, 0.9}, 1.5},
		{1000, 1, [2]float64{1.02, 1.2}, [2]float64{0, 0}, 2.5},
	} {
		t.Run(fmt.Sprintf("%d processes, %v failing", c.processes, c.failing), func(t *testing.T) {
			t.Parallel()
			r := Fleet{
				Policy: defaults, Processes: c.processes, Rate: rate, WarmUp: 20 * time.Second,
				Failing: c.failing, For: time.Minute, Seeds: 4 / fewer,
			}.Run(t)
			assert.LessOrEqual(t, r.Spent, 1.0, "of the tokens")
			assert.GreaterOrEqual(t, r.SettledLoad.Mean, c.load[0])
			assert.LessOrEqual(t, r.SettledLoad.Mean, c.load[1])
			assert.GreaterOrEqual(t, r.SettledSuccess.Mean, c.success[0])
			assert.LessOrEqual(t, r.SettledSuccess.Mean, c.success[1])
			assert.GreaterOrEqual(t, engine.Total(r.LoadSeries[1:6])/5, c.early)
		})
	}
}
