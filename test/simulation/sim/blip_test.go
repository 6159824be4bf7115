package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
)

func fixed(tokens int) func() retryhttp.Policy {
	return func() retryhttp.Policy {
		return retryhttp.Policy{Budget: &retryhttp.TokenBucket{Ratio: 0.1, Burst: tokens, Window: -1}}
	}
}

func unlimited() retryhttp.Policy { return retryhttp.Policy{Budget: retryhttp.Unlimited{}} }

func TestBusyProcessRidesOutBlip(t *testing.T) {
	const short, long = 100 * time.Millisecond, 300 * time.Millisecond
	for _, c := range []struct {
		name          string
		policy        func() retryhttp.Policy
		length        time.Duration
		seeds         int
		least, atMost float64 // the share lost
	}{
		{"100 ms", defaults, short, 5, 0, 0.01},
		{"300 ms", defaults, long, 5, 0, 0.05},
		{"100 ms, the budget alone", ungated(defaults), short, 2, 0, 0.01},
		{"300 ms, the budget alone", ungated(defaults), long, 2, 0, 0.05},
		{"300 ms, unlimited", ungated(unlimited), long, 2, 0, 0.05},
		{"100 ms, a fixed bucket of 5", ungated(fixed(5)), short, 2, 0.85, 1},
		{"100 ms, a fixed bucket of 10", ungated(fixed(10)), short, 2, 0.80, 1},
		{"300 ms, a fixed bucket of 10", ungated(fixed(10)), long, 2, 0.95, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := Blip{
				Policy: c.policy, Rate: 1000, WarmUp: 20 * time.Second, For: c.length, After: 3 * time.Second,
				Bin: 100 * time.Millisecond, Seeds: c.seeds,
			}.Run(t)
			assert.InDelta(t, 1000*c.length.Seconds(), r.Failed.Mean, 40, "requests met it")
			assert.GreaterOrEqual(t, r.LostPart, c.least)
			assert.LessOrEqual(t, r.LostPart, c.atMost)
		})
	}
}

func TestLoadOfBusyProcessFallsBackInOutage(t *testing.T) {
	for _, c := range []struct {
		name          string
		policy        func() retryhttp.Policy
		first         [2]float64 // the most attempts per request in one of the first 5 s, from and to
		least, atMost float64    // attempts per request, after 30 s
	}{
		{"default", defaults, [2]float64{1, 1.1}, 1, 1.02},
		{"the budget alone", ungated(defaults), [2]float64{1.5, 4}, 1, 1.02},
		{"unlimited", ungated(unlimited), [2]float64{1.5, 5}, 3, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := Blip{
				Policy: c.policy, Rate: 1000, WarmUp: 20 * time.Second, For: 35 * time.Second, Bin: time.Second, Seeds: 1,
			}.Run(t)
			load := r.Relative()
			assert.GreaterOrEqual(t, slices.Max(load[:5]), c.first[0])
			assert.LessOrEqual(t, slices.Max(load[:5]), c.first[1])
			if c.name == "default" {
				assert.Greater(t, slices.Max(load[5:10]), 1.3, "after Hold, they are sent")
			}
			assert.LessOrEqual(t, slices.Max(load[30:]), c.atMost)
			assert.GreaterOrEqual(t, slices.Min(load[30:]), c.least)
		})
	}
}
