package engine

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Poisson calls f in a goroutine of its own for each arrival of a Poisson process, from now until
// end. It returns when all calls have returned. rate is the rate per second at a time since the
// start, and must not exceed most.
func Poisson(
	rng *rand.Rand, end time.Duration, most float64, rate func(time.Duration) float64, f func(at time.Duration),
) {
	var wg sync.WaitGroup
	start := time.Now()
	for {
		wait := Exponential(rng, time.Duration(float64(time.Second)/most))
		time.Sleep(min(wait, end-time.Since(start))) // the next arrival may be hours after the end
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

// Dice draws for goroutines that run side by side, as the goroutines of Poisson do.
type Dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

// NewDice takes a seed from rng, so that its caller can go on using rng without a lock.
func NewDice(rng *rand.Rand) *Dice {
	return &Dice{rng: rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))}
}

// Exponential draws from the exponential distribution.
func (d *Dice) Exponential(mean time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return Exponential(d.rng, mean)
}

// Float64 draws from [0, 1).
func (d *Dice) Float64() float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.Float64()
}

// IntN draws from 0 to n-1.
func (d *Dice) IntN(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}
