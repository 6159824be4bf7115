package retryhttp

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
)

// How much of a failed response is read so that its connection can serve
// again, and how long that may take.
const (
	maxDrainBytes = 64 << 10
	maxDrainTime  = 250 * time.Millisecond
)

// drainer clears the failed responses of one RoundTrip away, one after the other.
type drainer struct {
	last     *drain // with its timer, for a retry that follows at once
	underWay bool
}

// start begins to clear resp's body away, which should take no longer than limit. If
// nobody will join it, the drain ends by itself. The pool spares a retry two
// allocations.
//
// A Read or a Close may hang, even through the end of its context, so a drain gets a
// goroutine of its own. To start a goroutine wakes another processor, which costs more
// than the rest of a retry. So a body that cannot hang is read at once: one in memory,
// and one of net/http's HTTP/1, which a timer closes beside its Read.
func (r *drainer) start(pool *sync.Pool, resp *http.Response, limit time.Duration, alone bool) {
	if resp.Body == nil || resp.Body == http.NoBody {
		return
	}
	d := r.take(pool)
	d.reset(resp, limit > 0)
	switch {
	case isInMemory(d.body):
		d.readAll()
		r.keep(d)
	case closing.EndsRead(unwrapped(d.body)):
		d.startGuard(limit)
		d.readAll()
		if d.guard.Stop() {
			r.keep(d)
		}
	case alone:
		d.home = pool
		d.startGuard(limit)
		go d.run()
	default:
		go d.run()
		r.last, r.underWay = d, true
	}
}

// join waits for a drain that is under way, for as long as limit or until ctx ends.
// The response is left to itself after that, which costs its connection.
func (r *drainer) join(ctx context.Context, t *timer, limit time.Duration) {
	if !r.underWay {
		return
	}
	d := r.last
	r.last, r.underWay = nil, false
	if d.await(ctx, t, limit) {
		r.keep(d)
	} else {
		d.leave()
	}
}

// take returns a drain that nobody uses.
func (r *drainer) take(pool *sync.Pool) *drain {
	d := r.last
	r.last = nil
	if d == nil {
		d, _ = pool.Get().(*drain)
	}
	if d == nil {
		d = new(drain)
		d.run, d.giveUp = d.readAll, d.leave
	}
	return d
}

// keep keeps a drain that has ended, and panics if its Close did.
func (r *drainer) keep(d *drain) {
	panicked := d.panicked
	d.body, d.done, d.panicked = nil, nil, nil
	r.last = d
	if panicked != nil {
		panic(panicked)
	}
}

// release gives back what a retry that follows at once would need.
func (r *drainer) release(pool *sync.Pool) {
	if r.last != nil && !r.underWay {
		r.last.recycle(pool)
		r.last = nil
	}
}

// drain reads one body to its end and closes it.
//
// A body may panic. A panic of Read counts as the end of the body. A panic of Close
// surfaces in the caller if the caller joins the drain, and is dropped otherwise.
type drain struct {
	run, giveUp func()      // readAll and leave as values: to start these allocates nothing
	guard       *time.Timer // gives up
	home        *sync.Pool  // where it goes at its end, if nobody joins it

	body     io.ReadCloser
	rest     int64       // how much may still be read
	empty    int         // how many Reads in a row brought nothing
	left     atomic.Bool // nobody waits any more
	closed   atomic.Bool
	panicked any // by Close
	state    atomic.Uint32
	done     chan struct{} // closed at the end, once the state says that somebody waits
}

const (
	drainGoesOn = iota
	drainAwaited
	drainEnded
)

// maxEmptyReads is how many Reads in a row may return neither bytes nor an error,
// as in bufio.
const maxEmptyReads = 100

// reset makes d ready for a body, which is read if that is of use.
func (d *drain) reset(resp *http.Response, read bool) {
	d.body, d.rest, d.empty = resp.Body, 0, 0
	if read && resp.ContentLength <= maxDrainBytes {
		d.rest = maxDrainBytes
	}
	d.left.Store(false)
	d.closed.Store(false)
	d.state.Store(drainGoesOn)
}

func (d *drain) startGuard(limit time.Duration) {
	if d.guard == nil {
		d.guard = time.AfterFunc(limit, d.giveUp)
	} else {
		d.guard.Reset(limit)
	}
}

func (d *drain) readAll() {
	defer d.end()
	defer d.close()
	defer func() { _ = recover() }()
	_, _ = io.Copy(io.Discard, d)
}

// Read reads on from the body, for as long as that is of use.
func (d *drain) Read(p []byte) (int, error) {
	if d.rest <= 0 || d.empty == maxEmptyReads || d.left.Load() {
		return 0, io.EOF
	}
	n, err := d.body.Read(p[:min(d.rest, int64(len(p)))])
	d.rest -= int64(n)
	if d.empty++; n > 0 {
		d.empty = 0
	}
	return n, err
}

func (d *drain) end() {
	switch home := d.home; {
	case home != nil:
		if d.guard.Stop() { // else its function may still use d
			d.body, d.panicked = nil, nil
			d.recycle(home)
		}
	case !d.state.CompareAndSwap(drainGoesOn, drainEnded):
		close(d.done)
	}
}

// recycle puts d into a pool, without its timer: a timer of one testing/synctest
// bubble must not be used in another.
func (d *drain) recycle(pool *sync.Pool) {
	d.guard, d.home = nil, nil
	pool.Put(d)
}

// await reports whether the drain ended in time. As a rule all of a failed response
// is there with its header, and a moment is enough. Only after that does await take a
// channel, a timer, and a place among those who wait.
func (d *drain) await(ctx context.Context, t *timer, limit time.Duration) bool {
	if d.state.Load() == drainEnded {
		return true
	}
	runtime.Gosched()
	done := d.notify()
	if done == nil {
		return true
	}
	if limit <= 0 {
		return false
	}
	t.start(limit)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

// notify returns a channel that will be closed at the end, or nil if that has
// come.
func (d *drain) notify() <-chan struct{} {
	if d.state.Load() == drainEnded {
		return nil
	}
	d.done = make(chan struct{})
	if !d.state.CompareAndSwap(drainGoesOn, drainAwaited) {
		return nil
	}
	return d.done
}

// leave gives the body up. A Read that hangs is freed where that is safe: by the
// end of the attempt's context if it has one of its own, and by Close if the body
// allows that. Any other body is closed when its Read has returned.
func (d *drain) leave() {
	d.left.Store(true)
	if attempt, ok := attemptOf(d.body); ok {
		attempt.cancel(nil)
	}
	if closing.WhileRead(d.body) {
		go d.close()
	}
}

func (d *drain) close() {
	if d.closed.CompareAndSwap(false, true) {
		defer func() { d.panicked = recover() }()
		_ = d.body.Close()
	}
}

// unwrapped returns the base's body.
func unwrapped(body io.ReadCloser) io.ReadCloser {
	if attempt, ok := attemptOf(body); ok {
		return attempt.ReadCloser
	}
	return body
}
