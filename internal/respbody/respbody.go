// Package respbody has the bodies of responses. A Body keeps its attempt's context until nobody
// needs it, and ends a Read that stalls. Buffer reads a body within its attempt. Drains clear away
// the bodies that nobody wants, so that their connections can be reused.
//
// A body is anything that a base made. Its Read and its Close may hang and may panic, and a Close
// beside a Read is safe only for some bodies: see closing.WhileRead.
package respbody

import (
	"context"
	"io"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
	"github.com/retryhttp/retryhttp/internal/neterr"
)

// Body is the body of a response that came in time. It releases its attempt's context when
// both the response and the upload have ended. The response ends when it is read or closed. Over
// HTTP/2 and HTTP/3, a server may end its answer and continue to read. If the response or the
// upload never ends, the context ends with the caller's context.
type Body struct {
	Cancel context.CancelCauseFunc // ends the attempt's context; set before anything else happens

	base    io.ReadCloser             // the base's body; nil before Wrap
	stall   time.Duration             // the longest that a Read may take; 0: any time
	stalled func(time.Duration) error // makes the error
	timer   *time.Timer               // ends the attempt; nil before the first Read
	fired   atomic.Bool               // the timer has
	apart   bool                      // a Read does not wait for itself: see waitApart

	mu   sync.Mutex
	held int  // number of others that need the context
	over bool // the response is read or closed
}

// Wrap makes b the body of resp, unless that is empty. A positive stall bounds each Read.
// stalled makes the error of a Read that takes longer than it is given.
func (b *Body) Wrap(resp *http.Response, stall time.Duration, stalled func(time.Duration) error) {
	if IsEmpty(resp.Body) {
		b.end() // nobody needs to close an empty body, and callers compare it with http.NoBody
		return
	}
	b.base, resp.Body = resp.Body, b
	upgrade := resp.StatusCode == http.StatusSwitchingProtocols
	if w, ok := b.base.(io.Writer); ok && upgrade {
		resp.Body = &connection{b, w}
	}
	if stall > 0 && !upgrade {
		b.stall, b.stalled = stall, stalled
	}
}

// IsEmpty reports whether body is what net/http gives a response without a body, such as the
// answer to a HEAD. The status alone is no proof: over HTTP/2, a 204 may continue.
func IsEmpty(body io.ReadCloser) bool {
	if body == http.NoBody {
		return true
	}
	t := reflect.TypeOf(body)
	return t.PkgPath() == "net/http" && t.Name() == "http2noBodyReader"
}

// note makes a change, and then releases the context if the release is due.
func (b *Body) note(change func()) {
	b.mu.Lock()
	change()
	release := b.over && b.held == 0
	b.mu.Unlock()
	if release {
		b.Cancel(nil)
	}
}

// Hold adds n to the number of others that need the attempt's context, such as the upload. A negative n
// ends what a positive n has begun.
func (b *Body) Hold(n int) { b.note(func() { b.held += n }) }

// end records that the response is over.
func (b *Body) end() { b.note(func() { b.over = true }) }

func (b *Body) Read(p []byte) (int, error) {
	n, err := b.read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

func (b *Body) read(p []byte) (n int, err error) {
	if b.apart {
		n, err = b.base.Read(p)
	} else {
		b.await(func() { n, err = b.base.Read(p) })
	}
	if err != nil && b.fired.Load() {
		err = b.stalled(b.stall) // even a clean end may be the result of the cancellation
	}
	return n, err
}

func (b *Body) Close() error {
	defer b.end() // even if Close panics
	return b.base.Close()
}

// FreeRead ends a Read of b after its context was canceled. It does nothing if the response is
// over.
func (b *Body) FreeRead() {
	b.mu.Lock()
	over := b.over
	b.mu.Unlock()
	if !over {
		freeRead(b)
	}
}

// BrokeOffBelow reports whether the body broke off while a nested Transport buffered it.
func (b *Body) BrokeOffBelow() bool {
	below, ok := b.base.(*Buffered)
	return ok && below.err != nil && below.err != io.EOF
}

// ClosableWhileRead reports whether the body that b wraps may be closed while it is read.
func (b *Body) ClosableWhileRead() bool { return closing.WhileRead(b.base) }

// connection is the body of a 101, which is a connection.
type connection struct {
	*Body
	io.Writer
}

// Read does not release the context at the end, because the other side may have closed only its
// half.
func (c *connection) Read(p []byte) (int, error) { return c.read(p) }

// CloseWrite half-closes the connection if the connection supports it. net/http's own body does
// the same.
func (c *connection) CloseWrite() error {
	if half, ok := c.base.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return http.ErrNotSupported
}

// attemptOf returns the Body that body is or contains, or nil.
func attemptOf(body io.ReadCloser) *Body {
	switch b := body.(type) {
	case *Body:
		return b
	case *connection:
		return b.Body
	case *Buffered:
		return attemptOf(b.rest)
	case *unfinished:
		return b.attempt
	}
	return nil
}

// giveUp ends the attempt, if it has a context of its own.
func (b *Body) giveUp() {
	if b != nil {
		b.Cancel(nil)
	}
}

// IsConnectionsEnd reports whether err, which followed the last byte of body, is about the
// connection or the request, and not about the bytes. A RoundTripper below may verify the bytes, and
// return an error at their end. net/http verifies their number.
func IsConnectionsEnd(body io.ReadCloser, err error) bool {
	return err == io.EOF || neterr.Lost(err) || closing.WhileRead(body) && neterr.GivenUp(err)
}
