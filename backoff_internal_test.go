package retryhttp

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A float64 may be coarser than a nanosecond. A share above d would make Spread
// draw a negative wait, too rarely for a test to see.
func TestBackoffScaleNeverExceedsTheWhole(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 1<<53 + 3, 1<<60 + 129, 1<<62 + 600, math.MaxInt64 - 1, math.MaxInt64} {
		for _, factor := range []float64{0, math.SmallestNonzeroFloat64, 0.5, 1 - 1e-16, 1} {
			got := scale(d, factor)
			assert.True(t, 0 <= got && got <= d, "%d of %d by %v", got, d, factor)
		}
		assert.Equal(t, d, scale(d, 1))
	}
}
