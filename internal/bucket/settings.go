package bucket

import (
	"cmp"
	"math"
	"time"
)

// Settings are what a bucket is made with. No field is negative or NaN. Ratio and MinPerSecond are
// far from overflow.
type Settings struct {
	Ratio        float64       // tokens earned by each deposit while most results are failures
	HealthyRatio float64       // tokens earned by each deposit otherwise; at least Ratio
	Burst        float64       // tokens at the start, and the least capacity
	Window       time.Duration // capacity for what this long at the recent rate earns
	IdleAfter    time.Duration // a bucket drawn on longer ago leaves nothing to its successor
	MinPerSecond float64       // tokens per second beyond what was earned
}

const (
	defaultRatio        = 0.1
	defaultHealthyRatio = 0.5
	defaultBurst        = 5
	defaultWindow       = 20 * time.Second
)

// SettingsOf returns Settings with the defaults of a TokenBucket for what is 0, and none of what is negative or
// NaN. A ratio that is set is the healthyRatio, too, which is at least the ratio. Without a window, a bucket
// counts as in use for the default window after each retry.
func SettingsOf(ratio, healthyRatio float64, burst int, window time.Duration, minPerSecond float64) Settings {
	s := Settings{
		Ratio:        sensible(cmp.Or(ratio, defaultRatio)),
		Burst:        float64(max(cmp.Or(burst, defaultBurst), 0)),
		Window:       max(cmp.Or(window, defaultWindow), 0),
		MinPerSecond: sensible(minPerSecond),
	}
	s.IdleAfter = cmp.Or(s.Window, defaultWindow)
	if s.Ratio > 0 {
		s.HealthyRatio = max(sensible(cmp.Or(healthyRatio, ratio, defaultHealthyRatio)), s.Ratio)
	}
	return s
}

// MayEarn reports whether a bucket may grant later what it refuses now. Without a burst and a window, it has no
// room for what a success earns.
func (s Settings) MayEarn() bool {
	hasRoom := s.Burst > 0 || s.Window > 0
	return s.HealthyRatio > 0 && hasRoom || s.MinPerSecond > 0
}

// sensible returns x, or 0 if x is negative or NaN. The result is at most math.MaxInt32, which is
// larger than any sensible setting, and far from overflow.
func sensible(x float64) float64 {
	if !(x > 0) {
		return 0
	}
	return min(x, math.MaxInt32)
}
