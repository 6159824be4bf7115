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
	// One retry is released by so many successes. A quarter of a retry for each keeps the
	// load after an outage below 1.7 times the usual. All at once would be ten times the
	// usual, and a new outage.
	successesPerRelease = 4
	// Retries that come due queue behind the held ones for so many times as long as the
	// outage lasted, or the queue would never empty where a fifth of the attempts fail.
	behindFactor = 5
	// idleAfter is how long after its newest failure a key may be forgotten.
	idleAfter = 10 * time.Second
)

// fate is what the requests of one key share: whether their host is down or has asked to
// be left alone, and which retries are held for it.
//
// The atomics let a success pass without the lock while nothing is held. Whoever queues
// and whoever ends an attempt first change one of them, and then look at the other's: at
// least one of the two sees the other.
type fate struct {
	trouble  *atomic.Int64 // the Gate's: counts this fate if run is not 0, and if queued is not 0
	run      atomic.Int64  // failures since the last success
	underWay atomic.Int64  // attempts begun while run was not 0, and probes
	begun    atomic.Uint32 // changes with every attempt that is counted in underWay, and at the end of a run
	queued   atomic.Int64  // held until a success; written with mu held
	waiting  atomic.Int64  // held until closedUntil

	mu        sync.Mutex
	forgotten bool
	since     time.Time // the first failure of the run
	newest    time.Time // the newest result, or the end of what was under way: as far as it matters
	behind    time.Time // until then, retries queue behind others although the key is not down

	first, last *waiter
	pause       time.Duration
	credit      int // successes that have not released a retry

	closedUntil time.Time
	closedBy    time.Duration // how long that was, when the server asked for it
}

// waiter is a retry in the queue. All is guarded by the fate's mu.
type waiter struct {
	wake           chan struct{} // has room for one
	previous, next *waiter
	armed          time.Time // when it looks for itself
	left           bool      // the queue
	pass           pass
}

// down reports whether the key is down, with mu held.
func (f *fate) down(now time.Time) bool {
	return f.run.Load() >= downAfter && now.Sub(f.since) >= downFor
}

// enter counts an attempt as under way.
func (f *fate) enter() {
	f.underWay.Add(1)
	f.begun.Add(1)
}

// leave ends what enter began.
func (f *fate) leave() {
	if f.underWay.Add(-1) > 0 || f.queued.Load() == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rouse(time.Now())
}

// endSilently takes note of the end of an attempt that says nothing about the host, and
// returns begun.
func (f *fate) endSilently(counted bool) uint32 {
	if counted {
		f.mu.Lock()
		f.newest = time.Now()
		f.mu.Unlock()
	}
	return f.begun.Load()
}

// fail takes note of a failure, with mu held.
func (f *fate) fail(now time.Time, probe bool) {
	if f.run.Add(1) == 1 {
		f.since = now
		f.trouble.Add(1)
	}
	f.newest = now
	if probe {
		f.pause = min(2*f.pause, longestPause)
	}
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
	f.newest = now
	f.pause = min(f.pause, firstPause)
	if probe {
		f.pause /= 2
	}
	f.credit++
	if f.credit == successesPerRelease {
		f.credit = 0
		f.release()
	}
	f.rouse(now)
}

func (f *fate) endRun() {
	if f.run.Swap(0) != 0 {
		f.trouble.Add(-1)
		f.begun.Add(1)
	}
}

// close closes the key for d, with mu held, unless it is closed for longer.
func (f *fate) close(now time.Time, d time.Duration) {
	if until := now.Add(d); until.After(f.closedUntil) {
		f.closedUntil, f.closedBy = until, d
	}
}

