// Package outage watches hosts fail and recover. It holds retries while their host is down, and
// releases them as the host's attempts succeed. It also keeps the times for which hosts have asked
// their clients to stay away.
package outage

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/keyed"
	"github.com/retryhttp/retryhttp/internal/timer"
)

// Watch has a fate for each key. The zero value is ready to use. Its methods are safe for concurrent
// use.
type Watch struct {
	fates   keyed.Map[fate]
	trouble atomic.Int64 // runs of failures, and queues, of all fates; 0: successes have no work
	closed  atomic.Bool  // a key has been closed at some time
}

// Verdict is what an attempt says about its host.
type Verdict uint8

const (
	Nothing Verdict = iota
	Up
	Down
)

// Calm reports whether no host has failed since its last success, and nothing is queued. While
// a Watch is calm, an attempt needs no Begin, and a success needs no End.
func (w *Watch) Calm() bool { return w.trouble.Load() == 0 }

// EverClosed reports whether a key has been closed at some time.
func (w *Watch) EverClosed() bool { return w.closed.Load() }

// Begin counts an attempt that is about to be sent, if its host may be down and Wait has not
// counted the attempt. p is the Pass that Wait returned, or the zero Pass.
func (w *Watch) Begin(key string, p Pass) Pass {
	if f := w.fates.Find(key); f != nil && f.run.Load() != 0 {
		began := f.enter()
		p.fate, p.run = began.fate, began.run
	}
	return p
}

// Close closes the key for d. The header has the credentials of the request that was refused.
func (w *Watch) Close(key string, d time.Duration, header http.Header, of Scope) {
	w.update(key, func(f *fate, now time.Time) { f.close(now, d, header, of) })
	w.closed.Store(true)
}

// End ends an attempt with a verdict. The attempt is the first of its request, or has p. hold is
// how long a retry may be held. If that is negative, failures do not count. End returns a mark, by
// which Wait sees whether other attempts have begun since.
func (w *Watch) End(key string, p Pass, v Verdict, first bool, hold time.Duration) (mark uint32) {
	switch {
	case v == Up:
		if f := w.fates.Find(key); f != nil {
			f.succeed(p, first, hold)
		}
	case v == Down && hold >= 0:
		w.update(key, func(f *fate, now time.Time) {
			f.fail(now, p.left == asProbe, hold)
			mark = f.mark.Load()
		})
	default:
		if f := w.fates.Find(key); f != nil {
			mark = f.mark.Load()
		}
	}
	p.leave(v == Nothing)
	return mark
}

// Wait holds a retry that is due, for at most limit, and reports whether the retry was held. The
// mark comes from the End of the previous attempt. With heed, closures hold the retry as well.
func (w *Watch) Wait(req *http.Request, key string, t *timer.Timer, mark uint32, limit time.Duration, heed bool) (p Pass, held bool) {
	f := w.fates.Find(key)
	if f == nil || f.open() {
		return Pass{}, false
	}
	deadline := time.Now().Add(limit)
	for {
		closed := heed && f.waitWhileClosed(req, t, deadline, false)
		p, queued := f.wait(req.Context(), t, mark, deadline)
		held = held || closed || queued
		if !queued || !heed || !f.closedMeanwhile(req) {
			return p, held
		}
		p.GiveBack()
	}
}

// WaitWhileClosed holds a first attempt while its key is closed, if the closure fits into limit.
// It reports whether the attempt was held.
func (w *Watch) WaitWhileClosed(req *http.Request, key string, t *timer.Timer, limit time.Duration) (held bool) {
	f := w.fates.Find(key)
	return f != nil && f.waitWhileClosed(req, t, time.Now().Add(limit), true)
}

// Held returns how many requests with the key are held now. It does not count requests that a
// closure for other credentials than header's holds.
func (w *Watch) Held(key string, header http.Header) int {
	f := w.fates.Find(key)
	if f == nil || f.queued.Load()+f.waiting.Load() == 0 {
		return 0
	}
	f.mu.Lock() // without the lock, a retry might count that is not going to be held
	defer f.mu.Unlock()
	return int(f.queued.Load() + f.closures.held(header))
}

// InLine returns how many of the held requests with the key have no token.
func (w *Watch) InLine(key string) int {
	f := w.fates.Find(key)
	if f == nil {
		return 0
	}
	return int(f.unpaid.Load())
}

// Status reports whether the key is down, and for how long it is closed for header's credentials.
// A key without new results is not reported as down for ever.
func (w *Watch) Status(key string, header http.Header) (down bool, closed time.Duration) {
	f := w.fates.Find(key)
	if f == nil || f.open() {
		return false, 0
	}
	_, closed, _ = f.closure(header, true)
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	return f.down(now) && !f.idle(now), closed
}

// update runs f on the key's fate, with the fate's lock held. It does nothing if the key has no
// fate and there is no room for a new fate. A fate that is forgotten meanwhile is no longer read,
// so update looks up the key again.
func (w *Watch) update(key string, f func(*fate, time.Time)) {
	for {
		k := w.fates.FindOrAdd(key, func() *fate { return newFate(&w.trouble) }, (*fate).forget)
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
