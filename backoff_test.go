package retryhttp_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

const maxWait = time.Duration(math.MaxInt64)

// waits lists what b gives for retries 1 to count. Each call gets the previous wait.
func waits(b retryhttp.Backoff, count int) []time.Duration {
	var list []time.Duration
	prev := time.Duration(0)
	for n := 1; n <= count; n++ {
		prev = b(n, prev)
		list = append(list, prev)
	}
	return list
}

// testdata/conformance/backoff.json has the sequences, and FuzzBackoff the extremes of all but Geometric.
func TestBackoffGeometricOfAnyRatioAndNumber(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		base, limit time.Duration
		ratio       float64
		n           int
		want        time.Duration
	}{
		"ratio not a number":    {s, 10 * s, math.NaN(), 3, s},
		"ratio minus infinity":  {s, 10 * s, math.Inf(-1), 3, s},
		"ratio infinite, first": {s, 10 * s, math.Inf(1), 1, s},
		"ratio infinite":        {s, 10 * s, math.Inf(1), 2, 10 * s},
		"ratio tiny":            {s, 10 * s, math.SmallestNonzeroFloat64, 2, 0},
		"least number":          {s, 9 * s, 3, math.MinInt, s},
		"greatest number":       {s, 9 * s, 1, math.MaxInt, s},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, retryhttp.Geometric(c.base, c.limit, c.ratio)(c.n, 0))
		})
	}
}

func TestBackoffJittersEvenlyOverItsWholeRange(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	decorrelated := retryhttp.DecorrelatedJitter(s, 10*s)
	for name, c := range map[string]struct {
		backoff retryhttp.Backoff
		n       int
		prev    time.Duration
		lo, hi  time.Duration
	}{
		"full":                                {retryhttp.FullJitter(s, 10*s), 3, 9 * s, 0, 4 * s},
		"equal":                               {retryhttp.EqualJitter(s, 10*s), 3, 9 * s, 2 * s, 4 * s},
		"decorrelated, first":                 {decorrelated, 1, 0, s, 3 * s},
		"decorrelated, from prev, not from n": {decorrelated, 1, 2 * s, s, 6 * s},
		"spread by a half":                    {retryhttp.Constant(s).Spread(0.5), 1, 0, s / 2, 3 * s / 2},
		"spread without bound":                {retryhttp.Constant(s).Spread(math.Inf(1)), 1, 0, 0, 2 * s},
		"spread passes prev on":               {decorrelated.Spread(0), 1, 2 * s, s, 6 * s},
		"plus":                                {retryhttp.Constant(s).PlusJitter(250 * ms), 1, 0, s, 1250 * ms},
		"plus passes prev on":                 {decorrelated.PlusJitter(0), 1, 2 * s, s, 6 * s},
		"nil, spread by nothing":              {retryhttp.Backoff(nil).Spread(0), math.MaxInt, 0, 0, 30 * s},
		"nil, plus nothing":                   {retryhttp.Backoff(nil).PlusJitter(0), 2, 0, 0, 500 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			requireUniform(t, c.lo, c.hi, func() time.Duration { return c.backoff(c.n, c.prev) })
		})
	}
}

// requireUniform draws many times. It requires that all values are within [lo, hi],
// and that some are close to both ends. The mean and the quarters must be within 7
// standard deviations of their expectation.
func requireUniform(t *testing.T, lo, hi time.Duration, draw func() time.Duration) {
	t.Helper()
	const samples = 20000
	width := float64(hi) - float64(lo)
	least, greatest := hi, lo
	sum, quarters := 0.0, [4]int{}
	for range samples {
		d := draw()
		if d < lo || d > hi { // testify's comparisons are slow, and this one runs a million times
			require.FailNowf(t, "out of range", "%v is not within [%v, %v]", d, lo, hi)
		}
		least, greatest = min(least, d), max(greatest, d)
		share := (float64(d) - float64(lo)) / width
		sum += share
		quarters[min(int(4*share), 3)]++
	}
	// The odds that no sample is within 0.2 % of an end are e^-40.
	require.Less(t, float64(least)-float64(lo), width*0.002, "the low end is never drawn")
	require.Less(t, float64(hi)-float64(greatest), width*0.002, "the high end is never drawn")
	require.InDelta(t, 0.5, sum/samples, 7/math.Sqrt(12*samples), "mean, as a share of the range")
	for i, n := range quarters {
		require.InDelta(t, samples/4, n, 7*math.Sqrt(samples*3.0/16), "quarter %d", i)
	}
}

