package outage

import (
	"context"
	"hash/maphash"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/durations"
	"github.com/retryhttp/retryhttp/internal/timer"
)

// mostLimited is the number of credentials whose closures a key keeps. If there are more, the
// retries with the other credentials wait only for what their own responses ask.
const mostLimited = 1024

// sweepEvery is the shortest time between two searches for closures that are over. Without this
// limit, each request to a host that is closed would cost a look at all closures.
const sweepEvery = 100 * time.Millisecond

// closure is a time for which a server asked its clients to stay away.
type closure struct {
	until   time.Time
	asked   time.Duration // its length when the server asked for it
	waiting atomic.Int64  // number of requests held until its end
}

// left returns how much longer the closure lasts. A nil closure is over. A closure is also over
// if the clock has gone back, as it does from one bubble of testing/synctest to the next.
func (c *closure) left(now time.Time) time.Duration {
	if c == nil || c.until.Sub(now) > c.asked {
		return 0
	}
	return max(c.until.Sub(now), 0)
}

// extend makes the closure last for d, unless it lasts longer.
func (c *closure) extend(now time.Time, d time.Duration) {
	if d > c.left(now) {
		c.until, c.asked = now.Add(d), d
	}
}

// Scope is whom a closure concerns.
type Scope uint8

const (
	SameCredentials Scope = iota
	WholeHost
	FirstAttempts // those that are careful
)

// closures are the closures of a key. The mutex of the key's health guards all fields.
//
// A 429 is about a client, which most servers know by its credentials. So a 429 closes the key only
// for the requests that carry the same credentials. Otherwise one limited tenant would hold up the
// retries of all others.
//
// A 503 is about the host, and often about one replica of many. It holds no retry but its own: the
// queue spreads the retries of a host that is down, and one replica would hold up those of the others.
// First attempts may stay away until then.
type closures struct {
	of    map[uint64]*closure // by key
	swept time.Time
	seed  maphash.Seed
}

// credentialFields are the fields that say on whose behalf a request is made.
var credentialFields = [...]string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key"}

// key returns the key of a closure: its scope, or a hash of header's credentials. A Watch outlives the
// request, and must not keep a secret. The seed is random, so that the hash does not betray the secret
// either. All requests without credentials have the same hash.
func (c *closures) key(of Scope, header http.Header) uint64 {
	if of != SameCredentials {
		return uint64(of)
	}
	var all []string
	for _, name := range credentialFields {
		all = append(append(all, name), header[name]...)
	}
	return maphash.String(c.seed, strings.Join(all, "\n")) // no valid line contains a line break
}

// host returns the closure of the whole host, or nil.
func (c *closures) host() *closure { return c.of[uint64(WholeHost)] }

// concerning returns the closures for a retry, or a first attempt, with header's credentials.
func (c *closures) concerning(now time.Time, header http.Header, first bool) (all []*closure) {
	if len(c.of) == 0 { // as usual
		return nil
	}
	c.sweep(now)
	scopes := FirstAttempts
	if first {
		scopes++
	}
	for of := range scopes {
		if closed := c.of[c.key(of, header)]; closed != nil {
			all = append(all, closed)
		}
	}
	return all
}

// sweep forgets the closures that are over. It keeps those that requests still wait for, in the random
// time after their end, because Status counts them.
func (c *closures) sweep(now time.Time) {
	if since := now.Sub(c.swept); since >= 0 && since < sweepEvery {
		return
	}
	c.swept = now
	maps.DeleteFunc(c.of, func(_ uint64, closed *closure) bool {
		return closed.left(now) == 0 && closed.waiting.Load() == 0
	})
}

// close closes the key for d. The caller holds mu.
func (h *health) close(now time.Time, d time.Duration, header http.Header, of Scope) {
	c := &h.closures
	c.sweep(now)
	key := c.key(of, header)
	if c.of[key] == nil && (of != SameCredentials || len(c.of) < mostLimited) {
		c.of[key] = new(closure)
	}
	if closed := c.of[key]; closed != nil {
		closed.extend(now, d)
	}
	// A host that is down names one moment to all its clients. Their retries would be its next outage, so the retries
	// queue, although the key may be well by then.
	if of == FirstAttempts && h.failing() {
		h.crowded = later(h.crowded, now.Add(durations.Add(d, min(behindFactor*d, h.hold))))
	}
}

// closure returns the closure that lasts longest for a retry, or a first attempt, with header's
// credentials, how much longer it lasts, and how long a closure the server asked for.
func (h *health) closure(header http.Header, first bool) (closed *closure, left, asked time.Duration) {
	h.mu.Lock()
	defer h.unlock()
	now := time.Now()
	for _, one := range h.closures.concerning(now, header, first) {
		if one.left(now) > left {
			closed, left, asked = one, one.left(now), one.asked
		}
	}
	return closed, left, asked
}

// waitWhileClosed waits until the key is no longer closed for req, and then up to half of the
// closure longer. Without the extra wait, all waiters would return at the same moment. If the
// closure ends after the deadline, a retry waits until the deadline, and a first attempt not at all.
//
// If the key is closed again meanwhile, the wait continues, for at most twice as long as the
// server asked, and the last extra wait. A host that refuses a few requests in a hundred closes its key
// again and again. Without this bound, the key of such a host would stay closed.
func (h *health) waitWhileClosed(req *http.Request, t *timer.Timer, deadline time.Time, first bool) (waited bool) {
	for due := time.Now(); ; waited = true {
		closed, left, asked := h.closure(req.Header, first)
		left = min(left, durations.Add(asked, asked)-time.Since(due))
		limit := time.Until(deadline)
		if left <= 0 || limit <= 0 || first && left > limit {
			return waited
		}
		closed.waiting.Add(1)
		t.Sleep(req.Context(), min(left+durations.Uniform(0, min(asked/2, max(limit-left, 0))), limit))
		closed.waiting.Add(-1)
		if isDone(req.Context()) {
			return true
		}
	}
}

// isDone reports whether ctx has ended. Somebody's context may end without an error.
func isDone(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}
