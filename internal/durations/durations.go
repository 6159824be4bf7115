// Package durations calculates with times up to the largest Duration, and does not overflow.
package durations

import (
	"math"
	"math/rand/v2"
	"time"
)

// Add returns a + b for a, b >= 0, or the largest Duration if the sum would exceed it.
func Add(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Times returns n times d for n, d >= 0, or the largest Duration if the product would exceed it.
func Times(n int64, d time.Duration) time.Duration {
	if d > 0 && n > int64(math.MaxInt64/d) {
		return math.MaxInt64
	}
	return time.Duration(n) * d
}

// Uniform draws from [lo, hi], both included, for 0 <= lo <= hi.
func Uniform(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(rand.Uint64N(uint64(hi-lo)+1))
}

// Scale returns d·factor for d >= 0 and a factor within [0, 1]. Near the largest Duration, a
// float64 is coarser than a nanosecond, and the product may round up past d.
func Scale(d time.Duration, factor float64) time.Duration {
	product := float64(d) * factor
	if product >= float64(d) {
		return d
	}
	return time.Duration(product)
}
