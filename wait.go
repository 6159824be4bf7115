package retryhttp

import (
	"context"
	"math"
	"net/http"
	"time"
)

// askedFor returns how long the server asked to be left alone. 0 is not at all.
func askedFor(p *Policy, resp *http.Response) time.Duration {
	if resp == nil || p.MaxRetryAfter < 0 {
		return 0
	}
	asked, _ := RetryAfter(resp.Header)
	return asked
}

// spread returns how long to wait before a retry, with room for asked + backoff.
//
// Clients that were told the same moment by a Retry-After must not return at the
// same moment. So what they were told is a minimum. On top comes their backoff, or
// up to half of the minimum again: a spread in proportion to the time in which the
// server's queue of clients built up. Near the deadline, the spread makes do with
// what is left; the backoff is not cut.
func spread(asked, backoff, room time.Duration) time.Duration {
	if asked <= 0 {
		return backoff
	}
	return addSaturating(asked, max(backoff, uniform(0, min(asked/2, room-asked))))
}

// room is the longest wait that still lets an attempt start in time: strictly
// before the context's deadline, and at MaxElapsed at the latest.
func room(ctx context.Context, maxElapsed, elapsed time.Duration) time.Duration {
	room := time.Duration(math.MaxInt64)
	if deadline, ok := ctx.Deadline(); ok {
		room = time.Until(deadline) - 1
	}
	if maxElapsed > 0 {
		room = min(room, maxElapsed-elapsed)
	}
	return room
}

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

// timer is the one with which a RoundTrip waits, made when it is first needed.
//
// It is not kept in a sync.Pool beyond that: a time.Timer that was made in a
// testing/synctest bubble must not be used in another, and a Transport may well
// serve several.
type timer struct{ *time.Timer }

func (t *timer) start(d time.Duration) {
	if t.Timer == nil {
		t.Timer = time.NewTimer(d)
	} else {
		t.Reset(d)
	}
}

// sleep waits for d, or until ctx ends.
func (t *timer) sleep(ctx context.Context, d time.Duration) {
	if d <= 0 || ctx.Err() != nil {
		return
	}
	t.start(d)
	select {
	case <-t.C:
	case <-ctx.Done():
		t.Stop()
	}
}
