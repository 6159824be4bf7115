package retryhttp

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"
)

// How much of a failed response is read so that its connection can serve
// again, and how long that may take.
const (
	maxDrainBytes = 64 << 10
	maxDrainTime  = 250 * time.Millisecond
)

// drain reads what is left of the failed response, so that its connection can
// serve again, and closes it. If that takes too long, or ctx ends, the response
// is closed as it is, which costs the connection.
func (c *call) drain(ctx context.Context, a *Attempt) {
	resp, limit := a.Response, c.drainTime(a.Wait)
	if resp.Body == nil {
		return
	}
	if resp.Body == http.NoBody || resp.ContentLength > maxDrainBytes || limit <= 0 {
		resp.Body.Close()
		return
	}
	d, _ := c.t.drains.Get().(*drain)
	if d == nil {
		d = newDrain()
	}
	d.start(resp.Body)
	if !c.await(ctx, d, limit) {
		go d.close() // which may wait for the Read
		return
	}
	d.body, d.rest.R, d.done = nil, nil, nil
	c.t.drains.Put(d)
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

// drainTime is how long the drain may take. Where the wait is shorter, a stalled
// response holds up the retry, but for no more than a tenth of the time that is
// left for it.
func (c *call) drainTime(wait time.Duration) time.Duration {
	return min(maxDrainTime, max(wait, c.room()/10))
}

// drain reads one body to its end, in a goroutine of its own, since a Read may
// hang, even through the end of its context.
type drain struct {
	run    func() // readAll as a value: starting that allocates nothing
	body   io.ReadCloser
	rest   io.LimitedReader
	closed atomic.Bool
	state  atomic.Uint32
	done   chan struct{} // closed at the end, once the state says that somebody waits
}

const (
	drainGoesOn = iota
	drainAwaited
	drainEnded
)

func newDrain() *drain {
	d := new(drain)
	d.run = d.readAll
	return d
}

func (d *drain) start(body io.ReadCloser) {
	d.body = body
	d.rest = io.LimitedReader{R: body, N: maxDrainBytes}
	d.closed.Store(false)
	d.state.Store(drainGoesOn)
	go d.run()
}

func (d *drain) readAll() {
	_, _ = io.Copy(io.Discard, &d.rest)
	d.close()
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

func (d *drain) close() {
	if d.closed.CompareAndSwap(false, true) {
		d.body.Close()
	}
}
