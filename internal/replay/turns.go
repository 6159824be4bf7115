package replay

import (
	"errors"
	"sync"
)

// turns lets the readers of one source, which has only one position, use it one
// after the other.
//
// It is a channel and not a sync.Mutex because a reader that waits for it must be
// able to give up: the holder may be in a Read that never returns. A channel
// also counts as durably blocked in a testing/synctest bubble, where a
// goroutine that waits for a mutex keeps time from moving.
type turns chan struct{}

func newTurns() turns { return make(turns, 1) }

// take waits for r's turn, for as long as r's attempt lasts.
func (t turns) take(r *Reader) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-r.over:
		return ErrOver
	case <-r.lease.ctx.Done():
		return r.lease.ctx.Err()
	}
}

func (t turns) give() { <-t }

const bufferSize = 32 << 10 // as net/http's own copy loop has

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// read calls f, which reads the body, with r's turn having been taken, gives
// the turn back, and returns what f has read.
func (t turns) read(r *Reader, p []byte, f func([]byte) (int, error)) (int, error) {
	return readBeside(r, p, func(p []byte) (int, error) {
		defer t.give()
		return f(p)
	})
}

// readBeside calls f, which reads the body, and returns what f has read.
//
// If r's attempt ends meanwhile, it does not wait for f. net/http's HTTP/1
// transport does not return from RoundTrip, not even when the context has
// ended, while it is in a Read of the body; so a caller whose body stalls would
// wait for it despite every time limit. This is why f gets a goroutine and a
// buffer of its own: it may come back when p belongs to somebody else.
func readBeside(r *Reader, p []byte, f func([]byte) (int, error)) (int, error) {
	buffer := buffers.Get().(*[bufferSize]byte)
	done := make(chan result, 1)
	go func() {
		got := result{err: &ReadError{errNoReturn}}
		defer func() {
			got.panicked = recover()
			done <- got
		}()
		got.n, got.err = f(buffer[:min(len(p), bufferSize)])
	}()
	select {
	case got := <-done:
		if got.panicked != nil {
			panic(got.panicked) // where it would have been without the goroutine
		}
		copy(p, buffer[:got.n])
		buffers.Put(buffer)
		return got.n, got.err
	case <-r.over:
		return 0, ErrOver
	case <-r.lease.ctx.Done():
		return 0, r.lease.ctx.Err()
	}
}

// result is what a Read has returned, if it has.
type result struct {
	n        int
	err      error
	panicked any
}

var errNoReturn = errors.New("the request body's Read ended its goroutine")

var errInvalidRead = errors.New("the request body's reader returned an impossible count")

// checked returns the results of a Read into a buffer of the given length, and
// turns a count that no Read may return into an error: counts become slice
// bounds and offsets here.
func checked(n int, err error, length int) (int, error) {
	if n < 0 || n > length {
		return 0, errInvalidRead
	}
	return n, err
}
