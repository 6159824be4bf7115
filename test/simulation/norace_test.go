//go:build !race

package simulation

const (
	raced = false
	fewer = 1 // what numbers of seeds are divided by
)
