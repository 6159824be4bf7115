package respbody

import (
	"io"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
	"github.com/retryhttp/retryhttp/internal/replay"
)

// failedFill reads the body of a failed response into a buffer, in a goroutine of its own. A retry
// waits for the body no longer than for a drain. A Read that is then under way cannot be taken
// back, so the goroutine leaves what the Read brings to the reader of the body, and ends.
type failedFill struct {
	Buffered               // the goroutine's own until over is closed; rest does not change
	over     chan struct{} // closed when the goroutine reads no more
	panicked any           // the value that a Read has panicked with
	exited   bool          // a Read has panicked, or has called runtime.Goexit

	mu     sync.Mutex // never held during a Read
	came   []byte     // what the Reads brought that have ended
	left   bool       // no other Read may begin
	ended  bool       // over is closed, or will be at once
	closes bool       // the goroutine closes the body when its Read has ended
}

// fillForAMoment is fill for a failed response. After patience, or when done is closed, the rest of the
// body begins with what the Read that is under way brings. This Read may set the Trailer of resp, so the
// response that is returned is a copy then.
func (b *Buffered) fillForAMoment(
	resp *http.Response, declared, limit int64, patience time.Duration, done <-chan struct{},
) *http.Response {
	if replay.InMemory(b.rest) {
		b.fill(declared, limit, nil)
		return resp
	}
	f := &failedFill{Buffered: Buffered{rest: b.rest, end: b.end}, over: make(chan struct{})}
	own := *resp
	own.Trailer = resp.Trailer.Clone()
	go f.run(declared, limit)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-f.over:
		f.surface()
		b.data, b.err = f.data, f.err
		return resp
	case <-timer.C:
	case <-done:
	}
	b.data, b.rest = f.leave(resp, &own)
	return &own
}

func (f *failedFill) run(declared, limit int64) {
	defer f.end()
	defer func() { f.panicked = recover() }()
	f.exited = true
	f.fill(declared, limit, f.goOn)
	f.exited = false
}

// goOn is called before each Read. It reports whether the Read may begin.
func (f *failedFill) goOn() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.came = f.data
	return !f.left
}

// leave returns what has come, and the rest of the body of resp, which becomes the body of own.
func (f *failedFill) leave(resp, own *http.Response) ([]byte, *unfinished) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = true
	u := &unfinished{fill: f, resp: resp, own: own, taken: len(f.came), closed: make(chan struct{})}
	u.stall = stallOf(f.rest)
	u.stall.pause() // nobody reads now
	return f.came[:len(f.came):len(f.came)], u
}

func (f *failedFill) end() {
	f.mu.Lock()
	f.ended = true
	closes := f.closes
	f.mu.Unlock()
	close(f.over)
	if closes {
		defer func() { _ = recover() }() // the caller's Close has returned
		_ = f.rest.Close()
	}
}

// leaveClose reports whether the goroutine will close the body, because a Read is under way, and
// the body may not be closed beside it.
func (f *failedFill) leaveClose() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closes = !f.ended && !closing.WhileRead(f.rest)
	return f.closes
}

// surface repeats the panic or the runtime.Goexit of a Read in the goroutine that needs the body.
func (f *failedFill) surface() {
	switch {
	case f.panicked != nil:
		panic(f.panicked)
	case f.exited:
		runtime.Goexit()
	}
}

// unfinished is the rest of a body whose next bytes a failedFill may still be reading.
type unfinished struct {
	fill  *failedFill
	resp  *http.Response // the base's response, whose Trailer a Read may set
	own   *http.Response // the copy that the caller has
	taken int            // the buffer has so many of the fill's bytes
	stall *stallWatch    // of the Read that is under way; nil if there is none

	closeOnce sync.Once
	closed    chan struct{}
}

func (u *unfinished) Read(p []byte) (int, error) {
	n, err := u.read(p)
	if err == io.EOF {
		u.own.Trailer = u.resp.Trailer
	}
	return n, err
}

func (u *unfinished) read(p []byte) (int, error) {
	f := u.fill
	switch {
	case !u.await():
		return 0, http.ErrBodyReadAfterClose
	case u.taken < len(f.data):
		n := copy(p, f.data[u.taken:])
		u.taken += n
		return n, nil
	case f.err != nil:
		return 0, f.err
	}
	f.data, f.came, u.taken = nil, nil, 0 // the rest may be read for hours
	return f.rest.Read(p)
}

// await waits for the Read that is under way. It returns false if the body is closed.
func (u *unfinished) await() bool {
	u.stall.resume()
	select {
	case <-u.closed:
	case <-u.fill.over:
		u.fill.surface()
	}
	select {
	case <-u.closed:
		u.stall.pause()
		return false
	default:
		return true
	}
}

// Close closes the body at once if no Read of the goroutine is under way. It ends such a Read if
// that is safe: see Drain.leave.
func (u *unfinished) Close() error {
	u.closeOnce.Do(func() { close(u.closed) })
	if !u.fill.leaveClose() {
		return u.fill.rest.Close()
	}
	if attempt, ok := attemptOf(u.fill.rest); ok {
		attempt.Cancel(nil)
	}
	return nil
}

// ClosableWhileRead reports whether the body may be closed while it is read.
func (u *unfinished) ClosableWhileRead() bool { return closing.WhileRead(u.fill.rest) }
