package redisbudget

import (
	"cmp"
	"math"
	"strings"
	"time"
)

const (
	defaultPrefix       = "retryhttp"
	defaultInterval     = time.Second
	defaultWindow       = 20 * time.Second
	defaultRatio        = 0.1
	defaultHealthyRatio = 0.5
	minPatience         = 50 * time.Millisecond
	maxInterval         = math.MaxInt64 / 20 // 14 years; sums do not overflow
)

// settings holds a Bucket's settings, with the defaults filled in.
type settings struct {
	prefix       string
	ratio        float64 // tokens earned by each success while most results are failures
	healthyRatio float64 // tokens earned by each success otherwise; at least ratio
	burst        float64
	window       time.Duration // 0: no capacity beyond burst
	interval     time.Duration
	fade         time.Duration // time constant with which unreported amounts fade while calls fail
	keep         time.Duration // how long a balance outlives its last use
	patience     time.Duration // how long a call may take before the own bucket decides
	retire       time.Duration // time without use after which an account may be dropped
}

func (b *Bucket) resolve() settings {
	s := settings{
		prefix:   withoutTag(cmp.Or(b.Prefix, defaultPrefix)),
		ratio:    cmp.Or(b.Ratio, defaultRatio),
		burst:    float64(max(cmp.Or(b.Burst, 20), 0)),
		window:   max(cmp.Or(b.Window, defaultWindow), 0),
		interval: b.Interval,
	}
	s.ratio = sensible(s.ratio)
	switch {
	case s.ratio == 0 || b.HealthyRatio == 0 && b.Ratio != 0:
		s.healthyRatio = s.ratio
	default:
		s.healthyRatio = max(sensible(cmp.Or(b.HealthyRatio, defaultHealthyRatio)), s.ratio)
	}
	if s.interval <= 0 {
		s.interval = defaultInterval
	}
	s.interval = min(s.interval, maxInterval)
	s.fade = cmp.Or(s.window, defaultWindow)
	s.keep = times(10, max(s.fade, s.interval))
	s.patience = max(minPatience, s.interval/20)
	s.retire = max(s.fade, times(10, s.interval))
	return s
}

// earns returns how many tokens a success earns.
func (s *settings) earns(poor bool) float64 {
	if poor {
		return s.ratio
	}
	return s.healthyRatio
}

// sensible returns x, or 0 if x is negative or NaN. The result is at most math.MaxInt32, which is
// absurdly large, and far from overflow.
func sensible(x float64) float64 {
	if !(x > 0) {
		return 0
	}
	return min(x, math.MaxInt32)
}

// withoutTag returns a prefix in which no hash tag begins. A Cluster takes the first tag of a key,
// which must be the host's. Otherwise a prefix with a tag has all balances on one node.
func withoutTag(prefix string) string { return strings.ReplaceAll(prefix, "{", "%7B") }

// times returns n times d, or the largest Duration if that overflows.
func times(n int, d time.Duration) time.Duration {
	if d > math.MaxInt64/time.Duration(n) {
		return math.MaxInt64
	}
	return time.Duration(n) * d
}
