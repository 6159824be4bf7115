package outage

import (
	"container/list"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// What the absence of each of these costs is in docs/simulation.md, "What each mechanism pays for".
const (
	// A key is down after downAfter failures in a row. A client should not be slowed down if
	// only half of its requests fail. The first of these failures must be at least downFor ago,
	// because streams that die with one connection are one event.
	downAfter = 8
	downFor   = 100 * time.Millisecond
	// These pauses separate the newest result from the next probe, if nothing is under way.
	firstPause   = 250 * time.Millisecond
	longestPause = 5 * time.Second
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
	// of a process that sends little. After a failure it waits for shortLinePause, because a thousand such
	// processes would otherwise probe more than a service can bear that has just come back. The pause does not
	// become longer: a page with a few requests does not wait for long.
	shortLinePause = 625 * time.Millisecond
	// A retry that is alone in line waits if it is the first that a trouble refuses, after at least
	// aloneAfter failures. With fewer, a large fleet whose processes share a budget would not recover.
	aloneAfter = 4
	// An attempt under way holds back probes for this part of the longest hold, while a run is no longer
	// than the longest hold.
	blockedPart = 5
	// Retries that come due queue behind held retries for at most behindFactor times the length
	// of the outage. Without this bound, the queue would never empty while a fifth of the
	// attempts fail.
	behindFactor = 5
	// After idleAfter without a result, the next failure begins a new run, and the key may be
	// forgotten.
	idleAfter = 10 * time.Second
)

// health is the state that the requests of one key share. It records whether their host is down
// or has asked for a pause, and which retries are held. A method that does not lock mu is called with mu held,
// unless it waits or asks.
type health struct {
	trouble *atomic.Int64 // the Watch's

	mu        sync.Mutex
	troubled  bool // trouble includes this key
	forgotten bool

	failures  int       // number of them since the last success
	runs      uint32    // number of runs that have ended
	wellSince uint32    // this number at the newest success
	underWay  int       // number of attempts that began in the newest run and have not ended
	entered   time.Time // when the newest of them began
	mark      uint32    // changes when an attempt or a run begins

	since   time.Time     // the first failure of the run
	newest  time.Time     // result, silent end or free probe; not all successes
	firstUp time.Time     // the newest success of a first attempt while retries were queued
	hold    time.Duration // how long a retry may be held
	behind  time.Time     // until then, retries queue behind others although the key is not down
	crowded time.Time     // until then, they queue even if nothing is held

	held   list.List // of waiters that have a token
	line   line      // retries that have none, behind the others
	pause  time.Duration
	credit int // number of successes that have not released a retry yet

	closures closures
}

func newHealth(trouble *atomic.Int64) *health {
	return &health{trouble: trouble, pause: firstPause,
		closures: closures{byKey: map[uint64]*closure{}, seed: maphash.MakeSeed()},
	}
}

// inTrouble reports whether a success has work: it ends a run of failures, or releases retries.
func (h *health) inTrouble() bool { return h.failures > 0 || h.queued() > 0 }

// unlock unlocks mu after a change.
func (h *health) unlock() {
	was := h.troubled
	h.troubled = h.inTrouble()
	switch {
	case h.troubled && !was:
		h.trouble.Add(1)
	case was && !h.troubled:
		h.trouble.Add(-1)
	}
	h.mu.Unlock()
}

// failing reports whether enough attempts in a row have failed for the key to be down.
func (h *health) failing() bool { return h.failures >= downAfter }

// down reports whether the key is down.
func (h *health) down(now time.Time) bool {
	return h.failing() && now.Sub(h.since) >= downFor
}

// idle reports whether nothing is known about the host now.
func (h *health) idle(now time.Time) bool {
	return h.queued() == 0 && now.Sub(h.newest) >= idleAfter
}

// enter counts an attempt as under way.
func (h *health) enter(now time.Time) Pass {
	h.mark++
	h.entered = now
	h.underWay++
	return Pass{health: h, run: h.runs}
}

// fail records the failure of an attempt with p. It says nothing new if a success has ended the run in which the
// attempt began: when a host comes back that has hung, attempts from before still time out.
func (h *health) fail(now time.Time, p Pass, hold time.Duration) {
	h.hold = hold
	if p.health == h && p.run < h.wellSince {
		return
	}
	if h.idle(now) {
		h.endRun()
	}
	if h.failures++; h.failures == 1 {
		h.since = now
		h.pause = min(h.pause, firstPause)
		h.mark++
	}
	h.newest = now
	if p.exit == asProbe {
		h.pause = min(2*h.pause, longestPause)
	}
	h.checkProbe(now) // the pauses of a short line become shorter when the trouble is lasting
}

// succeed records a success. It is the success of a first attempt, or of an attempt with p.
func (h *health) succeed(p Pass, first bool, hold time.Duration) {
	if h.queued() == 0 {
		h.getWell()
		return
	}
	now := time.Now()
	if h.down(now) {
		h.behind = latest(h.behind, now.Add(min(behindFactor*now.Sub(h.since), hold)))
	}
	h.getWell()
	h.newest = now
	h.pause = min(h.pause, firstPause)
	if p.exit == asProbe {
		h.pause = firstPause / 2
	}
	if first {
		h.firstUp = now
	}
	h.credit++
	if p.exit != unheld && h.withoutFirsts(now) {
		h.credit += fannedOut * successesPerRelease
	}
	h.spend(now)
	h.checkProbe(now)
}

// withoutFirsts reports whether no first attempt has succeeded for some time. None has succeeded
// since the newest run began, unless it is recorded in firstUp.
func (h *health) withoutFirsts(now time.Time) bool {
	return now.Sub(h.since) >= firstsGone && now.Sub(h.firstUp) >= firstsGone
}

// getWell ends the run with a success.
func (h *health) getWell() {
	h.line.recovered = true
	h.endRun()
	h.wellSince = h.runs
}

// endRun ends the run, if there is one. The attempts that began in it no longer count as under way.
func (h *health) endRun() {
	if h.failures > 0 {
		h.failures, h.underWay = 0, 0
		h.runs++
	}
}

// forget reports whether h contains nothing worth keeping. If so, it marks h as forgotten.
func (h *health) forget(now time.Time) bool {
	h.mu.Lock()
	defer h.unlock()
	h.closures.sweep(now)
	if h.queued() > 0 || h.line.places > 0 || len(h.closures.byKey) > 0 || h.closures.waiting.Load() > 0 ||
		now.Before(h.crowded) || now.Sub(h.line.refusal) < idleAfter || h.failures > 0 && !h.idle(now) {
		return false
	}
	h.forgotten = true
	h.endRun()
	return true
}
