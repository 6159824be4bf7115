package respbody

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
	"github.com/retryhttp/retryhttp/internal/replay"
	"github.com/retryhttp/retryhttp/internal/timer"
)

// These limits bound how much of a failed response is read, and for how long, so that its
// connection can be reused.
const (
	MaxDrainBytes = 64 << 10
	MaxDrainTime  = 250 * time.Millisecond
)

// Drains starts drains, and keeps those that have ended for reuse, which saves a retry two
// allocations. The zero value is ready to use.
type Drains struct{ idle sync.Pool } // of *Drain

// Drain reads one body to its end and closes it.
//
// A body may panic. A panic of Read counts as the end of the body. A panic of Close surfaces in
// the caller if the drain ends in time, and is dropped otherwise.
type Drain struct {
	drains   *Drains
	run      func() // readAll as a value, so that starting it allocates nothing
	body     io.ReadCloser
	rest     int64 // number of bytes that may still be read
	empty    int   // number of Reads in a row that returned no bytes
	closed   atomic.Bool
	panicked any // the value of a panic by Close
	state    atomic.Uint32
	done     chan struct{} // closed at the end once somebody has awaited it
}

const (
	drainGoesOn = iota
	drainAwaited
	drainLeft // the caller no longer waits for the drain
	drainEnded
)

// maxEmptyReads is the number of Reads in a row that may return neither bytes nor an error, as
// in bufio.
const maxEmptyReads = 100

// Start starts to close resp's body, and first to read it if read is true and that may be useful.
// It returns nil if there is no body to close.
//
// A Read or a Close may hang, even after its context has ended and during another Close. Not
// every net.Conn ends its Reads when it is closed, and net/http waits for an upload at the end
// of a response. Therefore a drain gets its own goroutine. The goroutine costs more than the
// rest of a retry, because it wakes another processor. Only a body in memory cannot hang.
func (s *Drains) Start(resp *http.Response, read bool) *Drain {
	if resp.Body == nil || resp.Body == http.NoBody {
		return nil
	}
	if b, ok := resp.Body.(*Body); ok {
		if b.gone {
			return nil // already read and closed
		}
		read = read && b.late == nil // it was read for MaxDrainTime within the attempt
	}
	d, _ := s.idle.Get().(*Drain)
	if d == nil {
		d = &Drain{drains: s}
		d.run = d.readAll
	}
	d.body = resp.Body
	if read && resp.ContentLength <= MaxDrainBytes {
		d.rest = MaxDrainBytes
	}
	if replay.InMemory(d.body) {
		d.readAll()
	} else {
		go d.run()
	}
	return d
}

// Join waits for the end of the drain, until limit has passed or ctx ends. After that, Join
// abandons the response, which costs its connection. d must not be used after Join. A nil Drain
// has ended.
func (d *Drain) Join(ctx context.Context, t *timer.Timer, limit time.Duration) {
	if d == nil {
		return
	}
	if !d.await(ctx, t, limit) {
		d.leave()
		return
	}
	if d.panicked != nil {
		panic(d.panicked)
	}
	*d = Drain{drains: d.drains, run: d.run}
	d.drains.idle.Put(d)
}

func (d *Drain) readAll() {
	defer func() {
		if !d.state.CompareAndSwap(drainGoesOn, drainEnded) {
			close(d.done)
		}
	}()
	defer d.close()
	defer func() { _ = recover() }()
	_, _ = io.Copy(io.Discard, d)
}

// Read continues to read from the body while that is useful.
func (d *Drain) Read(p []byte) (int, error) {
	if d.rest <= 0 || d.empty == maxEmptyReads || d.state.Load() == drainLeft {
		return 0, io.EOF
	}
	n, err := d.body.Read(p[:min(d.rest, int64(len(p)))])
	d.rest -= int64(n)
	if d.empty++; n > 0 {
		d.empty = 0
	}
	return n, err
}

// await reports whether the drain ended in time. Usually a failed response arrives whole with
// its header, and a moment is enough. After that moment, await makes a channel, starts a timer
// and blocks.
func (d *Drain) await(ctx context.Context, t *timer.Timer, limit time.Duration) bool {
	for range 2 {
		if d.state.Load() == drainEnded {
			return true
		}
		runtime.Gosched()
	}
	d.done = make(chan struct{})
	if !d.state.CompareAndSwap(drainGoesOn, drainAwaited) {
		return true // it has ended meanwhile
	}
	t.Start(limit)
	defer t.Stop()
	select {
	case <-d.done:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

// leave abandons the body. It frees a Read that hangs if that is safe. It ends the attempt's
// context if the attempt has its own, and closes the body if the body allows a Close during a
// Read. Any other body is closed when its Read returns.
func (d *Drain) leave() {
	d.state.Store(drainLeft)
	if b, ok := d.body.(interface{ giveUp() }); ok {
		b.giveUp()
	}
	if closing.WhileRead(d.body) {
		go d.close()
	}
}

func (d *Drain) close() {
	if d.closed.CompareAndSwap(false, true) {
		defer func() { d.panicked = recover() }()
		_ = d.body.Close()
	}
}
