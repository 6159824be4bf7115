package retryhttp

import (
	"context"
	"io"
	"net/http"
	"runtime"
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

// drain reads what is left of the failed response, so that its connection can
// serve again, and closes it. If that takes too long, or ctx ends, the response
// is left to itself, which costs the connection.
func (c *call) drain(ctx context.Context, resp *http.Response, wait time.Duration) {
	if resp.Body == nil || resp.Body == http.NoBody {
		return
	}
	d, _ := c.t.drains.Get().(*drain)
	if d == nil {
		d = newDrain()
	}
	limit := min(maxDrainTime, c.spare(wait))
	d.start(resp, limit > 0)
	if !c.await(ctx, d, limit) {
		d.leave()
		return
	}
	panicked := d.panicked
	d.body, d.done, d.panicked = nil, nil, nil
	c.t.drains.Put(d)
	if panicked != nil {
		panic(panicked)
	}
}

// await reports whether the drain was done in time. As a rule all of a failed
// response is there with its header, and a moment is enough; so only after that
// does it take a channel, a timer, and a place among those who wait.
func (c *call) await(ctx context.Context, d *drain, limit time.Duration) bool {
	runtime.Gosched()
	done := d.notify()
	if done == nil {
		return true
	}
	c.timer.start(limit)
	defer c.timer.Stop()
	select {
	case <-done:
		return true
	case <-c.timer.C:
	case <-ctx.Done():
	}
	return false
}

// drain reads one body to its end and closes it, in a goroutine of its own: a
// Read or a Close may hang, even through the end of its context.
//
// A body may panic. A panic of Read counts as the end of the body. A panic of Close
// surfaces in the caller if the caller still waits.
type drain struct {
	run      func() // readAll as a value: starting that allocates nothing
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

func newDrain() *drain {
	d := new(drain)
	d.run = d.readAll
	return d
}

// start begins to read, if that may be of use, and to close.
func (d *drain) start(resp *http.Response, read bool) {
	d.body, d.rest, d.empty = resp.Body, 0, 0
	if read && resp.ContentLength <= maxDrainBytes {
		d.rest = maxDrainBytes
	}
	d.left.Store(false)
	d.closed.Store(false)
	d.state.Store(drainGoesOn)
	go d.run()
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

// attemptOf returns the attemptBody that body is, if it is one.
func attemptOf(body io.ReadCloser) (*attemptBody, bool) {
	switch b := body.(type) {
	case *attemptBody:
		return b, true
	case *attemptConn:
		return b.attemptBody, true
	}
	return nil, false
}
