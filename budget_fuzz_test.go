package retryhttp_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
)

func FuzzBudget(f *testing.F) {
	ops := []byte("\x04\x00\x08\x10\x18\x03\x0b\x06\x00\x0d\x05\xfd\x00\x07\x00\x01\x02\xff\x00\x03\xfe\x00")
	for _, ratio := range []float64{
		math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64, -1, 0, 0.1, 1,
	} {
		f.Add(ratio, math.MaxInt, int64(math.MaxInt64), math.Inf(1), ops)
		f.Add(ratio, math.MinInt, int64(math.MinInt64), math.NaN(), ops)
		f.Add(ratio, 0, int64(0), 0.0, ops)
		f.Add(ratio, 1, int64(1), math.SmallestNonzeroFloat64, ops)
		f.Add(ratio, -1, int64(time.Second), 2.5, ops)
	}
	f.Add(0.0, -1, int64(time.Second), 0.5, []byte("\x00\x03\x06\x00")) // a token of MinPerSecond comes back
	f.Fuzz(func(t *testing.T, ratio float64, burst int, window int64, perSecond float64, ops []byte) {
		b := &retryhttp.TokenBucket{Ratio: ratio, Burst: burst, Window: time.Duration(window), MinPerSecond: perSecond}
		within := func(x, lo, hi float64) bool { return lo <= x && x <= hi }
		modeled := (ratio == 0 || within(math.Abs(ratio), 1e-3, 10)) && within(float64(burst), -1000, 1000) &&
			(window <= 0 || within(float64(window), 1e6, 3600e9)) && (perSecond <= 0 || within(perSecond, 1e-3, 1000))
		synctest.Test(t, func(t *testing.T) { compareWithModel(t, b, modeled, ops[:min(len(ops), 200)]) })
	})
}
