package replay

import (
	"errors"
	"sync"
)

// turns serializes the readers of a source that has only one position.
//
// It is a channel and not a sync.Mutex because a reader that waits must be able to give up.
// The holder may be in a Read that never returns. A channel also counts as durably blocked in
// a testing/synctest bubble, where a goroutine that waits for a mutex keeps time from moving.
type turns chan struct{}

func (t turns) give() { <-t }

const bufferSize = 32 << 10 // the size of the buffer in net/http's own copy loop

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// read calls f, which reads the body, when it is r's turn, and returns f's result.
//
// If r's attempt ends meanwhile, read does not wait for f. net/http's HTTP/1 transport
// does not return from RoundTrip while it is in a Read of the body, even if the context has
// ended. So a caller whose body stalls would wait despite every time limit. For this reason f
// gets its own goroutine and buffer: f may return after p has gone to other code.
func (t turns) read(r *Reader, p []byte, f func([]byte) (int, error)) (int, error) {
	if err := t.take(r); err != nil {
		r.leave()
		return 0, err
	}
	buffer := buffers.Get().(*[bufferSize]byte)
	done := make(chan result, 1)
	go func() {
		got := result{err: &ReadError{errNoReturn}}
		defer func() {
			got.panicked = recover()
			done <- got
		}()
		defer r.leave()
		defer t.give()
		got.n, got.err = f(buffer[:min(len(p), bufferSize)])
	}()
	select {
	case got := <-done:
		if got.panicked != nil {
			panic(got.panicked) // in the caller, as it would without the goroutine
		}
		copy(p, buffer[:got.n])
		buffers.Put(buffer)
		return got.n, got.err
	case <-r.over:
		return 0, ErrOver
	case <-r.lease.body.ctx.Done():
		return 0, r.lease.body.ctx.Err()
	}
}

// take waits for r's turn until r's attempt ends.
func (t turns) take(r *Reader) error {
	select {
	case t <- struct{}{}:
		if r.isOver() {
			t.give()
			return ErrOver
		}
		return nil
	case <-r.over:
		return ErrOver
	case <-r.lease.body.ctx.Done():
		return r.lease.body.ctx.Err()
	}
}

// result is the result of a Read, or the value with which it panicked. Variables of the caller would escape.
type result struct {
	n        int
	err      error
	panicked any
}

var errNoReturn = errors.New("the request body's Read ended its goroutine")
