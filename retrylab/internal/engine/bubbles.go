// Package engine has what the experiments of package retrylab, and the simulations of this repository,
// are made of: runs in virtual time, random arrivals, services, and means. Programs should use package
// retrylab: this package may change with any release.
package engine

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// ErrStuck is what Bubbles returns of a bubble that has made no progress for StuckAfter of real time. The
// bubble is left alone, and may still run.
var ErrStuck = errors.New("no progress in real time: something spins, or waits for what is not in virtual time")

// StuckAfter is the real time without progress after which Bubbles leaves a bubble alone.
var StuckAfter = 30 * time.Second

// Bubbles calls f in a testing/synctest bubble of its own for each number from 0 to n-1, as many at a
// time as there are processors. It returns what became of each: nil, or ErrStuck, or the panic of a bubble
// that ended while goroutines in it were blocked. A panic of f itself ends the program.
//
// progress returns a number that changes while something happens in a bubble. It is called from outside
// the bubble. If progress is nil, no bubble is ErrStuck.
func Bubbles(t *testing.T, n int, progress func(i int) int64, f func(t *testing.T, i int)) []any {
	t.Helper()
	ends := make([]any, n)
	places := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i := range n {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			ended := make(chan any, 1)
			go func() {
				defer func() { ended <- recover() }()
				synctest.Test(t, func(t *testing.T) { f(t, i) })
			}()
			ends[i] = watch(ended, i, progress)
		})
	}
	wg.Wait()
	return ends
}

// watch returns what a bubble sends when it ends, or ErrStuck.
func watch(ended <-chan any, i int, progress func(i int) int64) any {
	if progress == nil {
		return <-ended
	}
	tick := time.NewTicker(StuckAfter / 10)
	defer tick.Stop()
	last, since := progress(i), time.Now()
	for {
		select {
		case end := <-ended:
			return end
		case <-tick.C:
			if now := progress(i); now != last {
				last, since = now, time.Now()
			} else if time.Since(since) >= StuckAfter {
				return ErrStuck
			}
		}
	}
}

// Runs calls f in a bubble of its own for each seed from 1 to n, several at a time, and returns the
// results in the order of the seeds. Everything that f starts must have ended when f returns: a
// bubble's clock stops with its main goroutine, and a goroutine that still sleeps fails the test.
func Runs[R any](t *testing.T, n int, f func(t *testing.T, rng *rand.Rand) R) []R {
	t.Helper()
	results := make([]R, n)
	for i, panicked := range Bubbles(t, n, nil, func(t *testing.T, i int) { results[i] = f(t, Seeded(i+1)) }) {
		if panicked != nil {
			t.Errorf("seed %d: %v", i+1, panicked)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	return results
}

// Seeded returns the generator of the run with a seed.
func Seeded(seed int) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), 1)) }
