package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
)

// step is a process at 1,000 requests a second. The latencies of its service are ten times
// as long for ten seconds.
func step(h Hedger) Hedging {
	return Hedging{
		Hedger: h, Rate: 1000, WarmUp: 15 * time.Second, Before: 20 * time.Second,
		For: 10 * time.Second, After: 5 * time.Second, Slower: 10, Seeds: 4 / fewer,
	}
}

// failing is the same process, whose service fails for ten seconds.
func failing(h Hedger, attemptTimeout time.Duration) Hedging {
	return Hedging{
		Hedger: h, Rate: 1000, WarmUp: 5 * time.Second, Before: 2 * time.Second,
		For: 10 * time.Second, After: 5 * time.Second, AttemptTimeout: attemptTimeout, Seeds: 4 / fewer,
	}
}

// hedged is a Hedge with its Share. It adapts to latencies if it has no After.
type hedged struct {
	Hedger
	share  float64
	adapts bool
}

func hedges() map[string]hedged {
	hedger := func(share float64, after time.Duration) Hedger {
		return Hedger{Hedge: func() *retryhttp.Hedge { return &retryhttp.Hedge{Share: share, After: after} }}
	}
	return map[string]hedged{
		"zero value": {hedger(0, 0), 0.05, true},
		"Share":      {hedger(0.02, 0), 0.02, true},
		"After":      {hedger(0, 10*time.Millisecond), 0.05, false},
	}
}

func TestHedgesCutTheTailForLittleLoad(t *testing.T) {
	alone := step(Hedger{}).Run(t).Quantile(0.999, -20, 0)
	for name, c := range hedges() {
		t.Run(name, func(t *testing.T) {
			r := step(c.Hedger).Run(t)
			assert.LessOrEqual(t, r.Quantile(0.999, -20, 0), alone/5)
			assert.LessOrEqual(t, r.Extra(-20, 0), c.share+0.005)
			assert.LessOrEqual(t, r.Most(-20, 15), c.share+0.015, "in any second, the step's included")
			assert.GreaterOrEqual(t, r.Extra(0, 1), c.share, "in the step, all that is allowed")
			if c.adapts {
				assert.Less(t, r.Extra(10, 15), r.Extra(-20, 0), "slow answers are still in the Window")
			} else {
				assert.InDelta(t, r.Extra(-20, 0), r.Extra(10, 15), 0.005)
			}
			assertReported(t, r)
		})
	}
}

// assertReported asserts that the Outcomes and the service have counted the same hedges.
func assertReported(t *testing.T, r HedgingResult) {
	t.Helper()
	for _, run := range r.runs {
		assert.Equal(t, run.counted, run.reported)
	}
}

// Without an allowance, hedges double the load of a service that turns slow.
func TestHedgesWithoutAllowanceDoubleTheLoadInAStep(t *testing.T) {
	fixed := step(Hedger{Model: FixedDelay(10 * time.Millisecond)})
	fixed.Seeds = 1
	r := fixed.Run(t)
	assert.LessOrEqual(t, r.Extra(-20, 0), 0.025)
	assert.GreaterOrEqual(t, r.Extra(0, 1), 0.9)
	assert.GreaterOrEqual(t, r.Extra(9, 10), 0.9, "to the end")

	quantile := step(Hedger{Model: QuantileDelay(0.95, 30*time.Second)})
	quantile.Seeds = 4
	r = quantile.Run(t)
	assert.LessOrEqual(t, r.Extra(-20, 0), 0.055)
	assert.GreaterOrEqual(t, r.Extra(0, 1), 0.9)
	assert.LessOrEqual(t, r.Extra(9, 10), 0.5, "it adapts")
}

func TestNoHedgesInAnOutage(t *testing.T) {
	for name, c := range hedges() {
		t.Run(name, func(t *testing.T) {
			r := failing(c.Hedger, 0).Run(t)
			assert.Positive(t, r.Hedges(-1, 0), "just before")
			assert.Zero(t, r.Hedges(0, 10))
			assert.LessOrEqual(t, r.Extra(10, 15), c.share+0.015, "afterwards")
			assertReported(t, r)
		})
	}
}

// An attempt without an answer is slow, and earns nothing.
func TestHedgesOfABlackHoleAreAllThatWasSaved(t *testing.T) {
	const (
		saved          = 10
		attemptTimeout = 500 * time.Millisecond
	)
	for name, c := range hedges() {
		t.Run(name, func(t *testing.T) {
			r := failing(c.Hedger, attemptTimeout).Run(t)
			assert.Positive(t, r.Hedges(0, 1))
			assert.LessOrEqual(t, r.Hedges(0, 10), saved)
			if c.adapts {
				assert.Zero(t, r.Hedges(11, 15), "attempts that have timed out are in the Window")
			} else {
				assert.Positive(t, r.Hedges(11, 15))
			}
			assertReported(t, r)
		})
	}
	fixed := failing(Hedger{Model: FixedDelay(10 * time.Millisecond)}, attemptTimeout)
	fixed.Seeds = 1
	assert.GreaterOrEqual(t, fixed.Run(t).Extra(0, 1), 0.9, "without an allowance, each is hedged")
}
