package retryhttp

import (
	"cmp"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/timer"

	"github.com/retryhttp/retryhttp/internal/keyed"
)

// Gate holds retries back while their host is down. The host's successes release them. The zero
// value is ready to use. Share a Gate among Transports that call the same hosts. It must not be
// changed or copied after first use.
//
// A key is down when its last 8 results were failures, the first of them at least 100 ms ago. Each
// success then releases a quarter of a retry, or more if there are no first attempts. A
// Retry-After on a 429 or 503 closes the key for its time, or for MaxRetryAfter if that is shorter.
// So does an exhausted [RateLimit], if its reset is within MaxRetryAfter. Each retry is held for
// at most Hold, and at most half of the time left. There are at most 4,096 keys.
//
// If Key is nil, a closure without a 503 holds only requests with the same Authorization,
// X-Api-Key, Api-Key and X-Goog-Api-Key. The Gate keeps a hash of them, for at most 1,024
// closures of each host. It does not see what a RoundTripper below adds.
type Gate struct {
	Hold  time.Duration              // the longest that each retry is held, on top of its wait. 0: 5s; negative: nothing is held
	First bool                       // first attempts wait, too, if their key is closed for no longer than they may be held
	Key   func(*http.Request) string // which requests share a fate. nil: URL.Host

	fates   keyed.Map[fate]
	trouble atomic.Int64 // number of runs of failures and of queues in all fates; if it is 0, a success has nothing to do
	closed  atomic.Bool  // a key has been closed at some time
}

const defaultHold = 5 * time.Second

// Held returns how many requests with req's key are held now, for a gauge. It does not count
// requests that a closure for other credentials holds.
func (g *Gate) Held(req *http.Request) int {
	f := g.fates.Find(g.key(req))
	if f == nil || f.queued.Load()+f.waiting.Load() == 0 {
		return 0
	}
	f.mu.Lock() // without the lock, a retry might count that is not going to be held
	defer f.mu.Unlock()
	return int(f.queued.Load() + f.closures.held(req))
}

// Status reports whether req's key is down, and for how long a Retry-After or a RateLimit closes
// it for req. It is for schedulers, which had better send something else meanwhile. Without
// results, a key is down for 10 s at most, since only new results can show that its host is well.
func (g *Gate) Status(req *http.Request) (down bool, closed time.Duration) {
	f := g.fates.Find(g.key(req))
	if f == nil || f.open() {
		return false, 0
	}
	_, closed, _ = f.closure(req)
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	return f.down(now) && !f.idle(now), closed
}

// pass is what an attempt holds from its Gate until the attempt ends. With a fifth field, the
// compiler would keep passes in memory, and a held request would need a larger stack.
type pass struct {
	fate     *fate  // the fate that counts the attempt as under way, or nil
	run      uint32 // the run of failures in which the attempt is under way
	left     exit
	released *fate // the fate whose successes released the attempt, or nil; always nil once the attempt is sent
}

// exit is how a retry has left the queue.
type exit uint8

const (
	unheld    exit = iota // it was not in the queue, or until its hold ended
	bySuccess             // successes have released it
	asProbe
)

// verdict is what an attempt says about its host.
type verdict int

const (
	saysNothing verdict = iota
	saysUp
	saysDown
)

// succeeded reports whether the attempt counts as a success of its host.
func (r *result) succeeded() bool {
	return r.class == Final && r.Response != nil && r.inner == nil
}

// verdict returns what the attempt says about its host. A server that asks its client to wait
// is healthy, and knows best how long the wait must be. A response below 500 is Retryable if a
// Classify polls until a result is ready, which says nothing about the host either.
func (r *result) verdict(req *http.Request) verdict {
	switch {
	case r.succeeded():
		return saysUp
	case r.inner != nil:
		return saysNothing
	case r.class == Final, ended(req):
		return saysNothing
	}
	resp := r.answer()
	if resp == nil {
		return saysDown
	}
	if refuses(resp.StatusCode) || resp.StatusCode < 500 && r.broken == nil {
		return saysNothing
	}
	if _, ok := r.retryAfter(); ok {
		return saysNothing
	}
	return saysDown
}

// evidence is what an attempt says about its key.
type evidence struct {
	verdict   verdict
	first     bool          // it is a first attempt
	closed    time.Duration // how long its response closes the key
	wholeHost bool          // it closes the key for all requests, and not only for the same credentials
}

// closes returns how long the response closes its key, or 0. A success costs two lookups of a
// header, and nothing else.
func (r *result) closes(p *Policy) time.Duration {
	resp := r.answer()
	if resp == nil || p.MaxRetryAfter < 0 {
		return 0
	}
	refused := resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable
	if !refused && len(resp.Header["Ratelimit"]) == 0 && len(resp.Header["X-Ratelimit-Remaining"]) == 0 {
		return 0
	}
	asked, _ := r.retryAfter()
	if refused && asked > 0 {
		return min(asked, p.MaxRetryAfter)
	}
	switch reset, ok := exhausted(resp.Header); {
	case !ok:
		return 0
	case asked > 0:
		return min(asked, p.MaxRetryAfter)
	case reset > p.MaxRetryAfter:
		return 0 // a quota of a day may be of one kind of request only
	default:
		return reset
	}
}

