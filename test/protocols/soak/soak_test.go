package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp/internal/test/fault"
)

// The command does the same for longer.
func TestSoakOfAMinute(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	err := run(fault.Soak{Protocols: protocols, Clients: 20, Seed: seed}, time.Minute, func(line string) { t.Log(line) })
	assert.NoError(t, err, "seed %d", seed)
}
