package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A part of the attempts fails, whichever request they are for: one of three backends is dead
// behind a load balancer, or one of two. Nothing is overloaded, and retries help.
func TestPartialFailureIsRetried(t *testing.T) {
	const length = 30 * time.Second
	for _, c := range []struct {
		name      string
		processes int
		rate      float64 // of all processes
		part      float64 // of the attempts fails
		succeed   float64 // the least
		load      float64 // the most attempts per request
	}{
		{"one of three backends is dead", 1, 1000, 1.0 / 3, 0.98, 1.55},
		{"one of three backends is dead", 100, 1000, 1.0 / 3, 0.98, 1.55},
		{"one of two backends is dead", 1, 1000, 0.5, 0.60, 1.55},
		{"one of two backends is dead", 100, 1000, 0.5, 0.60, 1.55},
		{"a fifth fails", 1, 1000, 0.2, 0.995, 1.3},
		{"a fifth fails", 1, 20, 0.2, 0.99, 1.35},
		{"a fifth fails", 1, 1, 0.2, 0.97, 1.5},
		{"70 % fail", 1, 1000, 0.7, 0.3, 1.2},
		{"70 % fail", 100, 1000, 0.7, 0.3, 1.25},
		{"90 % fail", 1, 1000, 0.9, 0.1, 1.2},
		{"90 % fail", 100, 1000, 0.9, 0.1, 1.2},
	} {
		t.Run(fmt.Sprintf("%s, %d processes, %v/s", c.name, c.processes, c.rate), func(t *testing.T) {
			if fewer > 1 && c.processes > 1 {
				t.Skip("the race detector finds no more in many processes")
			}
			o := Outage{
				Policy: defaults, Processes: c.processes, Rate: c.rate, WarmUp: steady,
				For: length, After: time.Second, Part: c.part, Seeds: 2 / min(fewer, 2),
			}
			succeed := func(r OutageResult) float64 {
				return 1 - r.Lost.Value*r.Hit.Value/(c.rate*length.Seconds())
			}
			r := o.Run(t)
			t.Logf("succeed %.4f, load %v, p50 of the recovered %v", succeed(r), r.Load, r.Quantile(0.5))
			assert.GreaterOrEqual(t, succeed(r), c.succeed)
			assert.LessOrEqual(t, r.Load.Value, c.load)
			o.Policy, o.Seeds = ungated(tenth), 1
			r = o.Run(t)
			t.Logf("a tenth, no line: succeed %.4f, load %v", succeed(r), r.Load)
			assert.LessOrEqual(t, r.Load.Value, 1.3, "a tenth for each success")
		})
	}
}
