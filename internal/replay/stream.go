package replay

import "io"

// stream reads a body that can be read only once. It records the bytes as readers take them
// from the body, and never reads ahead. A body may be written in answer to the server, or
// never end.
type stream struct {
	body  io.Reader
	limit int64
	turns turns // for reading from body

	// guarded by Body.mu
	record []byte
	total  int64 // bytes taken from body; equal to len(record) unless spent
	spent  bool  // the record was dropped
	end    error // the error with which body ended
}

func (s *stream) read(r *Reader, p []byte) (int, error) {
	if n, err, ok := s.recorded(r, p); ok {
		r.leave()
		return n, err
	}
	return s.turns.read(r, p, func(p []byte) (int, error) {
		// The previous reader may have read past r's position.
		if n, err, ok := s.recorded(r, p); ok {
			return n, err
		}
		n, err := 0, error(&ReadError{errNoReturn}) // the bytes of such a Read are lost
		defer func() { s.keep(r, p[:n], err) }()
		n, err = s.body.Read(p)
		n, err = checked(n, err, len(p))
		return n, err
	})
}

// recorded serves a Read from the record. If ok is false, r is at the end of the record, and
// must continue from the body.
func (s *stream) recorded(r *Reader, p []byte) (n int, err error, ok bool) {
	b := r.lease.body
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case r.offset < s.total && s.spent:
		return 0, ErrSpent, true
	case r.offset < s.total:
		return copy(p, s.record[r.offset:]), nil, true
	case s.end != nil:
		return 0, s.end, true
	}
	return 0, nil, false
}

// keep records the bytes that r has read from the body. Past the limit, the record is dropped,
// and only r continues. There are two exceptions. If a newer attempt has been promised the beginning,
// r's attempt ends here. If r's attempt has ended during this Read, the bytes are recorded,
// because no other reader has them, and another attempt may need them.
func (s *stream) keep(r *Reader, p []byte, end error) {
	b := r.lease.body
	b.mu.Lock()
	defer b.mu.Unlock()
	s.total += int64(len(p))
	s.end = end
	fits := s.total <= max(s.limit, 0) || len(p) == 0 // the record may already be longer
	switch {
	case s.spent:
	case fits || r.isOver() || r.lease.generation < b.newest:
		s.record = append(s.record, p...)
		if !fits && !r.isOver() {
			r.lease.over = true
		}
	default:
		s.spent, s.record = true, nil
	}
}
