package replay

import (
	"errors"
	"io"
)

// rewinder reads a body that can seek but has no random access. The readers take turns, and
// move the body's position back and forth.
type rewinder struct {
	source *Source
	body   io.ReadSeeker
	start  int64 // the body's position when it was handed over
	turns  turns

	// guarded by turns
	position int64 // relative to start
	furthest int64 // the greatest position so far; the size is at least this
}

func newRewinder(s *Source, body io.ReadSeeker, start int64) *rewinder {
	return &rewinder{source: s, body: body, start: start, turns: newTurns()}
}

func (w *rewinder) repeatable() bool { return true }

// rewind detects a body that cannot be rewound while the last response can still be returned.
// If another reader has the turn, rewind does not wait, since the turn may take forever. The
// next reader detects the failure then.
func (w *rewinder) rewind() error {
	select {
	case w.turns <- struct{}{}:
		defer w.turns.give()
		return w.seek(0)
	default:
		return nil
	}
}

func (w *rewinder) read(r *Reader, p []byte) (int, error) {
	if err := w.turns.take(r); err != nil {
		return 0, err
	}
	offset := r.offset
	return w.turns.read(r, p, func(p []byte) (int, error) {
		if err := w.source.enter(r); err != nil {
			return 0, err
		}
		defer w.source.leave()
		return w.readAt(p, offset)
	})
}

func (w *rewinder) readAt(p []byte, offset int64) (int, error) {
	if err := w.seek(offset); err != nil {
		return 0, &ReadError{err}
	}
	position := w.position
	w.position = unknown // in case Read does not return
	n, err := w.body.Read(p)
	if n, err = checked(n, err, len(p)); err == errInvalidRead {
		return 0, &ReadError{err}
	}
	w.position = position + int64(n)
	w.furthest = max(w.furthest, w.position)
	switch {
	case err == io.EOF && w.position < w.furthest: // the body was longer before
		return n, &ReadError{io.ErrUnexpectedEOF}
	case err != nil && err != io.EOF:
		return n, &ReadError{err}
	}
	return n, err
}

const unknown = -1

var errMoved = errors.New("the request body cannot be rewound: its position does not follow its reads")

// seek moves the body to an offset. It verifies the positions: a device, or a body that other
// code reads too, would otherwise send the wrong bytes.
func (w *rewinder) seek(offset int64) error {
	if w.position == offset {
		return nil
	}
	if w.position != unknown {
		at, err := w.body.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		if at != w.start+w.position {
			return errMoved
		}
	}
	stood := w.position
	w.position = unknown // in case Seek does not return
	at, err := w.body.Seek(w.start+offset, io.SeekStart)
	if err == nil && at != w.start+offset {
		err = errMoved
	}
	if err != nil {
		w.position = w.unmoved(stood)
		return err
	}
	w.position = offset
	return nil
}

// unmoved returns stood if a failed Seek has left the body there, or unknown. An attempt that
// stands there can continue.
func (w *rewinder) unmoved(stood int64) int64 {
	if at, err := w.body.Seek(0, io.SeekCurrent); err != nil || at != w.start+stood {
		return unknown
	}
	return stood
}
