package redisbudget

import (
	"errors"
	"strings"
	"sync"
	"time"
)

// ErrSlow is matched by the errors of calls whose answer comes so late that the process begins
// to decide alone, which it does after 50 ms, or after an Interval's 20th if that is longer. Such
// an error comes with the answer, and in each Interval that a call waits for its answer. An answer
// that comes late is booked all the same.
var ErrSlow = errors.New("redisbudget: Redis answers slowly")

// failure returns the error for OnError and Close.
func failure(err error, got answer) error {
	switch {
	case err != nil:
		return &callError{err}
	case got.expiry != "":
		return errors.New("redisbudget: the balance does not expire: " + withoutArguments(got.expiry))
	}
	return nil
}

// callError is the error of a failed call.
type callError struct{ err error }

func (e *callError) Error() string {
	return "redisbudget: the balance was not updated: " + withoutArguments(e.err.Error())
}

func (e *callError) Unwrap() error { return e.err }

// withoutArguments cuts the arguments that a server's error quotes if the server does not know
// a command. An argument may be a password or a key.
func withoutArguments(text string) string {
	text, _, _ = strings.Cut(text, ", with args beginning with")
	return text
}

// hook limits the calls of OnError.
type hook struct {
	mu     sync.Mutex
	called time.Time // when OnError was last called
	slow   bool      // and then got an ErrSlow
	busy   bool
}

// report calls OnError, unless OnError was called in this Interval, or has not returned.
// Otherwise a hook that blocks forever would cost a goroutine in each Interval.
func (b *Bucket) report(err error) {
	if err == nil || b.OnError == nil || !b.hook.take(b.settings.interval, errors.Is(err, ErrSlow)) {
		return
	}
	defer func() {
		// A failure of Redis must not end the process. A panic in this goroutine would end it.
		_ = recover()
		b.hook.giveBack()
	}()
	b.OnError(err)
}

// take returns whether OnError may be called now. A failure need not wait after an ErrSlow, or a
// call that was slow before it failed would hide why.
func (h *hook) take(interval time.Duration, slow bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	due := now.Sub(h.called) >= interval || h.slow && !slow
	if h.busy || !due {
		return false
	}
	h.busy, h.called, h.slow = true, now, slow
	return true
}

func (h *hook) giveBack() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy = false
}
