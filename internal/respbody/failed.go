package respbody

import (
	"errors"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
	"github.com/retryhttp/retryhttp/internal/replay"
)

// late is the Read with which the rest of a body begins, in a goroutine of its own. It cannot be taken back.
type late struct {
	over     chan struct{} // closed when the Read has ended
	came     []byte        // and not read yet
	err      error
	panicked any // the value that the Read has panicked with

	resp   *http.Response // the base's response, whose Trailer a Read may set
	own    *http.Response // the copy that the caller has
	closed chan struct{}  // closed with the body
}

var errNoReturn = errors.New("the response body's Read ended its goroutine")

func startRead(read func([]byte) (int, error), p []byte) *late {
	l := &late{over: make(chan struct{}), err: errNoReturn, closed: make(chan struct{})}
	go func() {
		defer close(l.over)
		defer func() { l.panicked = recover() }()
		n, err := read(p)
		l.came, l.err = p[:n], err
	}()
	return l
}

// result returns the results of a Read that has ended. It repeats a panic in the goroutine that needs the body.
func (l *late) result() ([]byte, error) {
	if l.panicked != nil {
		panic(l.panicked)
	}
	return l.came, l.err
}

// begin reads the beginning of resp's body, and returns the response that counts afterward. A retry waits
// for the body of a failed response no longer than for a drain: after patience, or when done is closed, the
// rest of the body begins with the Read that is under way. This Read may set the Trailer of resp, so the
// response that is returned is a copy then.
func (b *Body) begin(resp *http.Response, limit int64, patience time.Duration, done <-chan struct{}) *http.Response {
	declared := declaredLength(resp)
	if patience == forEver || replay.InMemory(b.base) {
		b.fill(declared, limit, b.readBase)
		return resp
	}
	own := *resp
	own.Trailer = resp.Trailer.Clone()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	b.fill(declared, limit, func(p []byte) (int, error) {
		read := startRead(b.base.Read, p)
		b.await(func() {
			select {
			case <-read.over:
				return
			case <-timer.C:
			case <-done:
			}
			b.late = read
		})
		if b.late != nil {
			return 0, os.ErrDeadlineExceeded // ends the fill
		}
		came, err := read.result()
		return len(came), b.met(err)
	})
	if b.late == nil {
		return resp
	}
	b.late.resp, b.late.own = resp, &own
	b.data, b.err = slices.Clip(b.data), nil
	return &own
}

// awaitLate waits for the Read that is under way, if there is one. It returns false if the body is closed.
func (b *Body) awaitLate() bool {
	l := b.late
	if l == nil {
		return true
	}
	b.await(func() {
		select {
		case <-l.closed:
		case <-l.over:
		}
	})
	if b.closed.Load() {
		return false
	}
	came, err := l.result()
	b.data, b.read, b.shown, b.err = came, 0, len(came), b.met(err)
	l.came = nil // the reader has it
	return true
}

// closeLate closes the body when its Read has ended, or at once if that is safe. It does not wait for the
// Read. A panic that comes later is dropped, because nobody could recover it.
func (b *Body) closeLate() error {
	l := b.late
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
