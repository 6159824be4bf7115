package replay

import (
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"time"
)

var (
	// ErrSpent means that the beginning of the body was not kept.
	ErrSpent = errors.New("the request body cannot be sent again: more of it was sent than is kept")
	// ErrOver is the error of a reader whose attempt is over.
	ErrOver = errors.New("the attempt that read this request body is over")
	// ErrInUse means that GetBody might rewind a body that another attempt has open.
	ErrInUse = errors.New("another attempt has the request body open")
	// ErrNoBody means that GetBody returned neither a body nor an error, or returned http.NoBody.
	// The request has content, or GetBody would not be called.
	ErrNoBody = errors.New("GetBody returned no body")
)

// A Lease is one attempt's right to read the body.
type Lease struct {
	body       *Body
	generation generation
	trailer    http.Header // the attempt's own

	// guarded by body.mu
	over   bool
	told   bool // the trailer is filled
	newest *Reader
}

// isOver reports whether the attempt is over. The caller holds mu.
func (l *Lease) isOver() bool { return l.over || l.generation < l.body.live }

// First gives req the body of the first attempt.
func (b *Body) First(req *http.Request) *Lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := &Lease{body: b, generation: b.newest}
	l.give(req, l.reader(b.own))
	return l
}

// Next gives req a body for the attempt that follows this attempt, which may still be reading. An
// error means that the body cannot be read from its beginning again, and changes nothing.
//
// If a Read of this attempt, or of the attempt beside it, would move the position of the new
// attempt, the Reads pause until they are cut. Then Next waits for a Read that is under way, but no
// longer than patience or the end of the request's context. If GetBody returns the very body that
// is still being read, the error is [ErrInUse]: the Read would take bytes from the new attempt.
func (l *Lease) Next(req *http.Request, patience time.Duration) (next *Lease, err error) {
	b := l.body
	b.mu.Lock()
	defer b.settle(apart)
	if b.sealed {
		return nil, ErrSpent
	}
	if err = b.repeatable(); err != nil {
		return nil, err
	}
	if err = l.pause(patience); err == nil {
		next, err = b.begin(req, b.newest+1)
	}
	if err != nil {
		b.resume()
		return nil, err
	}
	b.newest++
	return next, nil
}

// Beside gives req a body for an attempt that runs beside this attempt, and does not affect it.
//
// GetBody may rewind the body that this attempt reads. So Beside calls GetBody only if every opened
// body has been closed, and no Read or Close is under way. Beside does not wait for that. While one
// of the two attempts has a body open, [Lease.Open] fails for the other attempt. The error is
// ErrInUse, ErrOver, or an error from GetBody.
func (l *Lease) Beside(req *http.Request) (*Lease, error) {
	b := l.body
	b.mu.Lock()
	defer b.settle(apart)
	switch {
	case b.sealed || l.isOver():
		return nil, ErrOver
	case b.getBody != nil && len(b.opened) > 0:
		return nil, ErrInUse
	}
	return b.begin(req, l.generation)
}

// Open returns a new reader at the beginning of the body. It can serve as
// [net/http.Request.GetBody]. Open fails if the next attempt has begun, or if an attempt beside this
// attempt has a body open. GetBody would rewind the body of the other attempt.
func (l *Lease) Open() (io.ReadCloser, error) {
	b := l.body
	b.mu.Lock()
	defer b.settle(apart)
	switch {
	case l.isOver(), l.isPaused(), b.own.closed && b.getBody == nil, slices.ContainsFunc(b.opened, l.isBeside):
		return nil, ErrOver
	case b.repeatable() == ErrSpent:
		return nil, ErrSpent
	}
	return l.open()
}

// isBeside reports whether an attempt beside l has o from GetBody.
func (l *Lease) isBeside(o *opened) bool {
	return l.body.getBody != nil && o.lease != l && o.lease.generation == l.generation
}

// Cut ends the attempt: its readers return ErrOver. It does not wait for a Close. After the result,
// the end of an attempt may free the body. A nil Lease has nothing to end.
func (l *Lease) Cut() {
	if l == nil {
		return
	}
	b := l.body
	b.mu.Lock()
	l.over = true
	if l.isPaused() {
		b.endPause()
	}
	b.settle(apart)
}

// begin returns the lease of an attempt that sends req. The caller holds mu.
func (b *Body) begin(req *http.Request, g generation) (*Lease, error) {
	l := &Lease{body: b, generation: g}
	r, err := l.open()
	if err != nil {
		return nil, err
	}
	l.give(req, r)
	return l, nil
}

