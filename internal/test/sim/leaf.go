package sim

import (
	"math"
	"time"
)

// The distribution of a leaf's latencies. A part of the answers takes longer than a given time.
// Between the points below, the logarithm of this part is linear in the logarithm of the time. The
// other 98 % of the answers take 1 to 10 ms.
//
// "The Tail at Scale", Dean and Barroso, 2013, has no distribution, but has three figures of reads
// of 100 leaves: p99.9 is 1,800 ms; with hedges after 10 ms it is 74 ms, for 2 % more load. The
// distribution was fitted to these figures. So it checks how requests are hedged, and does not
// confirm the paper.
const (
	leafSoonest = time.Millisecond

	leafKnee     = 10 * time.Millisecond
	leafSlow     = 0.02 // of the answers take longer
	leafExponent = 0.9553

	leafFarKnee     = 69 * time.Millisecond
	leafVerySlow    = 0.00316
	leafFarExponent = 1.7648
)

// leafLatency returns the latency that a part of a leaf's answers exceeds. The part is above
// 0 and at most 1.
func leafLatency(part float64) time.Duration {
	beyond := func(knee time.Duration, at, exponent float64) time.Duration {
		return time.Duration(float64(knee) * math.Pow(at/part, 1/exponent))
	}
	switch {
	case part > leafSlow:
		return leafSoonest + time.Duration(float64(leafKnee-leafSoonest)*(1-part)/(1-leafSlow))
	case part > leafVerySlow:
		return beyond(leafKnee, leafSlow, leafExponent)
	}
	return beyond(leafFarKnee, leafVerySlow, leafFarExponent)
}
