//go:build !race

package fault_test

const thinned = 1
