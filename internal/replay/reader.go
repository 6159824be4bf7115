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
	lease  *Lease
	from   *opened
	offset int64
	sum    uint32        // a rewinder's checksum of the bytes up to offset
	over   chan struct{} // closed by Close, or when the attempt ends

	// written by Read alone, with mu held
	used  bool // Read was called
	ended bool // the end was met
}

func (r *Reader) Read(p []byte) (int, error) {
	if r.ended {
		return 0, io.EOF // even after the attempt: net/http looks for the end again
	}
	b := r.lease.body
	if !r.enter() {
		return 0, b.afterwards(r.offset)
	}
	if len(p) == 0 {
		r.from.leave()
		return 0, nil
	}
	n, err := b.origin.read(r, p)
	if n > 0 { // otherwise the origin may still look at the offset, after the end of the attempt
		r.offset += int64(n)
	}
	switch err {
	case io.EOF:
		b.mu.Lock()
		r.ended = true
		if l := r.lease; l.trailer != nil && !l.told {
			maps.Copy(l.trailer, b.filled.Trailer)
			l.told = true
		}
		b.settle(closing.Soon)
	case ErrOver:
		err = b.afterwards(r.offset)
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
		b.wait(r.over)
	}
	r.used = true
	if r.isOver() || r.lease.isOver() {
		return false
	}
	r.from.calls++
	return true
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

// afterwards returns the error of a Read after the attempt is over, when the reader has returned so
// many bytes. The length is as in [net/http.Request.ContentLength]: 0 or less means unknown. A
// reader that has returned this many bytes is at its end. net/http looks for the end after it has sent
// these bytes, and an error there costs the connection.
func (b *Body) afterwards(returned int64) error {
	if b.length > 0 && b.length == returned {
		return io.EOF
	}
	return ErrOver
}
