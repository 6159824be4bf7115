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

// drain reads one body to its end and closes it.
//
// A body may panic. A panic of Read counts as the end of the body. A panic of Close
// surfaces in the caller if the drain was in time, and is dropped otherwise.
type drain struct {
	run      func() // readAll as a value: to start it allocates nothing
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

// startDrain begins to clear resp's body away, and to read it if that may be of use. It
// returns nil if there is none. The pool spares a retry two allocations.
//
// A Read or a Close may hang, even through the end of its context and beside a Close:
// not every net.Conn ends its Reads when it is closed, and net/http waits for an upload
// at the end of a response. So a drain gets a goroutine of its own, which costs more than
// the rest of a retry: it wakes another processor. Only a body in memory cannot hang.
func startDrain(pool *sync.Pool, resp *http.Response, read bool) *drain {
	if resp.Body == nil || resp.Body == http.NoBody {
		return nil
	}
	if b, ok := bufferedBody(resp); ok && b.rest == nil {
		return nil // it was read, and closed
	}
	d, _ := pool.Get().(*drain)
	if d == nil {
		d = new(drain)
		d.run = d.readAll
	}
	d.reset(resp, read)
	if isInMemory(d.body) {
		d.readAll()
	} else {
		go d.run()
	}
	return d
}

// join waits for the end of the drain, for as long as limit or until ctx ends. After
// that the response is left to itself, which costs its connection. The drain must not be
// used any more.
func (d *drain) join(ctx context.Context, pool *sync.Pool, t *timer, limit time.Duration) {
	if d == nil {
		return
	}
	if !d.await(ctx, t, limit) {
		d.leave()
		return
	}
	panicked := d.panicked
	d.body, d.done, d.panicked = nil, nil, nil
	pool.Put(d)
	if panicked != nil {
		panic(panicked)
	}
}

// reset makes d ready for a body, which is read if that is of use.
func (d *drain) reset(resp *http.Response, read bool) {
	d.body, d.rest, d.empty = resp.Body, 0, 0
	if read && resp.ContentLength <= maxDrainBytes {
		d.rest = maxDrainBytes
	}
	d.closed.Store(false)
	d.state.Store(drainGoesOn)
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
	if !d.state.CompareAndSwap(drainGoesOn, drainEnded) {
		close(d.done)
	}
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
