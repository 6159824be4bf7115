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
	"github.com/retryhttp/retryhttp/internal/field"
	"github.com/retryhttp/retryhttp/internal/timer"
)

// mostLimited is the number of credentials whose closures a key keeps. If there are more, the
// retries with the other credentials wait only for what their own responses ask.
const mostLimited = 1024

// sweepEvery is the shortest time between two searches for closures that are over. Without this
// limit, each request to a host that is closed would cost a look at all closures.
const sweepEvery = 100 * time.Millisecond

// closure is a time for which a server asked its clients to stay away. A nil closure is over.
type closure struct {
	until time.Time
	asked time.Duration // its length when the server asked for it
}

// left returns how much longer the closure lasts. A closure is also over
// if the clock has gone back, as it does from one bubble of testing/synctest to the next.
func (c *closure) left(now time.Time) time.Duration {
	if c == nil || c.until.Sub(now) > c.asked {
		return 0
	}
	return max(c.until.Sub(now), 0)
}

// closesByStatus reports whether a Retry-After on a response with this status closes its key.
func closesByStatus(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// MayClose reports whether resp may close its key.
func MayClose(resp *http.Response) bool {
	return closesByStatus(resp.StatusCode) || len(resp.Header["Ratelimit"]) > 0 || len(resp.Header["X-Ratelimit-Remaining"]) > 0
}

// Closes returns how long a response that asks for a wait, or for none, closes its key, or 0.
func Closes(resp *http.Response, asked, longest time.Duration) time.Duration {
	if asked > 0 && closesByStatus(resp.StatusCode) {
		return min(asked, longest)
	}
	reset, exhausted := field.Exhausted(resp.Header)
	switch {
	case exhausted && asked > 0:
		return min(asked, longest)
	case exhausted && reset <= longest: // a quota of a day may be of one kind of request only
		return reset
	}
	return 0
}

// Scope is whom a closure concerns.
type Scope uint8

const (
	SameCredentials Scope = iota
	WholeHost
	FirstAttempts // those that are careful
)

// closures are the closures of a key. The mutex of the key's health guards all fields but waiting.
//
// A 429 is about a client, which most servers know by its credentials. So a 429 closes the key only
// for the requests that carry the same credentials. Otherwise one limited tenant would hold up the
// retries of all others.
//
// A 503 is about the host, and often about one replica of many. It holds no retry but its own: the
// queue spreads the retries of a host that is down, and one replica would hold up those of the others.
// First attempts may stay away until then.
type closures struct {
	byKey   map[uint64]*closure
	swept   time.Time
	seed    maphash.Seed
	waiting atomic.Int32 // number of requests that closures hold
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
func (c *closures) host() *closure { return c.byKey[uint64(WholeHost)] }

// longest returns how much longer a retry, or a first attempt, with header's credentials had better stay away, and
// how long a closure the server asked for.
func (c *closures) longest(now time.Time, header http.Header, first bool) (left, asked time.Duration) {
	if len(c.byKey) == 0 { // as usual
		return 0, 0
	}
	c.sweep(now)
	scopes := FirstAttempts
	if first {
		scopes++
	}
	for of := range scopes {
		if one := c.byKey[c.key(of, header)]; one.left(now) > left {
			left, asked = one.left(now), one.asked
		}
	}
	return left, asked
}

// sweep forgets the closures that are over.
func (c *closures) sweep(now time.Time) {
	if since := now.Sub(c.swept); since >= 0 && since < sweepEvery {
		return
	}
	c.swept = now
	maps.DeleteFunc(c.byKey, func(_ uint64, closed *closure) bool { return closed.left(now) == 0 })
}

// close closes the key for d.
func (h *health) close(now time.Time, d time.Duration, header http.Header, of Scope) {
	c := &h.closures
	c.sweep(now)
	key := c.key(of, header)
	closed, known := c.byKey[key]
	if d > closed.left(now) && (known || of != SameCredentials || len(c.byKey) < mostLimited) {
		c.byKey[key] = &closure{now.Add(d), d}
	}
	// A host that is down names one moment to all its clients. Their retries would be its next outage, so the retries
	// queue, although the key may be well by then.
	if of == FirstAttempts && h.failing() {
		h.crowded = latest(h.crowded, now.Add(durations.Add(d, min(behindFactor*d, h.hold))))
	}
}

// closure is closures.longest as of now.
func (h *health) closure(header http.Header, first bool) (left, asked time.Duration) {
	h.mu.Lock()
	defer h.unlock()
	return h.closures.longest(time.Now(), header, first)
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
		left, asked := h.closure(req.Header, first)
		left = min(left, durations.Add(asked, asked)-time.Since(due))
		limit := time.Until(deadline)
		if left <= 0 || limit <= 0 || first && left > limit {
			return waited
		}
		h.closures.waiting.Add(1)
		t.Sleep(req.Context(), min(left+durations.Uniform(0, min(asked/2, max(limit-left, 0))), limit))
		h.closures.waiting.Add(-1)
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
