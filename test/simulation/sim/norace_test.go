//go:build !race

package sim

// fewer is what numbers of seeds are divided by.
const fewer = 1
