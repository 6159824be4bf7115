//go:build race

package simulation

// The race detector makes a run many times slower.
const (
	raced = true
	fewer = 4
)
