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
	file  file
	start int64 // the file's position when it was handed over
	size  int64 // the size that the file reported then, counted from start
	end   int64 // size, or less if the file was met to end earlier; guarded by Body.mu
}

// file is the part of *os.File that a section uses.
type file interface {
	io.ReaderAt
	Stat() (os.FileInfo, error)
}

func (s *section) read(r *Reader, p []byte) (int, error) {
	defer r.leave()
	b := r.lease.body
	b.mu.Lock()
	left := s.end - r.offset
	b.mu.Unlock()
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
		err = s.early(b, r.offset+int64(n))
	}
	return n, err
}

// early returns the error for a file that ends at an offset below its size. A plain io.EOF looks
// like the end of the body.
//
// A file in /sys reports 4096 bytes and has a few. So the end is believed if the file still reports the
// same size, which a file does not that was truncated meanwhile. It is not believed if another reader
// has met another end, or if the announced length is another one.
func (s *section) early(b *Body, offset int64) error {
	info, err := s.file.Stat()
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err != nil, info.Size() != s.start+s.size:
	case s.end != s.size && s.end != offset:
	case b.length <= 0 || b.length == offset:
		s.end = offset
		return io.EOF
	}
	return &ReadError{io.ErrUnexpectedEOF}
}
