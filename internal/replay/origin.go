package replay

import (
	"errors"
	"io"
	"os"
)

// ReadError marks an error from reading a body that has no GetBody, as opposed to sending it.
type ReadError struct{ Err error }

func (e *ReadError) Error() string { return e.Err.Error() }
func (e *ReadError) Unwrap() error { return e.Err }

// BodyError marks an error from reading a body that has a GetBody.
type BodyError struct{ Err error }

func (e *BodyError) Error() string { return e.Err.Error() }
func (e *BodyError) Unwrap() error { return e.Err }

// origin provides the bytes of a Body.
type origin interface {
	// read is like io.Reader's Read, starting at r.offset. It calls r.from.leave when the body is no
	// longer used, which may be later than its return.
	read(r *Reader, p []byte) (int, error)
}

func originOf(b *Body, body io.Reader, limit int64) origin {
	if b.getBody != nil {
		return reopened{}
	}
	recorded := func() origin { return &stream{body: body, limit: limit, turns: make(turns, 1)} }
	seeker, ok := body.(io.ReadSeeker)
	if !ok {
		return recorded()
	}
	start, err := seeker.Seek(0, io.SeekCurrent)
	if err != nil {
		return recorded() // for example a pipe in an *os.File
	}
	f, ok := body.(*os.File)
	if !ok {
		w := &rewinder{of: b, body: seeker, start: start, turns: make(turns, 1), end: unknown}
		if b.length <= 0 { // else a body that has become shorter fails anyway
			w.size = w.fileSize()
		}
		return w
	}
	info, err := f.Stat()
	if err != nil || info.Size() <= start {
		// A device or a file in /proc has no size, and may return different bytes when it is read twice.
		return recorded()
	}
	size := info.Size() - start
	return &section{file: f, start: start, size: size, end: size}
}

// repeatable returns an error if no other attempt can read the whole body. It is ErrSpent if the first byte
// cannot be read again, or the body's error, which each attempt would meet again. The caller holds mu.
func (b *Body) repeatable() error {
	recorded, ok := b.origin.(*stream)
	switch {
	case ok && recorded.spent:
		return ErrSpent
	case ok && recorded.end != io.EOF:
		return recorded.end
	}
	return nil
}

// reopened is the origin of bodies from GetBody.
type reopened struct{}

func (reopened) read(r *Reader, p []byte) (int, error) {
	defer r.leave()
	n, err := r.from.Read(p)
	b := r.lease.body
	b.mu.Lock()
	passed := r.from.passed
	b.mu.Unlock()
	if passed {
		return 0, ErrOver // the bytes may be from after the rewind
	}
	if err != nil && err != io.EOF && err != ErrOver {
		err = &BodyError{err}
	}
	return n, err
}

var errInvalidRead = &ReadError{errors.New("the request body's reader returned an impossible count")}

// checked returns the results of a Read into a buffer of the given length, with the error marked. It turns an
// impossible count into an error, because counts become slice bounds and offsets here.
func checked(n int, err error, length int) (int, error) {
	switch {
	case n < 0 || n > length:
		return 0, errInvalidRead
	case err != nil && err != io.EOF:
		err = &ReadError{err}
	}
	return n, err
}
