// Package outage watches hosts fail and recover. It holds retries while their host is down, and
// releases them as the host's attempts succeed. It also keeps the times for which hosts have asked
// their clients to stay away.
package outage

import (
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/keyed"
	"github.com/retryhttp/retryhttp/internal/timer"
)

// Watch knows the health of each key. The zero value is ready to use. Its methods are safe for concurrent
// use.
type Watch struct {
	keys    keyed.Map[health]
	trouble atomic.Int64 // number of keys in trouble; 0: successes have no work
}

// Verdict is what an attempt says about its host.
type Verdict uint8

const (
	Nothing Verdict = iota
	Up
	Down
)

// Calm reports whether no host has failed since its last success, and nothing is queued. While
// a Watch is calm, an attempt needs no Begin, and a success needs no End. Calm takes no lock.
func (w *Watch) Calm() bool { return w.trouble.Load() == 0 }

// Begin counts an attempt that is being sent, if its host may be down and Wait has not counted the
// attempt. p is the Pass that Wait returned, or the zero Pass. From then on, GiveBack passes no turn on.
func (w *Watch) Begin(key string, p Pass) Pass {
	p.released = nil
	w.find(key, func(h *health) {
		if p.run != h.runs { // the run in which it was released has ended
			p.health = nil
		}
		if h.failures > 0 && !p.UnderWay() {
			began := h.enter(time.Now())
			p.health, p.run = began.health, began.run
		}
	})
	return p
}

// Close closes the key for d. The header has the credentials of the request that was refused.
func (w *Watch) Close(key string, d time.Duration, header http.Header, of Scope) {
	w.update(key, func(h *health, now time.Time) { h.close(now, d, header, of) })
}

// End ends an attempt with a verdict. The attempt is the first of its request, or has p. hold is
// how long a retry may be held. If that is negative, nothing counts. End returns a mark, by
// which Wait sees whether other attempts have begun since.
func (w *Watch) End(key string, p Pass, v Verdict, first bool, hold time.Duration) (mark uint32) {
	if hold < 0 {
		return 0
	}
	if v == Down {
		w.update(key, func(h *health, now time.Time) {
			h.fail(now, p, hold)
			mark = h.mark
		})
	} else {
		w.find(key, func(h *health) {
			if v == Up {
				h.succeed(p, first, hold)
			}
			mark = h.mark
		})
	}
	p.leave(v == Nothing)
	return mark
}

// Wait holds a retry that is due while its key is down or closed. A retry that has a place in the line is
// held until Ask grants a token, or until a probe needs none. Wait reports whether the retry was held, and
// whether it may be sent. Retries in the line with equal buckets draw on one bucket. The bucket must be
// comparable. It is no field of the Turn, because it is kept, and the Turn would escape to the heap.
func (w *Watch) Wait(req *http.Request, key string, bucket any, t *timer.Timer, turn *Turn) (p Pass, held, ok bool) {
	h := w.keys.Find(key)
	if h == nil || turn.Ask == nil && h.open() {
		return Pass{}, false, true
	}
	for deadline := time.Now().Add(turn.Limit); ; p.GiveBack() {
		if turn.Heed && h.waitWhileClosed(req, t, deadline, false) {
			held = true
		}
		if isDone(req.Context()) {
			// Otherwise the retry would count as begun, although it is not going to be sent.
			return Pass{}, held, false
		}
		var queued bool
		p, queued, ok = h.wait(req, bucket, t, turn, deadline)
		held = held || queued
		if !queued || !ok || !turn.Heed {
			return p, held, ok
		}
		// Only the host's closure stops the queue, so a retry may be released although its credentials are limited.
		if left, _ := h.closure(req.Header, false); left == 0 {
			return p, held, ok
		}
	}
}

// WaitWhileClosed holds a first attempt while its key is closed, if the closure fits into limit.
// It reports whether the attempt was held.
func (w *Watch) WaitWhileClosed(req *http.Request, key string, t *timer.Timer, limit time.Duration) (held bool) {
	h := w.keys.Find(key)
	return h != nil && h.waitWhileClosed(req, t, time.Now().Add(limit), true)
}

// Status is the state of a key, for header's credentials.
type Status struct {
	Down   bool          // not for ever without new results
	Closed time.Duration // for how long
	Held   int           // requests that wait, with any credentials
	InLine int           // the part of Held without a token
}

// Status returns the state of a key.
func (w *Watch) Status(key string, header http.Header) (s Status) {
	w.find(key, func(h *health) {
		s.Held, s.InLine = h.queued()+int(h.closures.waiting.Load()), h.line.length
		if !h.failing() && len(h.closures.byKey) == 0 {
			return
		}
		now := time.Now()
		s.Down = h.down(now) && !h.idle(now)
		s.Closed, _ = h.closures.longest(now, header, true)
	})
	return s
}

// find runs look on the key's health, with its lock held, if there is one.
func (w *Watch) find(key string, look func(*health)) {
	if h := w.keys.Find(key); h != nil {
		h.mu.Lock()
		defer h.unlock()
		look(h)
	}
}

// update runs change on the key's health, with its lock held. It does nothing if the key has no
// health and there is no room for a new health. A health that is forgotten meanwhile is no longer read,
// so update looks up the key again.
func (w *Watch) update(key string, change func(*health, time.Time)) {
	for {
		k := w.keys.FindOrAdd(key, func() *health { return newHealth(&w.trouble) }, (*health).forget)
		if k == nil {
			return
		}
		k.mu.Lock()
		if !k.forgotten {
			change(k, time.Now())
			k.unlock()
			return
		}
		k.unlock()
		runtime.Gosched() // to the goroutine that removes it
	}
}
