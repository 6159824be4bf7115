package benchmarks

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// contender is what one peer does in a measurement.
type contender struct {
	name string
	run  func(n int) error // n operations
	tidy func()            // if not nil, called after each turn: a peer may leave connections open
}

// cost is what one operation costs. What the machine does beside it stretches ns,
// and hardly cpu, which counts all threads of the process.
type cost struct{ ns, cpu, allocs, bytes float64 }

// result is what a contender took, the median over all rounds.
type result struct {
	name            string
	cost                    // absolute
	above           cost    // what it has more than the floor in the same round
	ratio, cpuRatio float64 // of its time to the floor's in the same round
}

// compare has the contenders take turns in every round, and compares within a
// round only: what the machine does beside that changes from one minute to the
// next. The order is drawn for each round; one that rotates would give each
// contender the same neighbor always. The first contender is the floor.
func compare(rounds, n int, contenders []contender) ([]result, error) {
	costs := make([][]cost, len(contenders)) // by contender and round
	for _, c := range contenders {
		if err := c.run(n/10 + 1); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range rounds {
		for _, i := range random.Perm(len(contenders)) {
			got, err := measure(n, contenders[i].run)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", contenders[i].name, err)
			}
			if contenders[i].tidy != nil {
				contenders[i].tidy()
			}
			costs[i] = append(costs[i], got)
		}
	}
	results := make([]result, len(contenders))
	for i, c := range contenders {
		over := func(f func(own, floor cost) float64) float64 {
			values := make([]float64, rounds)
			for round := range values {
				values[round] = f(costs[i][round], costs[0][round])
			}
			return median(values)
		}
		results[i] = result{
			name: c.name,
			cost: cost{
				over(func(own, _ cost) float64 { return own.ns }),
				over(func(own, _ cost) float64 { return own.cpu }),
				over(func(own, _ cost) float64 { return own.allocs }),
				over(func(own, _ cost) float64 { return own.bytes }),
			},
			above: cost{
				over(func(own, floor cost) float64 { return own.ns - floor.ns }),
				over(func(own, floor cost) float64 { return own.cpu - floor.cpu }),
				over(func(own, floor cost) float64 { return own.allocs - floor.allocs }),
				over(func(own, floor cost) float64 { return own.bytes - floor.bytes }),
			},
			ratio:    over(func(own, floor cost) float64 { return own.ns / floor.ns }),
			cpuRatio: over(func(own, floor cost) float64 { return own.cpu / floor.cpu }),
		}
	}
	return results, nil
}

func measure(n int, run func(int) error) (cost, error) {
	runtime.GC()                   // of what the one before has left
	if err := run(1); err != nil { // which fills the pools that the collection has emptied
		return cost{}, err
	}
	return measureTurn(n, run)
}

func measureTurn(n int, run func(int) error) (cost, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start, startCPU := time.Now(), cpuTime()
	err := run(n)
	took, tookCPU := time.Since(start), cpuTime()-startCPU
	runtime.ReadMemStats(&after)
	each := func(v float64) float64 { return v / float64(n) }
	return cost{
		each(float64(took)), each(float64(tookCPU)),
		each(float64(after.Mallocs - before.Mallocs)), each(float64(after.TotalAlloc - before.TotalAlloc)),
	}, err
}

// cpuTime is what this process has used so far.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // it cannot fail
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func median[T cmp.Ordered](values []T) T {
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}

// live is what is on the heap, and in goroutines' stacks, once nothing is that
// need not be.
func live() float64 {
	runtime.GC()
	runtime.GC() // the first frees the stacks of what has ended
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// count writes a number of objects without the fraction that a pool or the
// runtime itself adds.
func count(v float64) string { return fmt.Sprintf("%+.0f", math.Round(v)+0) } // + 0 makes a -0 a 0

func nanoseconds(v float64) string {
	if v >= 10_000 || v <= -10_000 {
		return fmt.Sprintf("%.1f µs", v/1000)
	}
	return fmt.Sprintf("%.0f ns", v)
}

func size(v float64) string {
	switch abs := math.Abs(v); {
	case abs >= 100<<20:
		return fmt.Sprintf("%.0f MiB", v/(1<<20))
	case abs >= 1<<20:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", v/(1<<20)), ".0") + " MiB"
	case abs >= 10<<10:
		return fmt.Sprintf("%.0f KiB", v/(1<<10))
	}
	return fmt.Sprintf("%.0f B", math.Round(v)+0) // + 0 makes a -0 a 0
}