func FuzzBackoff(f *testing.F) {
	extremes := []int64{math.MinInt64, -1, 0, 1, math.MaxInt64}
	ratios := []float64{
		math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64, -1, 0, 0.5, 1, 2,
	}
	for i, base := range extremes {
		for j, limit := range extremes {
			for k, n := range []int64{math.MinInt64, 0, 1, 62, 63, 64, 65, math.MaxInt64} {
				ratio := ratios[(3*i+5*j+k)%len(ratios)]
				f.Add(base, limit, ratio, ratios[(i+j+k)%len(ratios)], extremes[(i+k)%5], n, extremes[(j+k)%5])
			}
		}
	}
	for _, n := range []int64{math.MaxInt64 / 2, math.MaxInt64/2 + 1} { // twice that fits, and does not
		f.Add(int64(2), int64(math.MaxInt64), 1.0, 1.0, int64(0), n, int64(0))
	}
	f.Fuzz(func(t *testing.T, baseNS, limitNS int64, ratio, factor float64, extraNS, n64, prevNS int64) {
		base, limit := time.Duration(baseNS), time.Duration(limitNS)
		extra, prev, n := time.Duration(extraNS), time.Duration(prevNS), int(n64)
		within := func(name string, d, lo, hi time.Duration) {
			if d < lo || d > hi {
				t.Fatalf("%s: %v (%d) is not within [%v, %v]", name, d, d, lo, hi)
			}
		}
		top := limit
		if limit <= 0 {
			top = math.MaxInt64
		}
		clip := func(x *big.Int) time.Duration { // to [0, top]
			switch {
			case base <= 0:
				return 0
			case x.Cmp(big.NewInt(int64(top))) > 0:
				return top
			}
			return time.Duration(x.Int64())
		}
		sum := func(a, b time.Duration) time.Duration { // saturating
			x := new(big.Int).Add(big.NewInt(int64(a)), big.NewInt(int64(b)))
			if !x.IsInt64() {
				return math.MaxInt64
			}
			return time.Duration(x.Int64())
		}
		retry := max(n, 1)
		linear := clip(new(big.Int).Mul(big.NewInt(baseNS), big.NewInt(int64(retry))))
		exponential := clip(new(big.Int).Lsh(big.NewInt(baseNS), uint(min(retry-1, 200))))
		lowest, highest := time.Duration(0), time.Duration(0) // of what DecorrelatedJitter draws
		if base > 0 {
			lowest = min(base, top)
			highest = min(top, sum(sum(max(prev, base), max(prev, base)), max(prev, base)))
		}
		for name, c := range map[string]struct {
			backoff retryhttp.Backoff
			lo, hi  time.Duration
		}{
			"Constant":           {retryhttp.Constant(base), max(base, 0), max(base, 0)},
			"Linear":             {retryhttp.Linear(base, limit), linear, linear},
			"Exponential":        {retryhttp.Exponential(base, limit), exponential, exponential},
			"Geometric":          {retryhttp.Geometric(base, limit, ratio), 0, top},
			"FullJitter":         {retryhttp.FullJitter(base, limit), 0, exponential},
			"EqualJitter":        {retryhttp.EqualJitter(base, limit), exponential / 2, exponential},
			"DecorrelatedJitter": {retryhttp.DecorrelatedJitter(base, limit), lowest, highest},
			"nil":                {retryhttp.Backoff(nil).PlusJitter(0), 0, 30 * time.Second},
			"anything":           {func(int, time.Duration) time.Duration { return base }, base, base},
		} {
			d := c.backoff(n, prev)
			within(name, d, c.lo, c.hi)
			lo, hi := max(c.lo, 0), max(c.hi, 0)
			within(name+".PlusJitter", c.backoff.PlusJitter(extra)(n, prev), lo, sum(hi, max(extra, 0)))
			within(name+".Spread", c.backoff.Spread(factor)(n, prev), 0, sum(hi, hi))
			if !(factor > 0) {
				within(name+".Spread by nothing", c.backoff.Spread(factor)(n, prev), lo, hi)
			}
		}
	})
}
