package retryhttp_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
)

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
			"anything":           {func(int, time.Duration) time.Duration { return base }, minWait, maxWait},
		} {
			d := c.backoff(n, prev)
			within(name, d, c.lo, c.hi)
			lo, hi := max(c.lo, 0), max(c.hi, 0)
			within(name+".PlusJitter", c.backoff.PlusJitter(extra)(n, prev), lo, sum(hi, max(extra, 0)))
			within(name+".PlusJitter.Plus", c.backoff.PlusJitter(extra).PlusJitter(extra)(n, prev), lo,
				sum(hi, sum(max(extra, 0), max(extra, 0))))
			within(name+".Spread", c.backoff.Spread(factor)(n, prev), 0, sum(hi, hi))
			if !(factor > 0) {
				within(name+".Spread by nothing", c.backoff.Spread(factor)(n, prev), lo, hi)
			}
			within(name+".Spread.Plus", c.backoff.Spread(factor).PlusJitter(extra)(n, prev), 0, sum(sum(hi, hi), max(extra, 0)))
		}
	})
}
