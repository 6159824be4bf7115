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
		return retryhttp.Policy{Budget: &retryhttp.TokenBucket{Burst: tokens, Window: -1}}
	}
}

func unlimited() retryhttp.Policy { return retryhttp.Policy{Budget: retryhttp.Unlimited{}} }

// ungated are policies without a Gate.
func ungated(policy func() retryhttp.Policy) func() retryhttp.Policy {
	return func() retryhttp.Policy {
		p := policy()
		p.Gate = &retryhttp.Gate{Hold: -1}
		return p
	}
}

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
		{"300 ms, unlimited", unlimited, long, 2, 0, 0.05},
		{"100 ms, a fixed bucket of 5", fixed(5), short, 2, 0.85, 1},
		{"100 ms, a fixed bucket of 10", fixed(10), short, 2, 0.80, 1},
		{"300 ms, a fixed bucket of 10", fixed(10), long, 2, 0.95, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := Blip{
				Policy: c.policy, Rate: 1000, WarmUp: 20 * time.Second, For: c.length, After: 3 * time.Second,
				Bin: 100 * time.Millisecond, Seeds: c.seeds,
			}.Run(t)
			assert.InDelta(t, 1000*c.length.Seconds(), r.Failed.Value, 40, "requests met it")
			assert.GreaterOrEqual(t, r.LostPart, c.least)
			assert.LessOrEqual(t, r.LostPart, c.atMost)
		})
	}
}

func TestLoadOfBusyProcessFallsBackInOutage(t *testing.T) {
	for _, c := range []struct {
		name          string
		policy        func() retryhttp.Policy
		least, atMost float64 // attempts per request, after 30 s
	}{
		{"the budget alone", ungated(defaults), 1, 1.02},
		{"unlimited", ungated(unlimited), 3, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := Blip{
				Policy: c.policy, Rate: 1000, WarmUp: 20 * time.Second, For: 35 * time.Second, Bin: time.Second, Seeds: 1,
			}.Run(t)
			load := r.Relative()
			assert.Greater(t, slices.Max(load[:5]), 1.5, "it does retry at first")
			assert.LessOrEqual(t, slices.Max(load[30:]), c.atMost)
			assert.GreaterOrEqual(t, slices.Min(load[30:]), c.least)
		})
	}
}
