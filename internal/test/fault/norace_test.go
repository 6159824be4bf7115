//go:build !race

package fault_test

const (
	thinned = 1
	lanes   = 16
)
