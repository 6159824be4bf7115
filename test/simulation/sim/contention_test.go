package sim

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// The standard deviation of a run's time is 2.2 % of its mean for no backoff, 6 % for exponential,
// 10.3 % for equal jitter, 10.9 % for full and 12.2 % for decorrelated jitter. The deviation of
// its calls is at most 3.2 %. With these seeds the mean time's standard error is 0.33 %, a sixth
// of the slack. The model's own error takes a tenth of the slack. The library's jitter cannot be
// seeded.
var contentionSeeds = map[string]int{
	"none":                120,
	"exponential":         350,
	"equal jitter":        980,
	"full jitter":         1090,
	"decorrelated jitter": 1370,
}

// Under the race detector there are fewer seeds, and the slack is as many
// standard errors.
var contentionSlack = 0.02 * math.Sqrt(contentionShare)

func TestContentionCostsWhatTheModelSays(t *testing.T) {
	calls := make(map[string]float64)
	for _, c := range Contenders() {
		t.Run(c.Name, func(t *testing.T) {
			want := c.Model[100]
			runs := Contend(t, contentionSeeds[c.Name]/contentionShare, 100, c.Backoff)
			gotCalls := engine.NumberOf(runs, func(r Contended) float64 { return r.Calls })
			gotTime := engine.NumberOf(runs, func(r Contended) float64 { return r.Time.Seconds() })
			assert.InEpsilon(t, want.Calls, gotCalls.Mean, contentionSlack, "calls: %v", gotCalls)
			assert.InEpsilon(t, want.Time.Seconds(), gotTime.Mean, contentionSlack, "time: %v", gotTime)
			calls[c.Name] = gotCalls.Mean
		})
	}
	assert.Less(t, calls["full jitter"], calls["exponential"]/2, `"reduced our call count by more than half"`)
}
