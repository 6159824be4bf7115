package retryhttp

import (
	"context"
	"errors"
	"net/http"
	"time"
)

var errCancelClosed = errors.New("the request's Cancel channel was closed")

// ended reports whether req's caller has stopped waiting. A deadline counts from
// the moment that it names: http.Client.Timeout closes Request.Cancel, which ends
// an attempt, and the context notices only after that.
func ended(req *http.Request) bool {
	if req.Context().Err() != nil || deadlinePassed(req.Context()) {
		return true
	}
	//lint:ignore SA1019 some still use it, and http.Client.Timeout does
	cancel := req.Cancel
	select {
	case <-cancel:
		return true
	default:
		return false
	}
}

func deadlinePassed(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}

// noticeTime is how long a context may take to notice that its deadline has
// passed.
const noticeTime = time.Millisecond

// endOf returns why req has ended: its context's cause, and its Err.
func endOf(req *http.Request) []error {
	ctx := req.Context()
	passed := deadlinePassed(ctx)
	if passed && ctx.Err() == nil { // it alone knows the cause
		timer := time.NewTimer(noticeTime)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	switch {
	case ctx.Err() != nil:
		return []error{context.Cause(ctx), ctx.Err()}
	case passed:
		return []error{context.DeadlineExceeded}
	}
	return []error{errCancelClosed}
}
