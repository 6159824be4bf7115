package respbody

import (
	"errors"
	"io"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
	"github.com/retryhttp/retryhttp/internal/replay"
)

// lateRead is a Read in a goroutine of its own, so that nobody has to wait for it. It cannot be taken
// back, and its results are for whoever waits for it in the end.
type lateRead struct {
	over     chan struct{} // closed when the Read has ended
	came     []byte
	err      error
	panicked any  // the value that the Read has panicked with
	exited   bool // the Read has panicked, or has called runtime.Goexit
}

func startRead(body io.Reader, p []byte) *lateRead {
	r := &lateRead{over: make(chan struct{}), exited: true}
	go func() {
		defer close(r.over)
		defer func() { r.panicked = recover() }()
		n, err := body.Read(p)
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

// errUnfinished ends a fill, and is no error of the body.
var errUnfinished = errors.New("the body has not come in time")

// fillForAMoment is fill for a failed response. A retry waits for its body no longer than for a drain:
// after patience, or when done is closed, the rest of the body begins with the Read that is under way.
// This Read may set the Trailer of resp, so the response that is returned is a copy then.
func (b *Buffered) fillForAMoment(
	resp *http.Response, declared, limit int64, patience time.Duration, done <-chan struct{},
) *http.Response {
	if replay.InMemory(b.rest) {
		b.fill(declared, limit, b.rest.Read)
		return resp
	}
	own := *resp
	own.Trailer = resp.Trailer.Clone()
	rest := &unfinished{base: b.rest, attempt: attemptOf(b.rest), resp: resp, own: &own, closed: make(chan struct{})}
	rest.attempt.waitApart(true)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	b.fill(declared, limit, func(p []byte) (n int, err error) {
		read := startRead(rest.base, p)
		rest.attempt.await(func() {
			select {
			case <-read.over:
				read.surface()
				n, err = len(read.came), read.err
				return
			case <-timer.C:
			case <-done:
			}
			rest.late, err = read, errUnfinished
		})
		return n, err
	})
	if rest.late == nil {
		rest.attempt.waitApart(false)
		return resp
	}
	b.data, b.err, b.rest = slices.Clip(b.data), nil, rest
	return &own
}

// unfinished is the rest of a body that did not come in time.
type unfinished struct {
	base    io.ReadCloser
	late    *lateRead
	attempt *Body          // nil if the attempt has no context of its own
	resp    *http.Response // the base's response, whose Trailer a Read may set
	own     *http.Response // the copy that the caller has

	closeOnce sync.Once
	closed    chan struct{}
}

func (u *unfinished) Read(p []byte) (n int, err error) {
	if !u.await() {
		return 0, http.ErrBodyReadAfterClose
	}
	switch late := u.late; {
	case len(late.came) > 0:
		n = copy(p, late.came)
		late.came = late.came[n:]
		return n, nil
	case late.err != nil:
		err = late.err
	default:
		late.came = nil // the rest may be read for hours
		n, err = u.base.Read(p)
	}
	if err == io.EOF {
		u.own.Trailer = u.resp.Trailer
	}
	return n, err
}

// await waits for the Read that is under way. It returns false if the body is closed.
func (u *unfinished) await() bool {
	u.attempt.await(func() {
		select {
		case <-u.closed:
		case <-u.late.over:
		}
	})
	select {
	case <-u.closed:
		return false
	default:
	}
	u.late.surface()
	u.attempt.waitApart(false)
	return true
}

// Close closes the body when its Read has ended, or at once if that is safe. It does not wait for the
// Read. A panic that comes later is dropped, because nobody could recover it.
func (u *unfinished) Close() (err error) {
	u.closeOnce.Do(func() {
		close(u.closed)
		select {
		case <-u.late.over:
		default:
			if !closing.WhileRead(u.base) {
				u.attempt.giveUp()
				go func() {
					<-u.late.over
					closing.Begin(u.base)
				}()
				return
			}
		}
		err = u.base.Close()
	})
	return err
}

// ClosableWhileRead reports whether the body may be closed while it is read.
func (u *unfinished) ClosableWhileRead() bool { return closing.WhileRead(u.base) }
