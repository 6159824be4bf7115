//go:build !race

package sim

import "time"

const (
	contentionShare    = 2 // one in so many of the seeds is run
	closedFormRequests = 5_000
	publishedTime      = time.Minute // a comparison with the published run needs this
	budgetTime         = 20 * time.Second
)
