package detour

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// Attempt is what the context of an attempt says to a Dispatcher, under the key Key{}, and what the
// Dispatcher answers. A nil Attempt says that it is a first attempt.
type Attempt struct {
	again, hedge bool
	detoured     atomic.Bool
	reached      atomic.Pointer[Dispatcher]

	mu    sync.Mutex
	route Route
}

// Key is the key of an *Attempt in a context.
type Key struct{}

// Route is what the attempts of a request have done so far. It does not change.
type Route struct {
	taken []*conn // the detours that they have taken, and might take again
	stay  bool    // the newest result does not call for another connection
}

// Begin lets a follow the attempts of a route. With number 1, it is the first of
// its Transport, and may be a retry of a Transport above, to which ctx belongs.
func (a *Attempt) Begin(ctx context.Context, so Route, number int, hedge bool) {
	a.again, a.hedge, a.route = number > 1, hedge, so
	if above := attemptOf(ctx); above != nil && number == 1 {
		a.again, a.hedge, a.route = above.again, above.hedge, above.Route()
	}
}

// Route returns the route up to a, which may be under way.
func (a *Attempt) Route() Route {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.route
}

// Detoured reports whether the attempt took a detour.
func (a *Attempt) Detoured() bool { return a.detoured.Load() }

// Reached returns the Dispatcher that the attempt has reached, or nil.
func (a *Attempt) Reached() *Dispatcher { return a.reached.Load() }

func attemptOf(ctx context.Context) *Attempt {
	a, _ := ctx.Value(Key{}).(*Attempt)
	return a
}

func (a *Attempt) reach(d *Dispatcher) {
	if a != nil {
		a.reached.Store(d)
	}
}

func (a *Attempt) isHedge() bool { return a != nil && a.hedge }

// leaves reports whether the attempt should take a connection that no earlier attempt has taken.
func (a *Attempt) leaves() bool {
	return a != nil && a.again && (a.hedge || !a.Route().stay)
}

// take records that the attempt takes c. It forgets the detours that were closed meanwhile, because a request
// with many attempts would keep their memory.
func (a *Attempt) take(c *conn) {
	if a == nil {
		return
	}
	a.detoured.Store(true)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.route.taken = append(slices.DeleteFunc(slices.Clone(a.route.taken), (*conn).lost), c)
}

func (a *Attempt) hasTaken(c *conn) bool {
	return a != nil && slices.Contains(a.Route().taken, c)
}

// end records what the attempt's result says to the next attempt, and whether it came over a detour.
func (a *Attempt) end(v verdict, detoured bool) {
	if a == nil {
		return
	}
	a.detoured.Store(detoured)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.route.stay = v == nothing
}
