// Package sim shows what clients of this library do, together, to a service in
// trouble. It drives the real Transport, TokenBucket and Backoff in
// testing/synctest bubbles, where time is virtual: a goroutine for each client
// or request, and servers that are RoundTrippers with capacity and latency.
//
// Arrivals and latencies come from a seed. The jitter of the library itself does
// not, and so every result is a mean over seeds.
//
// Each experiment is a function that takes a *testing.T, because bubbles need
// one, and returns plain numbers. Its test asserts what it shows at a size that
// takes seconds; the report runs the same function at full size.
package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Runs calls f in a bubble of its own for each seed from 1 to n, several at a time, and returns
// the results in the order of the seeds. Everything that f starts must have ended when f returns:
// a bubble's clock stops with its main goroutine, and a goroutine that still sleeps would be a
// deadlock.
func Runs[R any](t *testing.T, n int, f func(t *testing.T, rng *rand.Rand) R) []R {
	t.Helper()
	results := make([]R, n)
	t.Run("runs", func(t *testing.T) {
		for i := range n {
			t.Run(fmt.Sprint("seed ", i+1), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					results[i] = f(t, rand.New(rand.NewPCG(uint64(i+1), 1)))
				})
			})
		}
	})
	return results
}

// Poisson calls f in a goroutine of its own for each arrival of a Poisson process, from now until
// end. It returns when all calls have returned. rate is the rate per second at a time since the
// start, and must not exceed most.
func Poisson(
	rng *rand.Rand, end time.Duration, most float64, rate func(time.Duration) float64, f func(at time.Duration),
) {
	var wg sync.WaitGroup
	start := time.Now()
	for {
		time.Sleep(Exponential(rng, time.Duration(float64(time.Second)/most)))
		at := time.Since(start)
		if at >= end {
			break
		}
		if rng.Float64()*most < rate(at) { // thinning, Lewis and Shedler, 1979
			wg.Go(func() { f(at) })
		}
	}
	wg.Wait()
}

// Exponential draws from the exponential distribution.
func Exponential(rng *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration(rng.ExpFloat64() * float64(mean))
}

// Constantly is a rate for Poisson.
func Constantly(perSecond float64) func(time.Duration) float64 {
	return func(time.Duration) float64 { return perSecond }
}

// Series counts events over time, in bins of equal width.
type Series struct {
	Width time.Duration

	mu   sync.Mutex
	bins []float64
}

// Add counts n events at a time since the start.
func (s *Series) Add(at time.Duration, n float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := int(at / s.Width)
	for len(s.bins) <= i {
		s.bins = append(s.bins, 0)
	}
	s.bins[i] += n
}

// PerSecond returns the rate in each bin.
func (s *Series) PerSecond() []float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	rates := make([]float64, len(s.bins))
	for i, n := range s.bins {
		rates[i] = n / s.Width.Seconds()
	}
	return rates
}

// Between returns the mean rate from one time to another.
func (s *Series) Between(from, to time.Duration) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := 0.0
	for i := int(from / s.Width); i < int(to/s.Width) && i < len(s.bins); i++ {
		sum += s.bins[i]
	}
	return sum / (to - from).Seconds()
}

// Mean is a sample's mean and the mean's standard error.
type Mean struct {
	Value, Error float64
}

func (m Mean) String() string { return fmt.Sprintf("%.4g ± %.2g", m.Value, 1.96*m.Error) }

// MeanOf returns the mean of what value gives for each run.
func MeanOf[R any](runs []R, value func(R) float64) Mean {
	var sum, squares float64
	for _, r := range runs {
		v := value(r)
		sum += v
		squares += v * v
	}
	n := float64(len(runs))
	mean := sum / n
	variance := max(squares/n-mean*mean, 0) * n / max(n-1, 1)
	return Mean{mean, math.Sqrt(variance / n)}
}

// quantile returns the value that a part of the values does not exceed. They are in order.
func quantile(values []time.Duration, part float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	return values[int(part*float64(len(values)-1))]
}
