package fault_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp/internal/test/fault"
)

// The command soak does the same for minutes.
func TestSoak(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	began := time.Now()
	totals, err := fault.Soak{Clients: 50, Seed: seed}.Run(func(_ fault.Protocol, so fault.Tally) bool {
		// On a machine that is busy, all attempts may time out in the first two seconds.
		return time.Since(began) > 2*time.Second && so.Succeeded > 0 && so.Downloads > 0 && so.Hedges > 0
	})
	assert.NoError(t, err, "seed %d", seed)
	for i, total := range totals {
		t.Log(fault.Protocols[i], total)
	}
}
