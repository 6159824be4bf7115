//go:build race

package sim

import "time"

const (
	contentionShare    = 40
	closedFormRequests = 1_000
	publishedTime      = time.Minute
	budgetTime         = 15 * time.Second // two thirds of it come after the first Hold
)
