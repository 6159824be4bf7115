package replay

import "errors"

// turns lets the readers of one source, which has only one position, use it one
// after the other.
//
// It is a channel and not a sync.Mutex because whoever waits for it must be
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
