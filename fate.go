package retryhttp

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// A key is down after downAfter failures in a row. A client should not be slowed down if
	// only half of its requests fail. The first of these failures must be at least downFor ago,
	// because streams that die with one connection are one event.
	downAfter = 8
	downFor   = 100 * time.Millisecond
	// These pauses separate the newest result from the next probe, if nothing is under way.
	firstPause   = 250 * time.Millisecond
	longestPause = 5 * time.Second
	leastPause   = time.Millisecond
	// successesPerRelease is the number of successes that release one retry. A quarter of a
	// retry per success keeps the load after an outage below 1.7 times the usual load. If all
	// retries were released at once, ten times the usual load would cause a new outage.
	successesPerRelease = 4
	// Retries that come due queue behind held retries for at most behindFactor times the length
	// of the outage. Without this bound, the queue would never empty while a fifth of the
	// attempts fail.
	behindFactor = 5
	// After idleAfter without a result, the next failure begins a new run, and the key may be
	// forgotten.
	idleAfter = 10 * time.Second
)

// fate is the state that the requests of one key share. It records whether their host is down
// or has asked for a pause, and which retries are held.
//
// Because of the atomics, a success needs no lock while nothing is held. A retry that is queued
// changes queued and then reads run and underWay. A result changes run and underWay and then
// reads queued. Therefore at least one of the two sees the other.
type fate struct {
	trouble  *atomic.Int64 // the Gate's counter; counts this fate once if run is not 0, and once if queued is not 0
	run      atomic.Int64  // number of failures since the last success
	underWay underWay
	begun    atomic.Uint32 // changes when an attempt is counted in underWay, and when a run begins or ends; never 0
	queued   atomic.Int64  // number of retries held until a success; written with mu held
	waiting  atomic.Int64  // number of requests held until closedUntil
	closed   atomic.Bool   // closedUntil may be in the future; written with mu held

	mu        sync.Mutex
	forgotten bool
	since     time.Time // the first failure of the run
	newest    time.Time // the newest result, or the silent end of an attempt; a success counts only while retries are queued
	probing   bool      // newest is the time of a probe that does not count as under way
	behind    time.Time // the time until which retries queue behind others although the key is not down

	first, last *waiter
	pause       time.Duration
	credit      int // number of successes that have not released a retry yet

	closedUntil time.Time
	closedBy    time.Duration // the length of the closure when the server asked for it
}

func newFate(trouble *atomic.Int64) *fate {
	f := &fate{trouble: trouble, pause: firstPause}
	f.begun.Store(1)
	return f
}

// underWay counts attempts that began in one run of failures and have not ended. The upper half
// is the number of the run: attempts of an earlier run no longer count.
type underWay struct{ atomic.Uint64 }

// enter counts an attempt, and returns its run.
func (u *underWay) enter() (run uint32) { return uint32(u.Add(1) >> 32) }

// leave stops counting an attempt, and returns how many attempts are left. An attempt of an
// earlier run is not counted.
func (u *underWay) leave(run uint32) (left uint32, counted bool) {
	for {
		old := u.Load()
		if uint32(old>>32) != run {
			return 0, false
		}
		if u.CompareAndSwap(old, old-1) {
			return uint32(old) - 1, true
		}
	}
}

// endRun starts a new count for the next run.
func (u *underWay) endRun() {
	for {
		old := u.Load()
		if u.CompareAndSwap(old, (old>>32+1)<<32) {
			return
		}
	}
}

func (u *underWay) none() bool { return uint32(u.Load()) == 0 }

// down reports whether the key is down. The caller holds mu.
func (f *fate) down(now time.Time) bool {
	return f.run.Load() >= downAfter && now.Sub(f.since) >= downFor
}

// open reports whether a retry may be sent without reading the clock. This is so if the key is
// neither down nor closed, and nothing is queued.
func (f *fate) open() bool {
	return f.run.Load() < downAfter && f.queued.Load() == 0 && !f.closed.Load()
}

// enter counts an attempt as under way.
func (f *fate) enter() pass {
	f.begun.Add(1)
	return pass{fate: f, run: f.underWay.enter()}
}

