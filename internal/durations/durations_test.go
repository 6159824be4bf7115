package durations

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

const longest = time.Duration(math.MaxInt64)

func TestSumsAndProductsEndAtTheLongest(t *testing.T) {
	assert.Equal(t, 5*time.Second, Add(2*time.Second, 3*time.Second))
	assert.Equal(t, longest, Add(longest-1, 1))
	assert.Equal(t, longest, Add(longest, 1))
	assert.Equal(t, longest, Add(longest, longest))

	assert.Equal(t, 6*time.Second, Times(3, 2*time.Second))
	assert.Equal(t, longest-1, Times(int64(longest/2), 2), "the longest is odd")
	assert.Equal(t, longest, Times(int64(longest/2)+1, 2))
	assert.Equal(t, longest, Times(math.MaxInt64, time.Hour))
	assert.Zero(t, Times(math.MaxInt64, 0))
	assert.Zero(t, Times(0, longest))
}

func TestUniformIncludesBothEnds(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 1000 {
		seen[Uniform(3, 5)] = true
	}
	assert.Equal(t, map[time.Duration]bool{3: true, 4: true, 5: true}, seen)
	assert.Equal(t, longest, Uniform(longest, longest))
	assert.GreaterOrEqual(t, Uniform(0, longest), time.Duration(0))
}

// A float64 may be coarser than a nanosecond. A share above d would make a Backoff's Spread draw a
// negative wait, too rarely for a test of Spread to see.
func TestScaleNeverExceedsTheWhole(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 1<<53 + 3, 1<<60 + 129, 1<<62 + 600, math.MaxInt64 - 1, math.MaxInt64} {
		for _, factor := range []float64{0, math.SmallestNonzeroFloat64, 0.5, 1 - 1e-16, 1} {
			got := Scale(d, factor)
			assert.True(t, 0 <= got && got <= d, "%d of %d by %v", got, d, factor)
		}
		assert.Equal(t, d, Scale(d, 1))
	}
}
