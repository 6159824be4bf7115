//go:build race

package sim

// The race detector makes a run many times slower.
const fewer = 4
