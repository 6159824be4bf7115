package fault_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp/internal/fault"
)

// A few seconds of what the command soak does for minutes.
func TestSoak(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %t", http2), func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			stop := make(chan struct{})
			time.AfterFunc(2*time.Second, func() { close(stop) })
			total, err := fault.Soak{Clients: 50, Seed: seed, HTTP2: http2}.Run(stop, func(fault.Tally) {})
			assert.NoError(t, err, "seed %d", seed)
			assert.NotZero(t, total.Succeeded)
			t.Log(total)
		})
	}
}
