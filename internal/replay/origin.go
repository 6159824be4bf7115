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
	// repeatable returns an error if no other attempt can read the whole body. It is ErrSpent if
	// the first byte cannot be read again. The caller holds Body.mu.
	repeatable() error
}

func originOf(b *Body, body io.Reader, limit int64) origin {
	if b.getBody != nil {
		return reopened{}
	}
	seeker, ok := body.(io.ReadSeeker)
	if !ok {
		return newStream(b, body, limit)
	}
	start, err := seeker.Seek(0, io.SeekCurrent)
	if err != nil {
		return newStream(b, body, limit) // for example a pipe in an *os.File
	}
	f, ok := body.(*os.File)
	if !ok {
		return newRewinder(b, seeker, start)
	}
	info, err := f.Stat()
	if err != nil || info.Size() <= start {
		// A device or a file in /proc has no size, and may return different bytes when it is read twice.
		return newStream(b, body, limit)
	}
	return newSection(b, f, start, info.Size()-start)
}

// keepsBeginning reports whether the beginning of the body stays available however much is read.
// A stream may outgrow the bytes that are kept, unless its length is known.
func (b *Body) keepsBeginning() bool {
	recorded, ok := b.origin.(*stream)
	return !ok || 0 < b.length && b.length <= recorded.limit
}

// reopened is the origin of bodies from GetBody.
type reopened struct{}

func (reopened) repeatable() error { return nil }

func (reopened) read(r *Reader, p []byte) (int, error) {
	defer r.from.leave()
	n, err := r.from.Read(p)
	if r.from.wasPassed() {
		return 0, ErrOver // the bytes may be from after the rewind
	}
	if err != nil && err != io.EOF && err != ErrOver {
		err = &BodyError{err}
	}
	return n, err
}

func (o *opened) wasPassed() bool {
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	return o.passed
}

var errInvalidRead = errors.New("the request body's reader returned an impossible count")

// checked returns the results of a Read into a buffer of the given length. It turns an
// impossible count into an error, because counts become slice bounds and offsets here.
func checked(n int, err error, length int) (int, error) {
	if n < 0 || n > length {
		return 0, errInvalidRead
	}
	return n, err
}
