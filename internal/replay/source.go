// Package replay lets several attempts send one request body that can be read
// only once, or that has only one read position.
//
// A [Source] owns the body. Every attempt has a [Lease] on it, and opens
// readers through the lease. Readers never share a position: each starts at
// the first byte, whatever the others have read, and any number of them may be
// in use at the same time. This is what lets a new attempt begin while net/http
// is still sending the body of the one before, which it does whenever a server
// answers early.
package replay

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/retryhttp/retryhttp/internal/closing"
)

var (
	// ErrSpent is returned where the beginning of the body was not kept.
	ErrSpent = errors.New("the request body cannot be sent again: more of it was sent than is kept")
	// ErrOver is what a reader returns whose attempt is over.
	ErrOver = errors.New("the attempt that read this request body is over")
)

// ReadError marks an error that came from reading the body, as opposed to one
// from sending it.
type ReadError struct{ Err error }

func (e *ReadError) Error() string { return e.Err.Error() }
func (e *ReadError) Unwrap() error { return e.Err }

// origin is where a Source's bytes come from.
type origin interface {
	// read is io.Reader's Read from r.offset on.
	read(r *Reader, p []byte) (int, error)
	// repeatable reports whether the first byte can be read again. It is called
	// with Source.mu held.
	repeatable() bool
	// rewind tries whether it can, where that can be known without waiting. It
	// is called without Source.mu.
	rewind() error
}

// Source is a request body that can be read by several attempts.
type Source struct {
	// Late means that an attempt may begin to read its first reader after the
	// response has come, as one with "Expect: 100-continue" does. It is set before
	// the first lease.
	Late bool
	// Length is the length that the attempts announce, as in
	// [net/http.Request.ContentLength]; 0 or less is an unknown one. A reader that has
	// given as many bytes is at its end, though its attempt is over: net/http looks for
	// the end after it has sent them, and an error there costs the connection. Length is
	// set before the first lease.
	Length int64

	body   io.ReadCloser
	origin origin

	mu      sync.Mutex // never held while body is used
	readers []*Reader  // open ones
	reading int        // calls of body's methods that are under way
	newest  generation // of the leases
	sealed  bool       // there will be no further lease
	closed  bool
}

// generation counts attempts, or pairs of attempts, that follow each other. A newer one
// is promised the beginning of the body.
type generation int

// New returns a Source of body, which is closed when the source has been sealed
// and every reader closed. It keeps at most limit bytes of a body that can be
// read only once; other bodies are read where they are.
func New(body io.ReadCloser, limit int64) *Source {
	s := &Source{body: body}
	s.origin = originOf(s, body, limit)
	return s
}

func originOf(s *Source, body io.Reader, limit int64) origin {
	seeker, ok := body.(io.ReadSeeker)
	if !ok {
		return newStream(s, body, limit)
	}
	start, err := seeker.Seek(0, io.SeekCurrent)
	if err != nil {
		return newStream(s, body, limit) // a pipe in an *os.File, say
	}
	at, ok := body.(io.ReaderAt)
	if !ok {
		return newRewinder(s, seeker, start)
	}
	end, sizeErr := seeker.Seek(0, io.SeekEnd)
	_, err = seeker.Seek(start, io.SeekStart) // where the caller finds it if nothing is read
	if sizeErr == nil && end > start {
		return &section{s, at, start, end - start}
	}
	// A device or a file in /proc has no size, and reading it twice may well
	// give two different things.
	st := newStream(s, body, limit)
	if err != nil {
		st.end = &ReadError{err}
	}
	return st
}

// Recorded reports whether the body can be read only once, so that what is read
// from it must be kept.
func (s *Source) Recorded() bool {
	_, recorded := s.origin.(*stream)
	return recorded
}

// RandomAccess reports whether the body is read at random access. The attempts do not
// wait for each other then.
func (s *Source) RandomAccess() bool {
	_, ok := s.origin.(*section)
	return ok
}

// Repeatable reports whether a further lease can be had now.
func (s *Source) Repeatable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.origin.repeatable()
}

