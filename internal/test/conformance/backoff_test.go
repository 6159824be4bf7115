package conformance_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

type backoffSpec struct {
	Kind    string   `json:"kind"`
	DelayMs int64    `json:"delay_ms"`
	StepMs  int64    `json:"step_ms"`
	BaseMs  int64    `json:"base_ms"`
	LimitMs int64    `json:"limit_ms"`
	Ratio   float64  `json:"ratio"`
	Spread  *float64 `json:"spread"`
	PlusMs  *int64   `json:"plus_ms"`
}

func (s *backoffSpec) build(t *testing.T) retryhttp.Backoff {
	t.Helper()
	if s == nil {
		return nil
	}
	b := s.plain(t)
	if s.Spread != nil {
		b = b.Spread(*s.Spread)
	}
	if s.PlusMs != nil {
		b = b.PlusJitter(millis(*s.PlusMs))
	}
	return b
}

func (s *backoffSpec) plain(t *testing.T) retryhttp.Backoff {
	t.Helper()
	base, limit := millis(s.BaseMs), millis(s.LimitMs)
	switch s.Kind {
	case "constant":
		return retryhttp.Constant(millis(s.DelayMs))
	case "linear":
		return retryhttp.Linear(millis(s.StepMs), limit)
	case "exponential":
		return retryhttp.Exponential(base, limit)
	case "geometric":
		return retryhttp.Geometric(base, limit, s.Ratio)
	case "full-jitter":
		return retryhttp.FullJitter(base, limit)
	case "equal-jitter":
		return retryhttp.EqualJitter(base, limit)
	case "decorrelated-jitter":
		return retryhttp.DecorrelatedJitter(base, limit)
	}
	require.Fail(t, "no backoff of this kind", s.Kind)
	return nil
}

type backoffCase struct {
	vector
	Backoff        backoffSpec    `json:"backoff"`
	WaitsMs        []int64        `json:"waits_ms"`
	WaitsNs        []int64        `json:"waits_ns"`
	Ranges         []backoffRange `json:"ranges"`
	ToleranceNs    int64          `json:"tolerance_ns"`
	ToleranceShare float64        `json:"tolerance_share"`
}

type backoffRange struct {
	Retry      int   `json:"retry"`
	PreviousMs int64 `json:"previous_ms"`
	LowMs      int64 `json:"low_ms"`
	HighMs     int64 `json:"high_ms"`
	LowNs      int64 `json:"low_ns"`
	HighNs     int64 `json:"high_ns"`
}

func testBackoffVectors(t *testing.T) {
	file := vectors[backoffCase](t, "backoff.json")
	require.Positive(t, file.Draws)
	for _, c := range file.Cases {
		t.Run(c.Name, func(t *testing.T) {
			backoff := c.Backoff.build(t)
			want := c.sequence()
			require.NotZero(t, len(want)+len(c.Ranges), "the case expects nothing")
			previous := time.Duration(0)
			for i, wait := range want {
				got := backoff(i+1, previous)
				tolerance := time.Duration(c.ToleranceNs) + time.Duration(c.ToleranceShare*float64(wait))
				require.LessOrEqual(t, (got - wait).Abs(), tolerance, "retry %d: %v is not %v; %s", i+1, got, wait, c.Because)
				previous = got
			}
			for _, r := range c.Ranges {
				d := draws{
					low:       millis(r.LowMs) + time.Duration(r.LowNs),
					high:      millis(r.HighMs) + time.Duration(r.HighNs),
					tolerance: time.Duration(c.ToleranceNs),
				}
				for range file.Draws {
					d.add(t, backoff(r.Retry, millis(r.PreviousMs)))
				}
				d.requireBothEnds(t, file.GapShare)
			}
		})
	}
}

func (c *backoffCase) sequence() []time.Duration {
	var list []time.Duration
	for _, ms := range c.WaitsMs {
		list = append(list, millis(ms))
	}
	for _, ns := range c.WaitsNs {
		list = append(list, time.Duration(ns))
	}
	return list
}

// draws are random waits. All must lie within a range, and some must come near each end of it.
type draws struct {
	low, high       time.Duration
	tolerance       time.Duration
	least, greatest time.Duration
	count           int
}

func (d *draws) add(t *testing.T, wait time.Duration) {
	t.Helper()
	// testify's comparisons are slow, and this one runs a million times.
	if wait < d.low-d.tolerance || wait > d.high+d.tolerance {
		require.FailNowf(t, "out of range", "%v is not within [%v, %v]", wait, d.low, d.high)
	}
	if d.count == 0 {
		d.least, d.greatest = wait, wait
	}
	d.least, d.greatest = min(d.least, wait), max(d.greatest, wait)
	d.count++
}

func (d *draws) requireBothEnds(t *testing.T, gapShare float64) {
	t.Helper()
	gap := float64(d.high-d.low)*gapShare + float64(d.tolerance)
	require.LessOrEqual(t, float64(d.least-d.low), gap, "none of %d came near %v", d.count, d.low)
	require.LessOrEqual(t, float64(d.high-d.greatest), gap, "none of %d came near %v", d.count, d.high)
}
