package retryhttp

import (
	"math"
	"time"

	"github.com/retryhttp/retryhttp/internal/durations"
)

// Backoff returns how long to wait before retry n, from 1. prev is the previous backoff, and 0 for
// n = 1. A negative result counts as 0. A Backoff keeps no state. In what follows, a limit of 0 or
// less is no limit, and a base or step of 0 or less gives 0. The limit applies before jitter. No
// result overflows. See "Exponential Backoff And Jitter", Marc Brooker.
type Backoff func(n int, prev time.Duration) time.Duration

// Constant waits d before every retry. 0 or less means no wait.
func Constant(d time.Duration) Backoff {
	return func(int, time.Duration) time.Duration { return max(d, 0) }
}

// Linear waits min(limit, step·n).
func Linear(step, limit time.Duration) Backoff {
	limit = orLongest(limit)
	return func(n int, _ time.Duration) time.Duration {
		return min(limit, durations.Times(int64(max(n, 1)), max(step, 0)))
	}
}

// Exponential waits min(limit, base·2^(n-1)).
func Exponential(base, limit time.Duration) Backoff {
	return func(n int, _ time.Duration) time.Duration { return exponential(base, limit, n) }
}

// Geometric waits min(limit, base·ratio^(n-1)). A ratio of 0 or less is 1.
func Geometric(base, limit time.Duration, ratio float64) Backoff {
	if !(ratio > 0) {
		ratio = 1
	}
	limit = orLongest(limit)
	return func(n int, _ time.Duration) time.Duration {
		if base <= 0 {
			return 0
		}
		d := float64(base) * math.Pow(ratio, float64(max(n, 1)-1))
		if d < float64(limit) {
			return time.Duration(d)
		}
		return limit
	}
}

// FullJitter waits U(0, Exponential). It is the default.
func FullJitter(base, limit time.Duration) Backoff {
	return func(n int, _ time.Duration) time.Duration {
		return durations.Uniform(0, exponential(base, limit, n))
	}
}

// EqualJitter waits Exponential/2 + U(0, Exponential/2).
func EqualJitter(base, limit time.Duration) Backoff {
	return func(n int, _ time.Duration) time.Duration {
		d := exponential(base, limit, n)
		return durations.Uniform(d/2, d)
	}
}

// DecorrelatedJitter waits U(base, min(limit, 3·prev)); prev starts at base.
func DecorrelatedJitter(base, limit time.Duration) Backoff {
	// The post that describes this jitter caps the random result. This package always applies
	// the cap before the draw.
	limit = orLongest(limit)
	return func(_ int, prev time.Duration) time.Duration {
		if base <= 0 {
			return 0
		}
		ceiling := min(limit, durations.Times(3, max(prev, base)))
		return durations.Uniform(min(base, ceiling), ceiling)
	}
}

// Spread waits b · U(1-factor, 1+factor), where factor is from 0 to 1.
func (b Backoff) Spread(factor float64) Backoff {
	b = b.orDefault()
	if !(factor > 0) {
		factor = 0
	}
	factor = min(factor, 1)
	return func(n int, prev time.Duration) time.Duration {
		d := max(b(n, prev), 0)
		delta := durations.Scale(d, factor)
		return durations.Uniform(d-delta, durations.Add(d, delta))
	}
}

// PlusJitter waits b + U(0, extra). An extra of 0 or less adds nothing.
func (b Backoff) PlusJitter(extra time.Duration) Backoff {
	b = b.orDefault()
	return func(n int, prev time.Duration) time.Duration {
		return durations.Add(max(b(n, prev), 0), durations.Uniform(0, max(extra, 0)))
	}
}

func (b Backoff) orDefault() Backoff {
	if b == nil {
		return FullJitter(250*time.Millisecond, 30*time.Second)
	}
	return b
}

// orLongest returns the largest Duration for a limit of 0 or less, which means no limit. A
// forgotten setting must not turn retries into a busy loop.
func orLongest(limit time.Duration) time.Duration {
	if limit <= 0 {
		return math.MaxInt64
	}
	return limit
}

func exponential(base, limit time.Duration, n int) time.Duration {
	limit = orLongest(limit)
	if n > 63 && base > 0 {
		return limit // 2^(n-1) is too large for any limit
	}
	return min(limit, durations.Times(1<<(max(n, 1)-1), max(base, 0)))
}
