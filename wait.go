package retryhttp

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/retryhttp/retryhttp/internal/durations"
)

// spread returns how long to wait before a retry. The room must be at least asked + backoff.
//
// Clients that receive the same moment from a Retry-After must not return at the same moment. So
// asked is only a minimum. A client adds its backoff, or a random time of up to half of asked if
// the random time is longer. This spread is proportional to the time in which the server's queue
// of clients built up. Near the deadline, the random time is limited to the time that is left.
// The backoff is not cut.
func spread(asked, backoff, room time.Duration) time.Duration {
	if asked <= 0 {
		return backoff
	}
	return durations.Add(asked, max(backoff, durations.Uniform(0, min(asked/2, room-asked))))
}

// room returns the longest wait after which an attempt can still start in time. The attempt must
// start strictly before the context's deadline, and at MaxElapsed at the latest.
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

// ended reports whether req's caller has stopped waiting. A deadline counts as soon as it has
// passed, even if the context has not noticed. http.Client.Timeout closes Request.Cancel, which
// ends an attempt, and the context notices only afterwards.
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
