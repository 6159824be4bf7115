package replay

import (
	"context"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
)

// ReadError marks an error from reading the body, as opposed to sending it.
type ReadError struct{ Err error }

func (e *ReadError) Error() string { return e.Err.Error() }
func (e *ReadError) Unwrap() error { return e.Err }

// origin provides a Source's bytes.
type origin interface {
	// read is like io.Reader's Read, starting at r.offset.
	read(r *Reader, p []byte) (int, error)
	// repeatable reports whether the first byte can be read again. The caller holds Source.mu.
	repeatable() bool
	// rewind returns an error if the first byte cannot be read again, as known without
	// waiting. It is called for a retry, with the lease of the attempt that is about to be
	// cut, and for an attempt beside others, with nil. The caller does not hold Source.mu.
	rewind(after *Lease) error
}

// A Source is a request body that can be read by several attempts.
type Source struct {
	announced

	body   io.ReadCloser
	origin origin

	mu      sync.Mutex // never held while body is used
	readers []*Reader  // open readers
	reading int        // calls of body's methods that are under way
	newest  generation // the newest generation of leases
	sealed  bool       // there will be no further lease
	closed  bool
}

// generation counts attempts, or pairs of attempts, that follow each other. A newer generation
// is promised the beginning of the body.
type generation int

// New returns a Source of body. It closes body when the Source has been sealed and every
// reader closed. It keeps at most limit bytes of a body that can be read only once; other
// bodies are read in place.
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
		return newStream(s, body, limit) // for example a pipe in an *os.File
	}
	if _, ok := body.(io.ReaderAt); !ok {
		return newRewinder(s, seeker, start, unknown)
	}
	size, err := sizeOf(seeker, start)
	switch f, ok := body.(*os.File); {
	case size > 0 && ok:
		return newSection(s, f, start, size)
	case size > 0 && err == nil:
		return newRewinder(s, seeker, start, size)
	}
	// A device or a file in /proc has no size, and may return different bytes when it is read
	// twice.
	st := newStream(s, body, limit)
	if err != nil {
		st.end = &ReadError{err}
	}
	return st
}

// sizeOf returns how far Seek can move a body, which stands at start, or 0 if that is unknown.
// The error is the failure to move the body back to start: the caller finds the body there if
// nothing is read.
func sizeOf(body io.Seeker, start int64) (int64, error) {
	end, sizeErr := body.Seek(0, io.SeekEnd)
	at, err := body.Seek(start, io.SeekStart)
	if err == nil && at != start {
		err = errMoved
	}
	if sizeErr != nil {
		return 0, err
	}
	return end - start, err
}

// ReadableBeside reports whether the attempts read the body at offsets, and do not wait for each
// other.
func (s *Source) ReadableBeside() bool {
	_, ok := s.origin.(*section)
	return ok
}

// Repeatable reports whether a further lease is available now.
func (s *Source) Repeatable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.origin.repeatable()
}

// keepsBeginning reports whether the beginning of the body stays available however much is read.
// A stream may outgrow the bytes that are kept, unless its length is known.
func (s *Source) keepsBeginning() bool {
	recorded, ok := s.origin.(*stream)
	return !ok || 0 < s.length && s.length <= recorded.limit
}

// First returns a lease for the first attempt.
func (s *Source) First(ctx context.Context, atEOF func()) (Reading, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unavailable() {
		return nil, ErrSpent
	}
	return &Lease{source: s, ctx: ctx, atEOF: atEOF, generation: s.newest}, nil
}

// unavailable reports whether there is no further lease. The caller holds mu.
func (s *Source) unavailable() bool { return s.sealed || !s.origin.repeatable() }

// Seal records that there will be no further lease. The body is closed as soon as no reader is
// open. With cut, the attempts are over too, and the body is closed at once.
//
// Seal is called before a result is returned, and does not wait for a slow Close. For example,
// Close of a server's request body reads on, and may wait for a client that waits for this
// very result.
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

// closeIfDone unlocks s.mu, and closes the body if it is no longer needed.
//
// A read may be under way in an abandoned attempt, and Close ends this read. net/http requires
// that a Request.Body may be closed while it is read, and that Close ends the Read. A body
// that serializes the two calls would block the caller, so Close gets a goroutine of its own
// in this case.
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

// done reports whether it is time to close the body, which is true once, and whether a read is
// under way.
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

// enter begins a call of the body's methods by r, and leave ends it.
func (s *Source) enter(r *Reader) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.isOver() {
		return ErrOver
	}
	s.reading++
	return nil
}

// leave also closes the body if the call has cut off the last attempt that needs the body.
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
	elder      *Lease // the lease that this lease runs beside; nil if none

	// guarded by source.mu
	over   bool
	first  *Reader
	newest *Reader
}

// Next returns a lease for the attempt that follows, or an error if the body cannot be read from
// its beginning again. The new attempt is promised the beginning. All earlier attempts may still
// be reading, and each is cut off if it would use up the beginning. So there is nothing to wait
// for.
func (l *Lease) Next(ctx context.Context, _ time.Duration, atEOF func()) (Reading, error) {
	s := l.source
	if err := s.origin.rewind(l); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unavailable() {
		return nil, ErrSpent
	}
	s.newest++
	return &Lease{source: s, ctx: ctx, atEOF: atEOF, generation: s.newest}, nil
}

// SetBody makes req read the source through the lease.
func (l *Lease) SetBody(req *http.Request) (err error) {
	if l.source.keepsBeginning() {
		req.GetBody = l.Open // a base that finds a GetBody relies on it at any time
	}
	req.Body, err = l.Open()
	return err
}

func (l *Lease) UsesGetBody() bool { return false }

// Open returns a new reader at the beginning of the body. It can serve as
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

// Cut ends the attempt: its readers return ErrOver.
func (l *Lease) Cut() {
	l.source.mu.Lock()
	l.cut()
	l.source.closeIfDone()
}

// cut is Cut for a caller that holds source.mu.
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

// A Reader reads a Source from its beginning, for one attempt. Like any io.Reader it serves
// one goroutine at a time. Close may be called while a Read is under way, and does not wait
// for the Read.
type Reader struct {
	lease  *Lease
	offset int64
	sum    uint32        // a rewinder's checksum of the bytes up to offset
	over   chan struct{} // closed by Close, or when the attempt ends
	used   bool          // Read was called; written by Read alone, with source.mu held
	ended  bool          // the end was met; written by Read alone, with source.mu held
}

// counts reports whether r keeps the body open once there is a result. A base may forget to
// close a reader. A base that signs reads one reader to its end, or sends a body from GetBody
// and never uses the first reader. net/http's HTTP/2 opens a reader for a resend before it
// looks for a connection. So a reader that has met its end does not count, and neither does an
// unread reader that a newer reader superseded.
func (r *Reader) counts() bool {
	l := r.lease
	return !r.ended && (r.used || r == l.newest || r == l.first && l.source.late)
}

// use makes r count. It has no effect after the body has been closed.
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
		return 0, io.EOF // even after the attempt: net/http looks for the end again
	case r.isOver():
		return 0, r.lease.source.afterwards(r.offset)
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
		return n, r.lease.source.afterwards(r.offset)
	}
	return n, err
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