// calm reports whether no host has failed since its last success, and nothing is queued. While
// the Gate is calm, an attempt needs no begin, and a success needs no end.
func (g *Gate) calm() bool { return g.trouble.Load() == 0 }

// begin counts an attempt that is about to be sent, if its host may be down and wait has not
// counted the attempt. p is the pass that wait returned, or the zero pass.
func (g *Gate) begin(req *http.Request, p pass) pass {
	p.released = nil
	if p.fate != nil || g.calm() {
		return p
	}
	if f := g.fates.Find(g.key(req)); f != nil && f.run.Load() != 0 {
		began := f.enter()
		p.fate, p.run = began.fate, began.run
	}
	return p
}

// end records what an attempt says about its key. It returns a mark, which wait uses to see
// whether other attempts have begun since.
func (g *Gate) end(req *http.Request, p pass, e evidence) (mark uint32) {
	if e.closed > 0 && g.Hold >= 0 {
		g.update(req, func(f *fate, now time.Time) { f.close(now, e.closed, req, e.wholeHost || g.Key != nil) })
		g.closed.Store(true)
	}
	switch {
	case e.verdict == saysUp:
		if f := g.fates.Find(g.key(req)); f != nil {
			f.succeed(p, e.first, g.hold())
		}
	case e.verdict == saysDown && g.Hold >= 0:
		g.update(req, func(f *fate, now time.Time) {
			f.fail(now, p.left == asProbe)
			mark = f.begun.Load()
		})
	default:
		if f := g.fates.Find(g.key(req)); f != nil {
			mark = f.begun.Load()
		}
	}
	p.leave(e.verdict == saysNothing)
	return mark
}

// leave ends what begin began. An attempt that says nothing about its host ends silently.
func (p pass) leave(silently bool) {
	if p.fate != nil {
		p.fate.leave(p.run, silently)
	}
}

// giveBack undoes begin and wait for an attempt that is not sent.
func (p pass) giveBack() {
	p.leave(false)
	if p.released != nil {
		p.released.passOn()
	}
}

// wait holds a retry that is due, for at most limit, and reports whether the retry was held.
// The mark comes from the end of the previous attempt.
func (g *Gate) wait(req *http.Request, policy *Policy, t *timer.Timer, mark uint32, limit time.Duration) (p pass, held bool) {
	limit = min(limit, g.hold())
	if limit <= 0 {
		return pass{}, false
	}
	f := g.fates.Find(g.key(req))
	if f == nil || f.open() {
		return pass{}, false
	}
	deadline := time.Now().Add(limit)
	for {
		closed := policy.MaxRetryAfter >= 0 && f.waitWhileClosed(req, t, deadline, false)
		p, queued := f.wait(req.Context(), t, mark, deadline)
		held = held || closed || queued
		if !queued || policy.MaxRetryAfter < 0 || !f.closedMeanwhile(req) {
			return p, held
		}
		p.giveBack()
	}
}

// waitFirst holds a first attempt while its key is closed, if the closure fits into limit. It
// reports whether the attempt was held.
func (g *Gate) waitFirst(req *http.Request, policy *Policy, t *timer.Timer, limit time.Duration) (held bool) {
	limit = min(limit, g.hold())
	if limit <= 0 || policy.MaxRetryAfter < 0 || !g.closed.Load() {
		return false
	}
	f := g.fates.Find(g.key(req))
	return f != nil && f.waitWhileClosed(req, t, time.Now().Add(limit), true)
}

func (g *Gate) hold() time.Duration {
	return cmp.Or(g.Hold, defaultHold)
}

func (g *Gate) key(req *http.Request) string {
	switch {
	case req.URL == nil:
		return "" // no base sends it
	case g.Key != nil:
		return g.Key(req)
	}
	return req.URL.Host
}

// blocks reports whether req's key is down or closed.
func (g *Gate) blocks(req *http.Request) bool {
	down, closed := g.Status(req)
	return down || closed > 0
}

// update runs f on the fate of req's key, with the fate's lock held. It does nothing if the key
// has no fate and there is no room for a new fate. A fate that is forgotten meanwhile is no
// longer read, so update looks up the key again.
func (g *Gate) update(req *http.Request, f func(*fate, time.Time)) {
	key := g.key(req)
	for {
		k := g.fates.FindOrAdd(key, func() *fate { return newFate(&g.trouble) }, (*fate).forget)
		if k == nil {
			return
		}
		k.mu.Lock()
		if !k.forgotten {
			f(k, time.Now())
			k.mu.Unlock()
			return
		}
		k.mu.Unlock()
	}
}
