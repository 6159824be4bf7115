// Package replay provides several attempts with one request body.
//
// A [Body] belongs to one request. Every attempt has a [Lease], which is the right to read the
// body, and reads through a [Reader]. A body without a GetBody can be read only once, or has only
// one position. Its readers never share the position: each reader starts at the first byte,
// whatever the others have read. So a new attempt can begin while net/http is still sending the
// body of the previous attempt, which it does whenever a server answers early.
//
// A body with a GetBody is opened again for each attempt. The bodies that a GetBody returns may
// share one position: some GetBody functions rewind a single reader and return it each time. So
// the reads of one attempt end before another attempt reads.
package replay

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
)

// A Body is the body of one request, for all of its attempts. It closes the request's own body, and
// every body that GetBody returns, once. This file has the rule. A body is closed when no [Reader]
// needs it any more. The request's own body may be needed by a further attempt as well, unless
// there is a GetBody: it is closed after [Body.Seal].
type Body struct {
	ctx     context.Context // bounds how long a reader waits for the body
	length  int64           // as announced; 0 or less means unknown
	late    bool            // an attempt may begin to read late, as with "Expect: 100-continue"
	getBody func() (io.ReadCloser, error)
	own     *opened
	origin  origin

	trailer http.Header   // as the caller announced it
	filled  *http.Request // the owner of the Trailer that the body may fill; nil without a trailer

	mu     sync.Mutex // never held while a body or GetBody is used
	opened []*opened  // the bodies that are open or in use
	newest generation // of leases
	live   generation // leases of earlier generations are over
	sealed bool       // there will be no further attempt

	paused   *time.Timer // ends the pause of Reads; nil without a pause
	pausedAt generation  // whose Reads pause
	changed  sync.Cond   // a call, a pause or a reader has ended
}

// generation counts attempts, or pairs of attempts, that follow each other.
type generation int

// opened is a body that has to be closed. Its fields are guarded by Body.mu.
type opened struct {
	io.ReadCloser // nil while GetBody is under way, and after the body was closed

	of      *Body
	lease   *Lease    // the newest lease that reads a body from GetBody
	readers []*Reader // that their base has not closed
	calls   int       // calls of its methods, or of GetBody, that are under way
	reads   int       // calls of Read among them
	closed  bool      // its Close has begun
	passed  bool      // GetBody was called during a Read, which may have got the wrong bytes
}

// Of returns the Body of req, which has one. It keeps at most limit bytes of a body that can be
// read only once. Other bodies are read in place.
func Of(req *http.Request, limit int64) *Body {
	b := &Body{
		ctx: req.Context(), length: req.ContentLength, late: req.Header.Get("Expect") != "",
		getBody: req.GetBody,
	}
	if len(req.Trailer) > 0 {
		b.trailer, b.filled = req.Trailer.Clone(), req
	}
	b.changed.L = &b.mu
	b.own = &opened{ReadCloser: req.Body, of: b}
	b.opened = []*opened{b.own}
	b.origin = originOf(b, req.Body, limit)
	return b
}

// Repeatable reports whether a further attempt can begin now. Whether GetBody succeeds is known
// when it is called. A nil Body is repeated without this package.
func (b *Body) Repeatable() bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.repeatable() != ErrSpent
}

// IsSection reports whether two attempts may read the body at once, as a file at offsets.
func (b *Body) IsSection() bool {
	if b == nil {
		return false
	}
	_, ok := b.origin.(*section)
	return ok
}

// Seal records that there will be no further attempt. With cut, the attempts are over too.
//
// Seal is called before a result is returned, and does not wait for a slow Close. For example,
// Close of a server's request body reads on, and may wait for a client that waits for this very
// result.
func (b *Body) Seal(cut bool) {
	if b == nil {
		return
	}
	b.mu.Lock()
	b.sealed = true
	if cut {
		b.live = b.newest + 1
		b.resume()
	}
	b.settle(closing.Soon)
}

// needs reports whether r keeps its body open. Before the result of the last attempt, a base closes
// what it reads. After that, a base may forget to close a reader. A base that signs reads one reader to
// its end, or sends a body from GetBody and never uses the first reader. net/http's HTTP/2 opens a
// reader for a resend before it looks for a connection. So a reader that has met its end needs
// nothing, and neither does an unread reader that a newer reader superseded.
func (r *Reader) needs() bool {
	l := r.lease
	return !l.body.sealed || (r.used || r == l.newest) && !r.ended && !l.isOver()
}

// settle releases mu, and closes the bodies that nobody needs any more. Every change that may free a
// body ends with settle.
//
// A Read may be under way in an attempt that is over, and Close ends this Read. net/http requires
// that a Request.Body may be closed while it is read, and that Close ends the Read. A body that
// serializes the two calls would block the caller, so Close gets a goroutine of its own in this
// case.
func (b *Body) settle(close func(io.Closer)) {
	var idle []*opened
	for _, o := range b.opened {
		// by a reader, or by a further attempt
		needed := b.getBody == nil && !b.sealed || slices.ContainsFunc(o.readers, (*Reader).needs)
		closes := !o.closed && !needed
		for _, r := range o.readers {
			if closes || r.lease.isOver() {
				r.end()
			}
		}
		if !closes {
			continue
		}
		o.readers, o.closed = nil, true
		o.calls++ // a call of GetBody waits for Close, too
		if o.calls == 1 {
			idle = append(idle, o)
		} else {
			closing.Begin(o)
		}
	}
	b.mu.Unlock()
	for _, o := range idle {
		close(o)
	}
}

// apart is an argument of settle, beside [closing.Soon].
func apart(c io.Closer) { closing.Begin(c) }

// Close closes the body. The caller has counted the call.
func (o *opened) Close() error {
	defer func() {
		o.of.mu.Lock()
		defer o.of.mu.Unlock()
		o.left()
	}()
	return o.ReadCloser.Close()
}

// left ends a call that is counted in calls. After the last call, it lets go of a body that is closed: a
// base or a stopped timer may keep o for a while. The caller holds mu.
func (o *opened) left() {
	b := o.of
	o.calls--
	if o.closed && o.calls == 0 {
		o.ReadCloser = nil
		b.opened = slices.DeleteFunc(b.opened, func(other *opened) bool { return other == o })
	}
	b.changed.Broadcast()
}

// busy reports whether a call is under way that GetBody has to wait for. The caller holds mu.
func (b *Body) busy() bool {
	return slices.ContainsFunc(b.opened, func(o *opened) bool { return o.calls > 0 && !o.passed })
}
