package replay

import (
	"io"
	"os"
)

// section reads an *os.File at offsets. Nothing is recorded, and readers need not take turns.
//
// Bodies of other types are not read with ReadAt. A type that embeds a file may have a Read that
// leaves out what ReadAt returns, and each ReadAt may cost a request.
type section struct {
	of    *Body
	file  file
	start int64 // the file's position when it was handed over
	size  int64 // the size that the file reported then, counted from start

	// guarded by of.mu
	first    *Reader // the first reader that got bytes
	furthest int64   // the furthest offset that a reader has reached
	end      int64   // size, or less if the file was met to end earlier
}

// file is the part of *os.File that a section uses.
type file interface {
	io.ReaderAt
	Stat() (os.FileInfo, error)
}

func newSection(b *Body, f file, start, size int64) *section {
	return &section{of: b, file: f, start: start, size: size, end: size}
}

func (s *section) repeatable() bool { return true }
func (s *section) rewind() error    { return nil }

func (s *section) read(r *Reader, p []byte) (int, error) {
	defer r.from.leave()
	left := s.left(r)
	if left <= 0 {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), left)]
	n, err := s.file.ReadAt(p, s.start+r.offset)
	n, err = checked(n, err, len(p))
	switch {
	case int64(n) == left:
		err = io.EOF
	case err == io.EOF:
		err = s.early(r, r.offset+int64(n))
	case err != nil:
		err = &ReadError{err}
	}
	s.reached(r, r.offset+int64(n), err == io.EOF)
	return n, err
}

func (s *section) left(r *Reader) int64 {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	return s.end - r.offset
}

// reached records that r has reached an offset, and whether the file ends there.
func (s *section) reached(r *Reader, offset int64, ends bool) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if s.first == nil && offset > 0 {
		s.first = r
	}
	s.furthest = max(s.furthest, offset)
	if ends {
		s.end = min(s.end, offset)
	}
}

// early returns the error for a file that ends at an offset below its size. A plain io.EOF looks
// like the end of the body.
//
// If another reader came further, or the announced length is another one, the file was truncated
// meanwhile. Otherwise the end that the first reader meets is believed, as net/http believes it:
// a file in /sys reports 4096 bytes and has a few. A later reader believes it only if the file
// still reports the same size, which a truncated file does not.
func (s *section) early(r *Reader, offset int64) error {
	length := s.of.length
	s.of.mu.Lock()
	first := s.first == nil || s.first == r
	believed := offset >= s.furthest && (length <= 0 || length == offset)
	s.of.mu.Unlock()
	if believed && (first || s.reportsSize()) {
		return io.EOF
	}
	return &ReadError{io.ErrUnexpectedEOF}
}

func (s *section) reportsSize() bool {
	info, err := s.file.Stat()
	return err == nil && info.Size() == s.start+s.size
}
