package replay

import "io"

// section reads a body that has random access, an *os.File above all: nothing
// is copied, and readers need not take turns.
type section struct {
	source *Source
	at     io.ReaderAt
	start  int64 // where the body stood when it was handed over
	size   int64 // from start
}

func (s *section) repeatable() bool { return true }
func (s *section) rewind() error    { return nil }

func (s *section) read(r *Reader, p []byte) (int, error) {
	left := s.size - r.offset
	if left <= 0 {
		return 0, io.EOF
	}
	if err := s.source.enter(r); err != nil {
		return 0, err
	}
	defer s.source.leave()
	p = p[:min(int64(len(p)), left)]
	n, err := s.at.ReadAt(p, s.start+r.offset)
	n, err = checked(n, err, len(p))
	switch {
	case int64(n) == left:
		return n, io.EOF
	case err == io.EOF: // the file was cut short meanwhile; a bare EOF would pass for the end of the body
		return n, &ReadError{io.ErrUnexpectedEOF}
	case err != nil:
		return n, &ReadError{err}
	}
	return n, nil
}
