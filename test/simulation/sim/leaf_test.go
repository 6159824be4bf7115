package sim

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp/internal/latency"

	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

func TestLeafLatencyPassesThroughItsPoints(t *testing.T) {
	for _, c := range []struct {
		part float64
		is   time.Duration
	}{
		{1, time.Millisecond},
		{0.51, 5500 * time.Microsecond},
		{0.02, 10 * time.Millisecond},
		{0.00316, 69 * time.Millisecond},
		{1e-5, 1800 * time.Millisecond},
	} {
		assert.InEpsilon(t, c.is, engine.LeafLatency(c.part), 0.001, "%v exceed it", c.part)
	}
}

func TestSlowestOfAHundredLeavesIsThePapers(t *testing.T) {
	part := 1 - math.Pow(0.999, 1.0/100) // of the leaves, if one request in a thousand has such a leaf
	assert.InEpsilon(t, 1800*time.Millisecond, engine.LeafLatency(part), 0.001)
}

// The p95 lies in a bucket that ends beyond the knee. So the bucket reads it as a larger value,
// and fewer answers exceed that value.
func TestP95OfLeavesIsReadAsALittleMore(t *testing.T) {
	const n = 100_000
	recent := latency.New(time.Minute)
	for i := range n {
		recent.Record(0, engine.LeafLatency((float64(i)+0.5)/n), true)
	}
	read := recent.Quantile(0, 0.95)
	assert.InDelta(t, 9.7, milliseconds(engine.LeafLatency(0.05)), 0.05)
	assert.InDelta(t, 9.9, milliseconds(read), 0.05)
	assert.InDelta(t, read, engine.LeafLatency(0.033), float64(50*time.Microsecond))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
