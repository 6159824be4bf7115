// Package respbody has the bodies of responses. A Body keeps its attempt's context until nobody
// needs it, and ends a Read that stalls. Buffer reads a body within its attempt. Drains clear away
// the bodies that nobody wants, so that their connections can be reused.
//
// A body is anything that a base made. Its Read and its Close may hang and may panic, and a Close
// beside a Read is safe only for some bodies: see closing.WhileRead.
package respbody

import (
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
	"github.com/retryhttp/retryhttp/internal/neterr"
	"github.com/retryhttp/retryhttp/internal/replay"
)

// Body is the body of a response that came in time. It releases its attempt's context when
// both the response and the upload have ended. The response ends when it is read or closed. Over
// HTTP/2 and HTTP/3, a server may end its answer and continue to read. If the response or the
// upload never ends, the context ends with the caller's context.
type Body struct {
	Cancel context.CancelCauseFunc // ends the attempt's context; nil if it has none of its own
	Upload *replay.Lease           // of the request's body, which a stall cuts; may be nil
	Caller context.Context         // of an attempt whose context is no child of it; otherwise nil

	base    io.ReadCloser             // the base's body; nil before Wrap
	stall   time.Duration             // the longest that a Read may take; 0: any time
	stalled func(time.Duration) error // makes the error
	timer   *time.Timer               // ends the attempt; nil before the first Read
	fired   atomic.Bool               // the timer has

	// These describe the beginning of the body that was read within the attempt.
	data   []byte   // nil if nothing was read, or if the reader has it all
	read   int      // number of bytes of data that the reader has got
	err    error    // the error that follows data; nil if the rest follows
	late   *late    // the beginning of the rest; nil if all Reads were awaited
	ends   eventEnd // where an event ends; nil if this is no peek
	shown  int      // a hook may see so many bytes of data
	sealed bool     // a hook that must not read is running: see Seal
	whole  bool     // data is the whole body, and is no longer than the limit
	gone   bool     // the base's body is closed

	closed atomic.Bool // by its reader
	held   atomic.Bool // others need the context
	over   atomic.Bool // the response is read or closed
}

// Wrap makes b the body of resp, unless that is empty. A positive stall bounds each Read.
// stalled makes the error of a Read that takes longer than it is given.
func (b *Body) Wrap(resp *http.Response, stall time.Duration, stalled func(time.Duration) error) {
	if IsEmpty(resp.Body) {
		b.end() // nobody needs to close an empty body, and callers compare it with http.NoBody
		return
	}
	b.base, resp.Body = resp.Body, b
	if resp.StatusCode != http.StatusSwitchingProtocols {
		b.stall, b.stalled = stall, stalled
	} else if w, ok := b.base.(io.Writer); ok {
		resp.Body = &connection{b, w}
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

// note sets one of the two flags, and then releases the context if the release is due.
func (b *Body) note(flag *atomic.Bool, is bool) {
	flag.Store(is)
	if b.over.Load() && !b.held.Load() && b.Cancel != nil {
		b.Cancel(nil)
	}
}

// giveUp ends the attempt. If the attempt has no context of its own, giveUp ends the attempt of a Transport below.
func (b *Body) giveUp() {
	if b.Cancel != nil {
		b.Cancel(nil)
	} else if below, ok := b.base.(*Body); ok {
		below.giveUp()
	}
}

// Hold declares whether the upload needs the attempt's context.
func (b *Body) Hold(needs bool) { b.note(&b.held, needs) }

// end records that the response is over.
func (b *Body) end() { b.note(&b.over, true) }

func (b *Body) Read(p []byte) (n int, err error) {
	switch {
	case b.closed.Load():
		return 0, http.ErrBodyReadAfterClose
	case b.sealed:
		return 0, ErrSealed
	case b.read == len(b.data) && b.err == nil && !b.awaitLate():
		return 0, http.ErrBodyReadAfterClose
	}
	switch {
	case b.read < len(b.data):
		n = copy(p, b.data[b.read:])
		b.read += n
		return n, nil
	case b.err != nil:
		err = b.err
	default:
		b.data, b.read = nil, 0 // the rest may be read for hours
		n, err = b.readBase(p)
	}
	if err == io.EOF && b.late != nil {
		b.late.own.Trailer = b.late.resp.Trailer
	}
	return n, err
}

func (b *Body) readBase(p []byte) (n int, err error) {
	b.await(func() { n, err = b.base.Read(p) })
	return n, b.met(err)
}

// met returns what the error of a Read means. With an error, the response is over.
func (b *Body) met(err error) error {
	if err == nil {
		return nil
	}
	b.end()
	switch {
	case b.fired.Load():
		return b.stalled(b.stall) // even a clean end may be the result of the cancellation
	case b.Caller != nil && b.Caller.Err() != nil && errors.Is(err, context.Canceled):
		return b.Caller.Err() // the attempt's own context knows no deadline
	}
	return err
}

// await calls wait, which waits for a Read of the base's body. It ends the attempt if the Read gets nothing
// for too long. The timer runs only while somebody waits, so a slow caller does not count as a stall.
func (b *Body) await(wait func()) {
	if b.stall > 0 {
		if b.timer == nil {
			b.timer = time.AfterFunc(b.stall, func() {
				b.fired.Store(true)
				b.End(b.stalled(b.stall), true)
			})
		} else {
			b.timer.Reset(b.stall)
		}
		defer b.timer.Stop()
	}
	wait()
}

func (b *Body) Close() error {
	if b.sealed || b.closed.Swap(true) || b.gone {
		return nil
	}
	return rest{b}.Close()
}

// rest closes what a Body has not read within the attempt.
type rest struct{ *Body }

func (r rest) Close() error {
	defer r.end() // even if Close panics
	if r.late != nil {
		return r.closeLate()
	}
	return r.base.Close()
}

// End ends the attempt, and cuts the reading of the request's body. During a Read of that body, a base may
// not check the context, and over HTTP/2 the Read holds up the context's end. With reading, a Read of the
// response's body ends, too: a base may have lost the context, so net/http's own bodies are also closed. A
// panic of a Close is dropped, because nobody could recover it in a timer's goroutine.
func (b *Body) End(cause error, reading bool) {
	b.Cancel(cause)
	defer func() { _ = recover() }()
	b.Upload.Cut()
	if reading && !b.over.Load() && closing.WhileRead(b.base) {
		_ = b.base.Close()
	}
}

// ClosableAs returns the base's body, or an empty body once that is closed. See [closing.WhileRead].
func (b *Body) ClosableAs() io.ReadCloser {
	if b.gone {
		return http.NoBody
	}
	return b.base
}

// connection is the body of a 101, which is a connection.
type connection struct {
	*Body
	io.Writer
}

// Read does not release the context at the end, because the other side may have closed only its
// half.
func (c *connection) Read(p []byte) (int, error) { return c.base.Read(p) }

// CloseWrite half-closes the connection if the connection supports it. net/http's own body does
// the same.
func (c *connection) CloseWrite() error {
	if half, ok := c.base.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return http.ErrNotSupported
}

// IsConnectionsEnd reports whether err, which followed the last byte of body, is about the
// connection or the request, and not about the bytes. A RoundTripper below may verify the bytes, and
// return an error at their end. net/http verifies their number.
func IsConnectionsEnd(body io.ReadCloser, err error) bool {
	return err == io.EOF || neterr.Lost(err) || closing.WhileRead(body) && neterr.GivenUp(err)
}
