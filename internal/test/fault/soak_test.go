package fault_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp/internal/test/fault"
)

// The command in test/protocols does the same for longer, and over HTTP/3.
func TestSoak(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	soak := fault.Soak{
		Protocols: []*fault.Protocol{fault.HTTP1, fault.HTTP2, fault.HTTP2GoAway}, Clients: 50, Seed: seed,
	}
	before := fault.TakeInventory()
	began := time.Now()
	totals, err := soak.Run(func(_ *fault.Protocol, so fault.Tally) bool {
		// On a machine that is busy, all attempts may time out in the first two seconds.
		return time.Since(began) > 2*time.Second && so.Succeeded > 0 && so.Downloads > 0 && so.Hedges > 0 && so.Detours > 0
	})
	assert.NoError(t, err, "seed %d", seed)
	assert.NoError(t, before.Leaked(20*time.Second))
	for i, total := range totals {
		t.Log(soak.Protocols[i].Name, total)
	}
}
