// Package latency keeps the latencies of the recent past, and decides by their quantiles when an attempt is hedged.
package latency

import (
	"math/bits"
	"sync"
	"time"
)

// Recent counts latencies in buckets. A bucket is one microsecond wide, or at most an eighth as
// wide as its lower bound. Recent has two generations of half a window each, so that no count is
// older than the window. Its methods may be called concurrently.
type Recent struct {
	span time.Duration // duration of a generation

	mu          sync.Mutex
	newest      int64 // number of the newest generation
	generations [2]generation
}

type generation struct {
	answers int64
	counts  [buckets]uint32
}

const (
	unit    = time.Microsecond
	buckets = 256 // enough for latencies of up to 4 hours
	// An octave is split into 1<<octaveBits buckets. Below the first octave, a bucket is one unit wide.
	octaveBits = 3
)

// New returns a Recent for a window, which must be positive.
func New(window time.Duration) *Recent {
	return &Recent{span: max(window/2, 1)}
}

// Record counts a latency at the time now, which is measured from an arbitrary moment. An answer
// counts in [Recent.Answers] as well.
func (r *Recent) Record(now, latency time.Duration, answer bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.advance(now)
	g.counts[bucketOf(latency)]++
	if answer {
		g.answers++
	}
}

// Answers returns how many answers were recorded within the window.
func (r *Recent) Answers(now time.Duration) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(now)
	return r.generations[0].answers + r.generations[1].answers
}

// Quantile returns the latency that a share q of the latencies does not exceed, to within the
// width of a bucket. It returns 0 if there are no latencies.
func (r *Recent) Quantile(now time.Duration, q float64) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(now)
	var counts [buckets]float64
	total := 0.0
	for i := range counts {
		counts[i] = float64(r.generations[0].counts[i]) + float64(r.generations[1].counts[i])
		total += counts[i]
	}
	rank := q * total
	for i, n := range counts {
		if n > 0 && rank <= n {
			lower, width := bounds(i)
			return lower + time.Duration(float64(width)*max(rank, 0)/n)
		}
		rank -= n
	}
	return 0
}

// advance returns the generation of now, and begins the generation if it is new. If the clock has
// gone back by more than one generation, all counts become old. For example, the clock goes back
// between two testing/synctest bubbles. The caller holds mu.
func (r *Recent) advance(now time.Duration) *generation {
	current := int64(now / r.span)
	g := &r.generations[current&1]
	switch current - r.newest {
	case 0, -1:
		return g
	case 1:
		*g = generation{}
	default:
		r.generations = [2]generation{}
	}
	r.newest = current
	return g
}

// bucketOf returns the bucket of a latency.
func bucketOf(latency time.Duration) int {
	v := uint64(max(latency, 0) / unit)
	octave := max(bits.Len64(v)-1-octaveBits, 0)
	return min(octave<<octaveBits+int(v>>octave), buckets-1)
}

// bounds returns where a bucket begins, and its width.
func bounds(bucket int) (lower, width time.Duration) {
	octave := max(bucket>>octaveBits-1, 0)
	return time.Duration(bucket-octave<<octaveBits) << octave * unit, 1 << octave * unit
}