// waitWhileClosed waits until the key is no longer closed, and up to half of the closure
// on top of it: else all who wait would return at the same moment. If that is later than
// the deadline, it waits until then, or with onlyIfFits not at all.
func (f *fate) waitWhileClosed(ctx context.Context, t *timer, deadline time.Time, onlyIfFits bool) (waited bool) {
	for ctx.Err() == nil {
		left, asked := f.closure()
		limit := time.Until(deadline)
		if left <= 0 || limit <= 0 || onlyIfFits && left > limit {
			break
		}
		f.waiting.Add(1)
		t.sleep(ctx, min(left+uniform(0, min(asked/2, max(limit-left, 0))), limit))
		f.waiting.Add(-1)
		waited = true
	}
	return waited
}

// closure returns for how long the key is closed, and what the server had asked for.
func (f *fate) closure() (left, asked time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Until(f.closedUntil), f.closedBy
}

// wait holds a retry that has come due, while the key is down or other retries are held,
// until the deadline or the end of ctx. It reports whether it did.
func (f *fate) wait(ctx context.Context, t *timer, mark uint32, deadline time.Time) (p pass, held bool) {
	w, p := f.join(ctx, mark)
	if w == nil {
		return p, false
	}
	for ; ; held = true {
		at, over := f.look(ctx, w, deadline)
		if over {
			return w.pass, held
		}
		t.start(time.Until(at))
		select {
		case <-w.wake:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// join queues a retry, or returns no waiter if it need not wait. A retry that is not sent,
// since its context has ended, is not counted.
func (f *fate) join(ctx context.Context, mark uint32) (*waiter, pass) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.add(1)
	if f.forgotten || ctx.Err() != nil || !f.down(now) && (f.first == nil || !now.Before(f.behind)) {
		f.add(-1)
		return nil, pass{}
	}
	if f.first == nil && f.begun.Load() == mark {
		f.add(-1)
		f.enter()
		return nil, pass{fate: f}
	}
	w := &waiter{wake: make(chan struct{}, 1), previous: f.last}
	if f.last != nil {
		f.last.next = w
	} else {
		f.first = w
	}
	f.last = w
	return w, pass{}
}

// look reports whether w need not wait any longer, or when it looks again if nobody
// wakes it until then.
func (f *fate) look(ctx context.Context, w *waiter, deadline time.Time) (at time.Time, over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if !w.left && (ctx.Err() != nil || !now.Before(deadline)) {
		f.remove(w)
		f.rouse(now)
	}
	w.armed = deadline
	if f.first == w {
		f.rouse(now)
	}
	select {
	case <-w.wake: // by rouse
	default:
	}
	return w.armed, w.left
}

// rouse sends the oldest retry as a probe if it is time, with mu held. If that is later
// but sooner than the retry looks for itself, the retry is woken to look at the clock.
func (f *fate) rouse(now time.Time) {
	w := f.first
	if w == nil || f.underWay.Load() > 0 {
		return
	}
	due := f.newest.Add(f.pause)
	switch {
	case !due.After(now):
		f.enter()
		w.pass = pass{fate: f, probe: true}
		f.remove(w)
	case due.Before(w.armed):
		w.armed = due
	default:
		return
	}
	w.signal()
}

// release lets the oldest retry go, with mu held.
func (f *fate) release() {
	if w := f.first; w != nil {
		w.pass = pass{released: f}
		f.remove(w)
		w.signal()
	}
}

// passOn releases the next retry in the place of one that was canceled.
func (f *fate) passOn() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.release()
	f.rouse(time.Now())
}

// remove takes w out of the queue, with mu held.
func (f *fate) remove(w *waiter) {
	if w.previous != nil {
		w.previous.next = w.next
	} else {
		f.first = w.next
	}
	if w.next != nil {
		w.next.previous = w.previous
	} else {
		f.last = w.previous
	}
	w.previous, w.next, w.left = nil, nil, true
	if f.first == nil {
		f.pause, f.credit = firstPause, 0
	}
	f.add(-1)
}

// add changes the number of retries that are held, with mu held.
func (f *fate) add(n int64) {
	switch held := f.queued.Add(n); {
	case n > 0 && held == n:
		f.trouble.Add(1)
	case n < 0 && held == 0:
		f.trouble.Add(-1)
	}
}

func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
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
