package fault_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp/internal/test/fault"
)

// The command soak does the same for minutes.
func TestSoak(t *testing.T) {
	for _, over := range []fault.Protocol{fault.HTTP1, fault.HTTP2, fault.HTTP2GoAway} {
		t.Run(over.String(), func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			stop := make(chan struct{})
			time.AfterFunc(2*time.Second, func() { close(stop) })
			total, err := fault.Soak{Clients: 50, Seed: seed, Over: over}.Run(stop, func(fault.Tally) {})
			assert.NoError(t, err, "seed %d", seed)
			assert.NotZero(t, total.Succeeded)
			assert.NotZero(t, total.Downloads)
			assert.NotZero(t, total.Hedges)
			t.Log(total)
		})
	}
}
