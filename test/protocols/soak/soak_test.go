package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp/internal/test/fault"
)

// The command does the same for longer.
func TestSoakOfHalfAMinute(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	err := run(fault.Soak{Protocols: protocols, Clients: 20, Seed: seed}, 30*time.Second, func(line string) { t.Log(line) })
	assert.NoError(t, err, "seed %d", seed)
}

func TestSoakThatMeetsOnlyDeadlinesFails(t *testing.T) {
	totals := []fault.Tally{{Requests: 300, Succeeded: 100}, {Requests: 300, Succeeded: 99}}
	assert.EqualError(t, hurried(totals, 10*time.Minute),
		protocols[1].Name+": 99 of 300 requests succeeded: too many clients for this machine")
	assert.NoError(t, hurried(totals, time.Minute))
}
