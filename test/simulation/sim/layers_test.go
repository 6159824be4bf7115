package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTransportsOnTopOfEachOtherDoNotMultiply(t *testing.T) {
	assert.Equal(t, 4, Stacked(t, 3, 4, false), "in one process")
	assert.Equal(t, 64, Stacked(t, 3, 4, true), "in three")
	assert.Equal(t, 3, Stacked(t, 5, 3, false))
	assert.Equal(t, 243, Stacked(t, 5, 3, true))
}

func TestAChainWithBudgetsSpendsItsReservesAndThenNothing(t *testing.T) {
	chain := Chain{Transports: 3, PerSecond: 100, Up: 20 * time.Second, Down: 40 * time.Second, After: 10 * time.Second}
	for _, got := range Cascade(t, 3, chain, ungated(defaults)) {
		require.Equal(t, 1.0, got.Load(0, 20), "in health")
		for i, retries := range got.Retries {
			// A budget may be overdrawn by the successes in the time of an attempt. Below, the attempt
			// has waited between retries of its own.
			assert.LessOrEqual(t, retries, got.Reserves[i]+chain.PerSecond, "of Transport %d: no more than its budget held", i)
			// 0.1 · 20 s · 100/s, of which a mean over 20 s knows 1-e^-1 after 20 s.
			assert.InDelta(t, 126.4, got.Reserves[i], 6*3.2)
		}
		assert.Greater(t, got.Load(20, 25), 1.2, "the reserves are spent")
		assert.Equal(t, 1.0, got.Load(26, 60), "and then nothing")
		assert.Equal(t, 1.0, got.Load(62, 70), "after the outage")
		assert.Equal(t, between(got.Offered, 62, 70), between(got.Served, 62, 70), "all are served again")
	}
}

// A Gate holds retries for 5 s. If the outage outlasts that, they are sent all the same. An attempt
// that a Gate below has held for 5 s allows an overdraft of 5 s of successes.
func TestAChainWithGatesSpendsItsReservesLater(t *testing.T) {
	chain := Chain{Transports: 3, PerSecond: 100, Up: 20 * time.Second, Down: 40 * time.Second, After: 10 * time.Second}
	for _, got := range Cascade(t, 3, chain, defaults) {
		assert.LessOrEqual(t, got.Load(20, 24), 1.1)
		assert.LessOrEqual(t, got.Load(25, 30), 2.2)
		assert.LessOrEqual(t, got.Load(32, 60), 1.4, "the overdrafts")
		assert.GreaterOrEqual(t, between(got.Served, 62, 70), between(got.Offered, 62, 70), "all are served again")
		for i, retries := range got.Retries {
			assert.LessOrEqual(t, retries, got.Reserves[i]+5*chain.PerSecond, "of Transport %d", i)
		}
	}
}

func TestAChainWithoutBudgetsMultiplies(t *testing.T) {
	policy := ungated(unlimited)
	t.Run("every request of an outage that does not end", func(t *testing.T) {
		got := Cascade(t, 1, Chain{Transports: 3, PerSecond: 2, Down: 30 * time.Second}, policy)[0]
		assert.Equal(t, 64.0, got.Load(0, len(got.Deepest)))
	})
	t.Run("in time", func(t *testing.T) {
		chain := Chain{Transports: 3, PerSecond: 10, Up: 5 * time.Second, Down: 60 * time.Second, After: 10 * time.Second}
		got := Cascade(t, 1, chain, policy)[0]
		assert.Equal(t, 1.0, got.Load(0, 5))
		// A request takes 18 s on average to make its 64 attempts. Ten a second for 20 s are 200.
		// A tenth more or less is allowed for requests that came, and for requests that were
		// served.
		assert.InDelta(t, 64, got.Load(45, 65), 64*0.6)
	})
}
