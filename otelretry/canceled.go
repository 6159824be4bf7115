package otelretry

import (
	"context"
	"errors"
	"time"
)

// canceledError stands in metrics for the error of a request that its caller has canceled. A base
// may return any error for it, and the type of context.Canceled has no name of its own.
type canceledError struct{}

func (canceledError) Error() string { return "canceled" }

// cancellation returns what error.type shows for a request that ended with ctx: that its deadline
// has passed, even if ctx has not noticed, or that its caller has canceled it.
func cancellation(ctx context.Context) error {
	deadline, limited := ctx.Deadline()
	unnoticed := ctx.Err() == nil && limited && !time.Now().Before(deadline)
	if unnoticed || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return canceledError{}
}