// give makes req send r. It also gives req its own Trailer, if there is one. A body may set the
// values of the caller's Trailer when it is read to its end, and an earlier attempt may do so while
// the new attempt looks at the keys of the Trailer.
func (l *Lease) give(req *http.Request, r io.ReadCloser) {
	b := l.body
	req.Body, req.GetBody = r, nil
	// A base that finds a GetBody relies on it at any time. A stream may outgrow the bytes that are kept,
	// unless its length is known.
	if recorded, ok := b.origin.(*stream); !ok || 0 < b.length && b.length <= recorded.limit {
		req.GetBody = l.Open
	}
	if b.filled != nil {
		l.trailer = b.trailer.Clone()
		req.Trailer = l.trailer
	}
}

// open opens a reader. The caller holds mu, which is free while GetBody is called. That call counts as one
// that is under way.
func (l *Lease) open() (io.ReadCloser, error) {
	b := l.body
	if b.getBody == nil {
		return l.reader(b.own), nil
	}
	o := &opened{of: b, lease: l, calls: 1, closed: true}
	b.opened = append(b.opened, o)
	defer o.left()
	var body io.ReadCloser
	err := b.unlocked(func() (err error) {
		body, err = b.getBody()
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case body == nil || body == http.NoBody:
		return nil, ErrNoBody
	}
	from := o
	for _, other := range b.opened {
		switch {
		case !same(body, other.ReadCloser):
		case other.passed, other.reads > 0: // a Read moves the position that GetBody has set
			other.passed = true
			return nil, ErrInUse
		case !other.closed:
			from = other
		}
	}
	if from == o {
		o.ReadCloser, o.closed = body, false
	}
	if l.isOver() {
		return nil, ErrOver // without a reader, from is closed
	}
	return l.reader(from), nil
}

// reader returns a new reader of o. The caller holds mu.
func (l *Lease) reader(o *opened) *Reader {
	first := l.newest == nil
	r := &Reader{lease: l, from: o, over: make(chan struct{}), used: first && l.body.late}
	o.readers, o.lease, l.newest = append(o.readers, r), l, r
	return r
}

// same reports whether x and y are the very same body, which a Transport above may watch.
func same(x, y io.ReadCloser) bool {
	x, y = unwatched(x), unwatched(y)
	return reflect.ValueOf(x).Comparable() && x == y
}

// unlocked calls f without mu. f may panic.
func (b *Body) unlocked(f func() error) error {
	b.mu.Unlock()
	defer b.mu.Lock()
	return f()
}

// pauseTime is the longest pause of the previous attempt's Reads. The server may wait for them, and
// other code for the server.
const pauseTime = 250 * time.Millisecond

// isPaused reports whether the Reads of the attempt pause. The caller holds mu.
func (l *Lease) isPaused() bool {
	return l.body.paused != nil && l.generation == l.body.pausedAt
}

// pause pauses the Reads of l and of an attempt beside it, if they disturb the next attempt. It waits
// for calls that are under way, and fails if the context ends first, or if the body cannot be rewound. The
// caller holds mu, which is free while pause waits.
func (l *Lease) pause(patience time.Duration) error {
	b := l.body
	w, seeks := b.origin.(*rewinder)
	if !seeks && b.getBody == nil {
		return nil
	}
	b.endPause()
	b.pausedAt = l.generation
	b.paused = time.AfterFunc(pauseTime, func() {
		b.mu.Lock()
		if l.isPaused() {
			b.endPause()
		}
		b.settle(apart)
	})
	ctx, cancel := context.WithTimeout(b.ctx, min(patience, pauseTime))
	defer cancel()
	if b.busy() {
		defer context.AfterFunc(ctx, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.changed.Broadcast()
		})()
	}
	for b.busy() && ctx.Err() == nil {
		b.changed.Wait()
	}
	if b.ctx.Err() != nil {
		return b.ctx.Err()
	}
	if seeks {
		return b.unlocked(w.rewind)
	}
	for _, o := range b.opened {
		o.passed = o.passed || o.calls > 0
	}
	return nil
}

// endPause ends a pause, if there is one, when the next attempt may begin to read. The previous attempts
// can continue if each reader knows its offset. Otherwise they are over. The caller holds mu.
func (b *Body) endPause() {
	if b.paused != nil && b.getBody != nil {
		b.live = max(b.live, b.pausedAt+1)
	}
	b.resume()
}

// resume lets paused Reads continue, whether a next attempt has begun or not. The caller holds mu.
func (b *Body) resume() {
	if b.paused != nil {
		b.paused.Stop()
		b.paused = nil
		b.changed.Broadcast()
	}
}
