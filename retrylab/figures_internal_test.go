package retrylab

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestRatioToNothingIsNoFigure(t *testing.T) {
	assert.Equal(t, 0.5, ratioOf(1, 2))
	assert.True(t, math.IsNaN(ratioOf(1, 0)))
	assert.True(t, math.IsNaN(ratioOf(0, 0)))
}

func TestServiceHasHalfOfItsRoomAtFirstIfItComesBackSlowly(t *testing.T) {
	slowly := Outage{Load: Load{Rate: 10}, Room: 2, Slowly: 4 * time.Second}
	assert.Equal(t, 10.0, slowly.roomAt(0))
	assert.Equal(t, 15.0, slowly.roomAt(2*time.Second))
	assert.Equal(t, 20.0, slowly.roomAt(8*time.Second))
	slowly.Slowly = 0
	assert.Equal(t, 20.0, slowly.roomAt(0))
}

func TestOnlySomeTicksHaveALabel(t *testing.T) {
	labels := map[float64]string{}
	for _, tick := range (ticks{}).Ticks(0, 2) {
		labels[tick.Value] = tick.Label
	}
	assert.Equal(t, "1", labels[1])
	assert.Contains(t, labels, 0.2)
	assert.Empty(t, labels[0.2])
}
