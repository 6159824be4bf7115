//go:build race

package sim

import "time"

const (
	contentionShare    = 40
	closedFormRequests = 1_000
	publishedTime      = time.Minute
	budgetTime         = 6 * time.Second
)
