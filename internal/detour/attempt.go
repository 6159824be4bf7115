package detour

import (
	"context"
	"slices"
	"sync"
)

// Attempt is what the context of an attempt says to a Dispatcher, under the key Key{}, and what the
// Dispatcher answers. A nil Attempt says that it is a first attempt.
type Attempt struct {
	again, hedge bool

	mu    sync.Mutex
	route Route
}

// Key is the key of an *Attempt in a context.
type Key struct{}

// Route is what the attempts of a request have done so far. What [Attempt.Route] returns does not change.
type Route struct {
	Reached  *Dispatcher // by the newest attempt, or nil
	taken    []*conn     // the detours that the attempts have taken, and might take again
	Detoured bool        // the newest attempt took a detour
	stay     bool        // its result does not call for another connection
}

// Begin lets a follow the attempts of a route. With number 1, it is the first of
// its Transport, and may be a retry of a Transport above, to which ctx belongs.
func (a *Attempt) Begin(ctx context.Context, route Route, number int, hedge bool) {
	a.again, a.hedge = number > 1, hedge
	if above := attemptOf(ctx); above != nil && number == 1 {
		a.again, a.hedge, route = above.again, above.hedge, above.Route()
	}
	a.route = Route{taken: route.taken, stay: route.stay}
}

// Route returns the route up to a, which may be under way.
func (a *Attempt) Route() Route {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.route
}

func attemptOf(ctx context.Context) *Attempt {
	a, _ := ctx.Value(Key{}).(*Attempt)
	return a
}

// note changes the route up to a. Nobody reads the route of a nil Attempt.
func (a *Attempt) note(change func(*Route)) {
	if a != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		change(&a.route)
	}
}

func (a *Attempt) isHedge() bool { return a != nil && a.hedge }

// leaves reports whether the attempt should take a connection that no earlier attempt has taken.
func (a *Attempt) leaves() bool {
	return a != nil && a.again && (a.hedge || !a.Route().stay)
}

func (a *Attempt) hasTaken(c *conn) bool {
	return slices.Contains(a.Route().taken, c)
}

// take adds c to the route. It forgets the detours that were retired meanwhile, because a request
// with many attempts would keep their memory.
func (r *Route) take(c *conn) {
	r.Detoured = true
	isRetired := func(c *conn) bool { return c.retired.Load() }
	r.taken = append(slices.DeleteFunc(slices.Clone(r.taken), isRetired), c)
}

// end records what the newest attempt's result says to the next attempt, and whether it came over a detour.
func (r *Route) end(v verdict, detoured bool) { r.Detoured, r.stay = detoured, v == nothing }
