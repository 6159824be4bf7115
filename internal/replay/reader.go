package replay

import (
	"io"
	"maps"
	"slices"

	"github.com/retryhttp/retryhttp/internal/closing"
)

// A Reader reads a body from its beginning, for one attempt. Like any io.Reader it serves one
// goroutine at a time. Close may be called while a Read is under way, and does not wait for the
// Read.
type Reader struct {
	lease *Lease
	from  *opened
	mark                // how far it has come; only a rewinder has a sum
	over  chan struct{} // closed by Close, or when the attempt ends

	// written by Read alone, with mu held
	used  bool // Read was called, or may be called late
	ended bool // the end was met
}

func (r *Reader) Read(p []byte) (n int, err error) {
	if r.ended {
		return 0, io.EOF // even after the attempt: net/http looks for the end again
	}
	b := r.lease.body
	switch {
	case !r.enter():
		err = ErrOver
	case len(p) == 0:
		r.leave()
	default:
		n, err = b.origin.read(r, p)
	}
	if n > 0 { // otherwise the origin may still look at the offset, after the end of the attempt
		r.offset += int64(n)
	}
	switch {
	case err == io.EOF:
		b.mu.Lock()
		r.ended = true
		if l := r.lease; l.trailer != nil && !l.told {
			maps.Copy(l.trailer, b.filled.Trailer)
			l.told = true
		}
		b.settle(closing.Soon)
	case err == ErrOver && b.length > 0 && b.length == r.offset:
		// net/http looks for the end after it has sent so many bytes, and an error there costs the connection.
		err = io.EOF
	}
	return n, err
}

// enter waits for the end of a pause, and counts a call that begins. It returns false if r is over: a
// body that was closed is not read, because another attempt may have it by then.
func (r *Reader) enter() bool {
	b := r.lease.body
	b.mu.Lock()
	defer b.mu.Unlock()
	for r.lease.isPaused() && !r.isOver() {
		b.changed.Wait()
	}
	r.used = true
	if r.isOver() || r.lease.isOver() {
		return false
	}
	r.from.calls++
	r.from.reads++
	return true
}

// leave ends a call that enter has counted.
func (r *Reader) leave() {
	b := r.lease.body
	b.mu.Lock()
	r.from.reads--
	r.from.left()
	b.settle(closing.Soon) // the Read may have cut the last attempt that needs the body
}

// Close ends this reader. [Body.settle] closes the body.
func (r *Reader) Close() (err error) {
	b := r.lease.body
	b.mu.Lock()
	r.end()
	r.from.readers = slices.DeleteFunc(r.from.readers, func(other *Reader) bool { return other == r })
	b.settle(func(c io.Closer) { err = c.Close() })
	if b.getBody == nil {
		return nil // the body is the caller's and not the base's
	}
	return err
}

// end makes Reads return ErrOver. The caller holds mu.
func (r *Reader) end() {
	if !r.isOver() {
		close(r.over)
		r.lease.body.changed.Broadcast()
	}
}

func (r *Reader) isOver() bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}
