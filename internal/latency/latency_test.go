package latency_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/latency"
)

// leaf draws from a distribution with a long tail: 98 in 100 are uniform up to 10 ms.
func leaf(rng *rand.Rand) time.Duration {
	if rng.Float64() < 0.98 {
		return time.Duration(rng.Float64() * float64(10*time.Millisecond))
	}
	return time.Duration(float64(10*time.Millisecond) * math.Pow(rng.Float64(), -1))
}

func below(rng *rand.Rand, limit time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(limit)))
}

// exact returns the least of the values that a share q of them does not exceed.
func exact(values []time.Duration, q float64) time.Duration {
	return values[max(int(math.Ceil(q*float64(len(values))))-1, 0)]
}

// The error is a bucket's width at most, which is an eighth, or a microsecond.
func TestQuantileIsWithinAnEighthOfTheExactOne(t *testing.T) {
	draw := map[string]func(*rand.Rand) time.Duration{
		"leaf":        leaf,
		"uniform":     func(rng *rand.Rand) time.Duration { return below(rng, time.Second) },
		"exponential": func(rng *rand.Rand) time.Duration { return time.Duration(rng.ExpFloat64() * 1e8) },
		"constant":    func(*rand.Rand) time.Duration { return 60 * time.Millisecond },
		"two values": func(rng *rand.Rand) time.Duration {
			return []time.Duration{3 * time.Millisecond, time.Minute}[rng.IntN(2)]
		},
		"nanoseconds": func(rng *rand.Rand) time.Duration { return below(rng, 10*time.Microsecond) },
		"hours":       func(rng *rand.Rand) time.Duration { return below(rng, 4*time.Hour) },
	}
	for name, draw := range draw {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				rng := rand.New(rand.NewPCG(seed, 1))
				n := 1 + rng.IntN(3000)
				r := latency.New(time.Minute)
				var values []time.Duration
				for range n {
					v := draw(rng)
					values = append(values, v)
					r.Record(below(rng, time.Minute/2), v, true)
				}
				slices.Sort(values)
				require.EqualValues(t, n, r.Answers(0))
				for _, q := range []float64{0, 0.001, 0.25, 0.5, 0.9, 0.95, 0.98, 0.999, 1} {
					want := float64(exact(values, q))
					got := float64(r.Quantile(0, q))
					require.InDelta(t, want, got, want/8+1001, "quantile %v of %d", q, n)
				}
			}
		})
	}
}

func TestQuantileOfNothingIsZero(t *testing.T) {
	assert.Zero(t, latency.New(time.Minute).Quantile(time.Hour, 0.5))
}

func TestLatenciesBeyondTheLastBucketCountAsTheLast(t *testing.T) {
	r := latency.New(time.Minute)
	for _, v := range []time.Duration{math.MaxInt64, 100 * time.Hour, -time.Second} {
		r.Record(0, v, true)
	}
	assert.Greater(t, r.Quantile(0, 1), 4*time.Hour)
	assert.Less(t, r.Quantile(0, 0.1), time.Microsecond)
}

// A record that is older than the window does not count. A record that is newer than half of the
// window does.
func TestOnlyTheWindowCounts(t *testing.T) {
	const window = 10 * time.Second
	for at := time.Duration(0); at < 2*window; at += window / 8 {
		r := latency.New(window)
		r.Record(at, time.Second, true)
		for now := at; now < at+2*window; now += window / 16 {
			n := r.Answers(now)
			switch age := now - at; {
			case age < window/2:
				require.EqualValues(t, 1, n, "recorded at %v, looked at %v", at, now)
			case age >= window:
				require.Zero(t, n, "recorded at %v, looked at %v", at, now)
				require.Zero(t, r.Quantile(now, 0.5))
			}
		}
	}
	r := latency.New(window)
	r.Record(0, time.Second, true)
	assert.Zero(t, r.Quantile(window, 0.5), "though nobody has asked for the number of answers")
}

func TestAnswersAreCountedApart(t *testing.T) {
	r := latency.New(time.Minute)
	r.Record(0, time.Second, true)
	r.Record(0, time.Hour, false)
	assert.EqualValues(t, 1, r.Answers(0))
	assert.Greater(t, r.Quantile(0, 1), 50*time.Minute)
}

// A record that comes a little late belongs to the previous generation.
func TestLateRecordCounts(t *testing.T) {
	r := latency.New(10 * time.Second)
	r.Record(5*time.Second, time.Second, true)
	r.Record(5*time.Second-1, time.Second, true)
	assert.EqualValues(t, 2, r.Answers(5*time.Second))
	assert.EqualValues(t, 1, r.Answers(10*time.Second))
}

// The clock of a bubble of testing/synctest begins anew.
func TestClockThatHasGoneBackMakesAllOld(t *testing.T) {
	r := latency.New(10 * time.Second)
	r.Record(time.Hour, time.Second, true)
	assert.Zero(t, r.Answers(0))
	r.Record(-time.Hour, time.Second, true)
	assert.EqualValues(t, 1, r.Answers(-time.Hour))
}

func TestRecordsSideBySideAllCount(t *testing.T) {
	r := latency.New(time.Minute)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 1000 {
				r.Record(0, time.Duration(i)*time.Millisecond, true)
				r.Quantile(0, 0.95)
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 8000, r.Answers(0))
	assert.InDelta(t, float64(950*time.Millisecond), float64(r.Quantile(0, 0.95)), float64(950*time.Millisecond)/8)
}

func TestRecentIsSmallAndRecordsWithoutAllocating(t *testing.T) {
	assert.LessOrEqual(t, unsafe.Sizeof(latency.Recent{}), uintptr(2<<10+64))
	r := latency.New(time.Minute)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		r.Record(0, time.Second, true)
		r.Quantile(0, 0.95)
	}))
}

func BenchmarkRecord(b *testing.B) {
	r := latency.New(time.Minute)
	rng := rand.New(rand.NewPCG(1, 1))
	var values [1024]time.Duration
	for i := range values {
		values[i] = leaf(rng)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.Record(time.Duration(i), values[i&1023], true)
	}
}

func BenchmarkQuantile(b *testing.B) {
	r := latency.New(time.Minute)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		r.Record(0, leaf(rng), true)
	}
	b.ReportAllocs()
	for b.Loop() {
		r.Quantile(0, 0.95)
	}
}
