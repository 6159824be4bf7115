package outage

import (
	"hash/maphash"
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
	// If no first attempt has succeeded for firstsGone, nothing but released retries can release
	// retries, and a quarter each would soon come to nothing. Each of their successes then also
	// releases fannedOut more, until first attempts succeed again. After a fan-out, the queue is
	// empty within a few round trips. With a shorter firstsGone, small processes would release
	// their queues between two first attempts, all at once.
	firstsGone = 400 * time.Millisecond
	fannedOut  = 2
	// While at least freeProbesFrom retries wait, a probe needs no token. A small process has few
	// tokens, and a probe may save all that wait.
	freeProbesFrom = 8
	// When a trouble begins, a probe of a shorter line needs no token either: nobody else may ask the host
	// of a process that sends little. After a failure it waits for shortLinePauses pauses, because a thousand
	// such processes would otherwise probe more than a service can bear that has just come back. With 1
	// pause, 6 % more of their requests are lost; with 3, bursts take 2.5 times as long as with plain retries.
	shortLinePauses = 2.5
	// An attempt under way holds back probes for this part of the longest hold, while a run is no longer
	// than the longest hold.
	blockedFor = 5
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
	trouble  *atomic.Int64 // the Watch's; this fate adds 1 if run is not 0, and 1 if queued is not
	born     time.Time
	run      atomic.Int64 // number of failures since the last success
	underWay underWay
	entered  atomic.Int64  // when the newest attempt under way began, as the time since born
	mark     atomic.Uint32 // changes when an attempt or a run begins
	queued   atomic.Int64  // number of retries held until a success; written with mu held
	unpaid   atomic.Int64  // number of queued retries that are in the line; written with mu held
	waiting  atomic.Int64  // number of requests held until a closure ends
	closed   atomic.Bool   // a closure may last; written with mu held

	mu        sync.Mutex
	forgotten bool
	since     time.Time     // the first failure of the run
	newest    time.Time     // result or silent end; a success counts only while retries are queued
	probing   bool          // newest is the time of a probe that does not count as under way
	firstUp   time.Time     // the newest success of a first attempt while retries were queued
	window    time.Duration // how long a retry may be held
	behind    time.Time     // until then, retries queue behind others although the key is not down
	crowded   time.Time     // until then, they queue even if nothing is held

	held   list[waiter] // retries that have a token
	line   line         // retries that have none, behind the others
	pause  time.Duration
	credit int // number of successes that have not released a retry yet

	closures closures
}

func newFate(trouble *atomic.Int64) *fate {
	return &fate{trouble: trouble, born: time.Now(), pause: firstPause, closures: closures{seed: maphash.MakeSeed()}}
}

// down reports whether the key is down. The caller holds mu.
func (f *fate) down(now time.Time) bool {
	return f.run.Load() >= downAfter && now.Sub(f.since) >= downFor
}

// idle reports whether nothing is known about the host now. The caller holds mu.
func (f *fate) idle(now time.Time) bool {
	return f.oldest() == nil && now.Sub(f.newest) >= idleAfter
}

// open reports whether a retry may be sent without reading the clock. This is so if the key is
// neither down nor closed, and nothing is queued.
func (f *fate) open() bool {
	return f.run.Load() < downAfter && f.queued.Load() == 0 && !f.closed.Load()
}

// enter counts an attempt as under way.
func (f *fate) enter() Pass {
	f.mark.Add(1)
	f.entered.Store(int64(time.Since(f.born)))
	return Pass{fate: f, run: f.underWay.enter()}
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
func (f *fate) fail(now time.Time, probe bool, window time.Duration) {
	f.window = window
	if f.idle(now) {
		f.endRun()
	}
	if run := f.run.Load(); run == 0 || !f.run.CompareAndSwap(run, run+1) {
		f.trouble.Add(1) // before run changes, or a success might see neither
		f.run.Store(1)
		f.since = now
		f.pause = min(f.pause, firstPause)
		f.mark.Add(1)
	}
	f.newest, f.probing = now, false
	if probe {
		f.pause = min(max(2*f.pause, firstPause), longestPause)
	}
	f.rouse(now)
}

// succeed records a success. It is the success of a first attempt, or of an attempt with p.
func (f *fate) succeed(p Pass, first bool, hold time.Duration) {
	if f.queued.Load() == 0 {
		f.getWell()
		if f.queued.Load() == 0 {
			return
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if f.down(now) {
		f.behind = later(f.behind, now.Add(min(behindFactor*now.Sub(f.since), hold)))
	}
	f.getWell()
	f.newest, f.probing = now, false
	f.pause = min(f.pause, firstPause)
	if p.left == asProbe {
		f.pause = max(f.pause/2, leastPause)
	}
	if first {
		f.firstUp = now
	}
	f.credit++
	if p.left != unheld && f.withoutFirsts(now) {
		f.credit += fannedOut * successesPerRelease
	}
	f.spend(now)
	f.rouse(now)
}

// withoutFirsts reports whether no first attempt has succeeded for some time. None has succeeded
// since the newest run began, unless it is recorded in firstUp. The caller holds mu.
func (f *fate) withoutFirsts(now time.Time) bool {
	return now.Sub(f.since) >= firstsGone && now.Sub(f.firstUp) >= firstsGone
}

// getWell ends the run with a success.
func (f *fate) getWell() {
	if f.endRun() {
		f.line.recovered.Store(true) // after run has changed
	}
}

func (f *fate) endRun() (ended bool) {
	if f.run.Swap(0) == 0 {
		return false
	}
	f.trouble.Add(-1)
	f.underWay.endRun()
	return true
}

// forget reports whether f contains nothing worth keeping. If so, it marks f as forgotten.
func (f *fate) forget(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.oldest() != nil || f.waiting.Load() > 0 || f.line.busy(now) || f.closures.latest.left(now) > 0 ||
		f.run.Load() != 0 && now.Sub(f.newest) < idleAfter {
		return false
	}
	f.forgotten = true
	f.endRun()
	return true
}
