package retryhttp

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// A key is down after so many failures in a row: a client that sees half of its
	// requests fail should not be slowed down. They must take some time: streams that
	// die with one connection are one event.
	downAfter = 8
	downFor   = 100 * time.Millisecond
	// Probes are sent so long after the newest result, if nothing is under way.
	firstPause   = 250 * time.Millisecond
	longestPause = 5 * time.Second
	leastPause   = time.Millisecond
	// One retry is released by so many successes. A quarter of a retry for each keeps the
	// load after an outage below 1.7 times the usual. All at once would be ten times the
	// usual, and a new outage.
	successesPerRelease = 4
	// Retries that come due queue behind the held ones for so many times as long as the
	// outage lasted. Without that bound, the queue would never empty while a fifth of the
	// attempts fail.
	behindFactor = 5
	// A failure so long after the newest one begins a new run, and a key may be forgotten.
	idleAfter = 10 * time.Second
)

// fate is what the requests of one key share: whether their host is down or has asked to
// be left alone, and which retries are held for it.
//
// The atomics let a success pass without the lock while nothing is held. A retry that is
// queued changes queued and then looks at run and underWay. A result changes run and
// underWay and then looks at queued. So at least one of the two sees the other.
type fate struct {
	trouble  *atomic.Int64 // the Gate's: counts this fate if run is not 0, and if queued is not 0
	run      atomic.Int64  // failures since the last success
	underWay underWay
	begun    atomic.Uint32 // changes when an attempt is counted in underWay, and when a run begins or ends; never 0
	queued   atomic.Int64  // held until a success; written with mu held
	waiting  atomic.Int64  // held until closedUntil
	closed   atomic.Bool   // closedUntil may be still to come; written with mu held

	mu        sync.Mutex
	forgotten bool
	since     time.Time // the first failure of the run
	newest    time.Time // the newest result, or the end of what was under way: as far as it matters
	probing   bool      // newest is when a probe was sent that is not under way
	behind    time.Time // until then, retries queue behind others although the key is not down

	first, last *waiter
	pause       time.Duration
	credit      int // successes that have not released a retry

	closedUntil time.Time
	closedBy    time.Duration // how long that was, when the server asked for it
}

func newFate(trouble *atomic.Int64) *fate {
	f := &fate{trouble: trouble, pause: firstPause}
	f.begun.Store(1)
	return f
}

// underWay counts attempts that began in one run of failures and have not ended. The upper
// half is the number of the run: attempts of an earlier one do not count any more.
type underWay struct{ atomic.Uint64 }

// enter counts an attempt, and returns its run.
func (u *underWay) enter() (run uint32) { return uint32(u.Add(1) >> 32) }

// leave takes an attempt out, and returns how many are left. An attempt of an earlier run
// is not counted.
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

// endRun begins to count anew.
func (u *underWay) endRun() {
	for {
		old := u.Load()
		if u.CompareAndSwap(old, (old>>32+1)<<32) {
			return
		}
	}
}

func (u *underWay) none() bool { return uint32(u.Load()) == 0 }

// down reports whether the key is down, with mu held.
func (f *fate) down(now time.Time) bool {
	return f.run.Load() >= downAfter && now.Sub(f.since) >= downFor
}

// open reports whether a retry may go without a look at the clock: the key is neither down
// nor closed, and nothing is held.
func (f *fate) open() bool {
	return f.run.Load() < downAfter && f.queued.Load() == 0 && !f.closed.Load()
}

// enter counts an attempt as under way.
func (f *fate) enter() pass {
	f.begun.Add(1)
	return pass{fate: f, run: f.underWay.enter()}
}

// leave ends what enter began. The end of an attempt that says nothing about the host
// postpones the next probe as a result does.
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

// fail takes note of a failure, with mu held.
func (f *fate) fail(now time.Time, probe bool) {
	if f.first == nil && now.Sub(f.newest) >= idleAfter {
		f.endRun()
	}
	if run := f.run.Load(); run == 0 || !f.run.CompareAndSwap(run, run+1) {
		f.trouble.Add(1) // before run, or a success might see neither
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

// succeed takes note of a success.
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

// close closes the key for d, with mu held, unless it is closed for longer.
func (f *fate) close(now time.Time, d time.Duration) {
	if until := now.Add(d); until.After(f.closedUntil) {
		f.closedUntil, f.closedBy = until, d
		f.closed.Store(true)
	}
}

// waitWhileClosed waits until the key is no longer closed, and up to half of the closure
// on top of it. Otherwise all waiters would return at the same moment. If the end is later
// than the deadline, it waits until the deadline, or with onlyIfFits not at all.
//
// If the key is closed again meanwhile, it goes on waiting, for at most twice as long as the
// server has asked. A host that refuses a few requests in a hundred closes its key again
// and again, and would otherwise be closed for good.
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

// closure returns for how long the key is closed, and for how long the server had asked.
// Both are 0 if it is not closed. Nor is it if the clock has gone back, as it does from one
// bubble of testing/synctest to the next.
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

// forget reports whether nothing is lost without f, and marks it as forgotten.
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
