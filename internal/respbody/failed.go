package respbody

import (
	"net/http"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
	"github.com/retryhttp/retryhttp/internal/replay"
)

// lateRead is a Read in a goroutine of its own, so that nobody has to wait for it. It cannot be taken
// back. Its results are for the reader that waits for its end.
type lateRead struct {
	over     chan struct{} // closed when the Read has ended
	came     []byte
	err      error
	panicked any  // the value that the Read has panicked with
	exited   bool // the Read has panicked, or has called runtime.Goexit
}

func startRead(read func([]byte) (int, error), p []byte) *lateRead {
	r := &lateRead{over: make(chan struct{}), exited: true}
	go func() {
		defer close(r.over)
		defer func() { r.panicked = recover() }()
		n, err := read(p)
		r.came, r.err, r.exited = p[:n], err, false
	}()
	return r
}

// surface waits for the end of the Read. It repeats a panic or a runtime.Goexit in the goroutine that
// needs the body.
func (r *lateRead) surface() {
	<-r.over
	switch {
	case r.panicked != nil:
		panic(r.panicked)
	case r.exited:
		runtime.Goexit()
	}
}

// late is the Read with which the rest of a body begins.
type late struct {
	*lateRead
	resp *http.Response // the base's response, whose Trailer a Read may set
	own  *http.Response // the copy that the caller has

	closing atomic.Bool
	closed  chan struct{}
}

// begin reads the beginning of resp's body, and returns the response that counts afterward. A retry waits
// for the body of a failed response no longer than for a drain: after patience, or when done is closed, the
// rest of the body begins with the Read that is under way. This Read may set the Trailer of resp, so the
// response that is returned is a copy then.
func (b *Body) begin(
	resp *http.Response, declared, limit int64, patience time.Duration, done <-chan struct{},
) *http.Response {
	if patience == forEver || replay.InMemory(b.base) {
		b.fill(declared, limit, b.readBase)
		return resp
	}
	own := *resp
	own.Trailer = resp.Trailer.Clone()
	l := &late{resp: resp, own: &own, closed: make(chan struct{})}
	b.apart = true // the Read is awaited below
	timer := time.NewTimer(patience)
	defer timer.Stop()
	b.fill(declared, limit, func(p []byte) (n int, err error) {
		read := startRead(b.readBase, p)
		b.await(func() {
			select {
			case <-read.over:
				read.surface()
				n, err = len(read.came), read.err
				return
			case <-timer.C:
			case <-done:
			}
			l.lateRead, err = read, os.ErrDeadlineExceeded // ends the fill
		})
		return n, err
	})
	if l.lateRead == nil {
		b.apart = false
		return resp
	}
	b.data, b.err, b.late = slices.Clip(b.data), nil, l
	return &own
}

// awaitLate waits for the Read that is under way. It returns false if the body is closed.
func (b *Body) awaitLate() bool {
	l := b.late
	b.await(func() {
		select {
		case <-l.closed:
		case <-l.over:
		}
	})
	select {
	case <-l.closed:
		return false
	default:
	}
	l.surface()
	b.data, b.read, b.err = l.came, 0, l.err
	b.apart, l.came = false, nil
	return true
}

// closeLate closes the body when its Read has ended, or at once if that is safe. It does not wait for the
// Read. A panic that comes later is dropped, because nobody could recover it. Another call does nothing, and waits
// for nothing: a Close may take its time.
func (b *Body) closeLate() error {
	l := b.late
	if !l.closing.CompareAndSwap(false, true) {
		return nil
	}
	close(l.closed)
	select {
	case <-l.over:
	default:
		if !closing.WhileRead(b.base) {
			b.giveUp() // even if an upload goes on
			go func() {
				<-l.over
				closing.Begin(b.base)
			}()
			return nil
		}
	}
	return b.base.Close()
}
