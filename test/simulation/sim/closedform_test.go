package sim

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestBoundedRetriesFollowTheClosedForms(t *testing.T) {
	const sigmas = 6
	for _, retries := range []int{0, 1, 3, 9} {
		for _, p := range []float64{0, 0.05, 0.2, 0.5, 0.75, 1} {
			t.Run(fmt.Sprintf("%d retries, %v fail", retries, p), func(t *testing.T) {
				got := BoundedRetries(t, 1, closedFormRequests, retries, p)[0]
				root := math.Sqrt(closedFormRequests)
				// The last term is for the binary fractions where nothing is left to chance.
				assert.InDelta(t, LoadOf(p, retries), got.Load, sigmas*LoadDeviation(p, retries)/root+1e-9, "load")
				assert.InDelta(t, SuccessOf(p, retries), got.Success, sigmas*SuccessDeviation(p, retries)/root+1e-9, "success")
			})
		}
	}
}

// The figures of the post, and the geometric sum where it has its closed form.
func TestClosedFormsAreThePublishedOnes(t *testing.T) {
	for _, p := range []float64{0.05, 0.1, 0.2, 0.5, 0.75} {
		for n := range 10 {
			assert.InDelta(t, (1-math.Pow(p, float64(n+1)))/(1-p), LoadOf(p, n), 1e-12)
		}
	}
	assert.Equal(t, 4.0, LoadOf(1, 3))
	assert.InDelta(t, 1.875, LoadOf(0.5, 3), 1e-12)
	assert.InDelta(t, 0.9375, SuccessOf(0.5, 3), 1e-12)
	assert.Zero(t, SuccessOf(1, 3))
	assert.Zero(t, LoadDeviation(1, 3), "every request makes four attempts")
	assert.InDelta(t, math.Sqrt(0.5*0.5), LoadDeviation(0.5, 1), 1e-12, "one attempt or two, at even odds")
}

func TestOverloadGrowsByItsExcessEverySecond(t *testing.T) {
	// A tenth of the book's 10,000, 10,100, 10,200, 10,300 and so on.
	assert.Equal(t, []int{1010, 1020, 1030, 1040, 1050, 1060}, Overload(t, 1000, 1010, 6))
	assert.Equal(t, []int{1000, 1000, 1000}, Overload(t, 1000, 1000, 3), "not above the capacity")
}

func TestSixtyRetriesAMinute(t *testing.T) {
	got := RetriesPerMinute(t, 1, 100*time.Millisecond, 3)
	assert.Contains(t, []int{60, 61}, got[0], "the first minute begins with one in reserve")
	for _, n := range got[1:] {
		assert.InDelta(t, 60, n, 1, "a token due at the turn of a minute may fall to either side")
	}
}