// leave ends what enter began. If an attempt says nothing about the host, its end postpones the
// next probe, as a result does.
func (f *fate) leave(run uint32, silently bool) {
	left, counted := f.underWay.leave(run)
	if !counted || !silently && (left > 0 || f.queued.Load() == 0) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if silently {
		f.newest, f.probing = now, false
	}
	f.rouse(now)
}

// fail records a failure. The caller holds mu.
func (f *fate) fail(now time.Time, probe bool) {
	if f.first == nil && now.Sub(f.newest) >= idleAfter {
		f.endRun()
	}
	if run := f.run.Load(); run == 0 || !f.run.CompareAndSwap(run, run+1) {
		f.trouble.Add(1) // before run changes, or a success might see neither
		f.run.Store(1)
		f.since = now
		f.pause = min(f.pause, firstPause)
		f.begun.Add(1)
	}
	f.newest, f.probing = now, false
	if probe {
		f.pause = min(max(2*f.pause, firstPause), longestPause)
	}
	f.rouse(now)
}

// succeed records a success.
func (f *fate) succeed(probe bool, hold time.Duration) {
	if f.queued.Load() == 0 {
		f.endRun()
		if f.queued.Load() == 0 {
			return
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if f.down(now) {
		if until := now.Add(min(behindFactor*now.Sub(f.since), hold)); until.After(f.behind) {
			f.behind = until
		}
	}
	f.endRun()
	f.newest, f.probing = now, false
	f.pause = min(f.pause, firstPause)
	if probe {
		f.pause = max(f.pause/2, leastPause)
	}
	f.credit = min(f.credit+1, successesPerRelease)
	f.spend(now)
	f.rouse(now)
}

func (f *fate) endRun() {
	if f.run.Swap(0) != 0 {
		f.trouble.Add(-1)
		f.begun.Add(1)
		f.underWay.endRun()
	}
}

// close closes the key for d, unless the key is closed for longer. The caller holds mu.
func (f *fate) close(now time.Time, d time.Duration) {
	if until := now.Add(d); until.After(f.closedUntil) {
		f.closedUntil, f.closedBy = until, d
		f.closed.Store(true)
	}
}

// waitWhileClosed waits until the key is no longer closed, and then up to half of the closure
// longer. Without the extra wait, all waiters would return at the same moment. If the closure
// ends after the deadline, it waits until the deadline, or not at all with onlyIfFits.
//
// If the key is closed again meanwhile, the wait continues, for at most twice as long as the
// server asked. A host that refuses a few requests in a hundred closes its key again and again.
// Without this bound, the key of such a host would stay closed.
func (f *fate) waitWhileClosed(ctx context.Context, t *timer, deadline time.Time, onlyIfFits bool) (waited bool) {
	for due := time.Now(); ; waited = true {
		left, asked := f.closure()
		left = min(left, addSaturating(asked, asked)-time.Since(due))
		limit := time.Until(deadline)
		if left <= 0 || limit <= 0 || onlyIfFits && left > limit {
			return waited
		}
		f.waiting.Add(1)
		t.sleep(ctx, min(left+uniform(0, min(asked/2, max(limit-left, 0))), limit))
		f.waiting.Add(-1)
		select {
		case <-ctx.Done():
			return true
		default:
		}
	}
}

// closure returns how much longer the key is closed, and how long a closure the server asked
// for. Both are 0 if the key is not closed. The key is also not closed if the clock has gone
// back, as it does from one bubble of testing/synctest to the next.
func (f *fate) closure() (left, asked time.Duration) {
	if !f.closed.Load() {
		return 0, 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	left = time.Until(f.closedUntil)
	if left <= 0 || left > f.closedBy {
		f.closedUntil = time.Time{}
		f.closed.Store(false)
		return 0, 0
	}
	return left, f.closedBy
}

// forget reports whether f contains nothing worth keeping. If so, it marks f as forgotten.
func (f *fate) forget(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.first != nil || f.waiting.Load() > 0 || f.closedUntil.After(now) ||
		f.run.Load() != 0 && now.Sub(f.newest) < idleAfter {
		return false
	}
	f.forgotten = true
	f.endRun()
	return true
}
