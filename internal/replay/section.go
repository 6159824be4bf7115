package replay

import (
	"io"
	"os"
)

// section reads a body that has random access, usually an *os.File. Nothing is recorded, and
// readers need not take turns.
type section struct {
	source *Source
	at     io.ReaderAt
	start  int64 // the body's position when it was handed over
	size   int64 // counted from start
}

func (s *section) repeatable() bool { return true }
func (s *section) rewind() error    { return nil }

func (s *section) read(r *Reader, p []byte) (int, error) {
	offset := r.offset // below size: Read does not call again for a reader that has met the end
	if _, local := s.at.(*os.File); local {
		return s.readAt(r, p, offset)
	}
	return readBeside(r, p, func(p []byte) (int, error) { return s.readAt(r, p, offset) })
}

func (s *section) readAt(r *Reader, p []byte, offset int64) (int, error) {
	if err := s.source.enter(r); err != nil {
		return 0, err
	}
	defer s.source.leave()
	left := s.size - offset
	p = p[:min(int64(len(p)), left)]
	n, err := s.at.ReadAt(p, s.start+offset)
	n, err = checked(n, err, len(p))
	switch {
	case int64(n) == left:
		return n, io.EOF
	case err == io.EOF: // the file was truncated meanwhile; a plain EOF would look like the end of the body
		return n, &ReadError{io.ErrUnexpectedEOF}
	case err != nil:
		return n, &ReadError{err}
	}
	return n, nil
}