// Lease returns a lease for a new attempt, or an error if the body cannot be read
// from its beginning again. An attempt after another one is promised the
// beginning. All earlier ones may still be reading, and each of them is cut off if it
// would use the beginning up.
//
// The context bounds how long a reader waits for the body. If atEOF is not nil,
// it is called when the first reader of the lease has met the end of the body,
// before that reader's Read returns.
func (s *Source) Lease(ctx context.Context, after *Lease, atEOF func()) (*Lease, error) {
	if after != nil {
		if err := s.origin.rewind(); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sealed || !s.origin.repeatable() {
		return nil, ErrSpent
	}
	if after != nil {
		s.newest++
	}
	return &Lease{source: s, ctx: ctx, atEOF: atEOF, generation: s.newest}, nil
}

// Seal says that there will be no further lease. The body is closed as soon as
// no reader is open. With cut, the attempts are over too, and that is at once.
//
// Seal is called before a result is returned, and does not wait for a Close that takes
// long. A server's request body, for example, reads on, and may wait for a client that
// waits for this very result.
func (s *Source) Seal(cut bool) {
	s.mu.Lock()
	s.sealed = true
	if cut {
		for len(s.readers) > 0 {
			s.readers[0].lease.cut()
		}
	}
	done, reading := s.done()
	s.mu.Unlock()
	if !done {
		return
	}
	if reading {
		closing.Begin(s.body)
		return
	}
	closing.Soon(s.body)
}

// closeIfDone unlocks s.mu, and closes the body if nobody needs it any more.
//
// A read may be under way in an attempt that has been given up. Close is what
// frees it (net/http asks of a Request.Body that it may be closed while it is
// read, and that this ends the Read), but a body that serializes the two would
// make us wait for it, and so the call gets a goroutine of its own then.
func (s *Source) closeIfDone() {
	done, reading := s.done()
	s.mu.Unlock()
	switch {
	case done && reading:
		closing.Begin(s.body)
	case done:
		s.body.Close()
	}
}

// done reports whether it is time to close the body, which it is once, and
// whether a read is under way.
func (s *Source) done() (done, reading bool) {
	if !s.sealed || s.closed || slices.ContainsFunc(s.readers, (*Reader).counts) {
		return false, false
	}
	for _, r := range s.readers {
		close(r.over)
	}
	s.readers, s.closed = nil, true
	return true, s.reading > 0
}

// enter begins a use of the body's methods by r, and leave ends it.
func (s *Source) enter(r *Reader) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.isOver() {
		return ErrOver
	}
	s.reading++
	return nil
}

// leave also closes the body if the use has cut off the last attempt that needs it.
func (s *Source) leave() {
	s.mu.Lock()
	s.reading--
	s.closeIfDone()
}

// A Lease is one attempt's right to read the body.
type Lease struct {
	source     *Source
	ctx        context.Context
	atEOF      func()
	once       sync.Once
	generation generation
	elder      *Lease // the one that it was opened beside, if any

	// guarded by source.mu
	over   bool
	first  *Reader
	newest *Reader
}

// Open returns a new reader at the beginning of the body. It serves for
// [net/http.Request.GetBody].
func (l *Lease) Open() (io.ReadCloser, error) {
	s := l.source
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case l.over || s.closed:
		return nil, ErrOver
	case !s.origin.repeatable():
		return nil, ErrSpent
	}
	r := &Reader{lease: l, over: make(chan struct{})}
	s.readers = append(s.readers, r)
	l.newest = r
	if l.first == nil {
		l.first = r
	}
	return r, nil
}

// Cut ends the attempt: its readers return ErrOver. It may be called on a nil
// Lease.
func (l *Lease) Cut() {
	if l == nil {
		return
	}
	l.source.mu.Lock()
	l.cut()
	l.source.closeIfDone()
}

// cut is Cut with source.mu held.
func (l *Lease) cut() {
	l.over = true
	s := l.source
	s.readers = slices.DeleteFunc(s.readers, func(r *Reader) bool {
		if r.lease != l {
			return false
		}
		close(r.over)
		return true
	})
}

// A Reader reads a Source from its beginning, for one attempt. Like any
// io.Reader it serves one goroutine at a time, but Close may be called while a
// Read is under way, and does not wait for it.
type Reader struct {
	lease  *Lease
	offset int64
	over   chan struct{} // closed by Close, or with the attempt
	used   bool          // somebody has read from it; written with source.mu held, by Read alone
	ended  bool          // it has met the end; written likewise
}

// counts reports whether r keeps the body open once there is a result. A base may
// forget to close what it got. One that signs reads a reader to its end, or sends
// what GetBody returned and never looks at the first; net/http's HTTP/2 opens a
// reader for a resend before it looks for a connection. So a reader that has met
// its end does not count, nor does an unread one that a newer one superseded.
func (r *Reader) counts() bool {
	l := r.lease
	return !r.ended && (r.used || r == l.newest || r == l.first && l.source.Late)
}

// use has r count. It is too late once the body has been closed.
func (r *Reader) use() {
	s := r.lease.source
	s.mu.Lock()
	defer s.mu.Unlock()
	r.used = true
}

func (r *Reader) Read(p []byte) (int, error) {
	if !r.used {
		r.use()
	}
	switch {
	case r.ended:
		return 0, io.EOF // also after the attempt: net/http looks for the end once more
	case r.isOver():
		return 0, r.afterwards()
	case len(p) == 0:
		return 0, nil
	}
	n, err := r.lease.source.origin.read(r, p)
	r.offset += int64(n)
	switch err {
	case io.EOF:
		if r.lease.atEOF != nil {
			r.lease.once.Do(r.lease.atEOF)
		}
		r.end()
	case ErrOver:
		return n, r.afterwards()
	}
	return n, err
}

// afterwards is what a Read returns when the attempt is over.
func (r *Reader) afterwards() error {
	if length := r.lease.source.Length; length > 0 && r.offset == length {
		return io.EOF
	}
	return ErrOver
}

func (r *Reader) end() {
	s := r.lease.source
	s.mu.Lock()
	r.ended = true
	s.closeIfDone()
}

// Close ends this reader. The body itself is closed later, see [Source.Seal].
func (r *Reader) Close() error {
	s := r.lease.source
	s.mu.Lock()
	if !r.isOver() {
		close(r.over)
		s.readers = slices.DeleteFunc(s.readers, func(other *Reader) bool { return other == r })
	}
	s.closeIfDone()
	return nil
}

func (r *Reader) isOver() bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}
