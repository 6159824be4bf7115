//go:build !race

package simulation

// fewer is what numbers of seeds are divided by.
const fewer = 1
