package replay

import (
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
)

// rewinder reads a body that can seek. The readers take turns, and move the body's position back
// and forth.
//
// A body may have a Read of its own above the Seek of a file that it embeds. Such a Read may
// limit itself, or change the bytes, and a Seek may not reset it. So the first reading shows
// what the body is, until the body is moved for the first time. After that, a reader must get
// the same bytes up to the same end, or it fails.
type rewinder struct {
	of    *Body
	body  io.ReadSeeker
	start int64 // the body's position when it was handed over
	size  int64 // of the file that it may embed, at that time; 0 if the body's length is announced
	turns turns

	// guarded by turns; positions are relative to start
	position int64
	moved    bool  // the first reading is over
	first    mark  // how far the first reading came
	end      int64 // where the body ends; unknown until it is met, or the body is moved
	sought   bool  // only Seek has shown the end, in the middle of the first reading
	changed  bool  // the body was not what the first reading has shown
}

// mark is a position in the body, with a checksum of the bytes before it.
type mark struct {
	offset int64
	sum    uint32
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli) // has instructions of its own on most machines

// unknown stands for a position that is not known.
const unknown = -1

var (
	errMoved   = errors.New("the request body cannot be rewound: its position does not follow its reads")
	errLimited = errors.New("the request body cannot be rewound: its Read and its Seek have different ends")
	errChanged = errors.New("the request body cannot be sent again: it returned other bytes when it was read again")
)

// fileSize returns the size of the file that the body embeds, or 0.
func (w *rewinder) fileSize() int64 {
	if f, ok := w.body.(interface{ Stat() (fs.FileInfo, error) }); ok {
		if info, err := f.Stat(); err == nil {
			return info.Size()
		}
	}
	return 0
}

// rewind detects a body that cannot be rewound while the last response can still be returned.
// If another reader has the turn, rewind does not wait, since the turn may take forever. The
// next reader detects the failure then.
//
// [Lease.Next] has paused the previous attempt: each of its reads would move the body, and a Read
// after a Seek may cost a request.
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
	at := r.mark
	n, err := w.turns.read(r, p, func(p []byte) (int, error) { return w.readAt(p, &at) })
	if n > 0 { // otherwise the Read may still be under way
		r.sum = at.sum
	}
	return n, err
}

// readAt reads at a mark, and moves the mark. It fails if the body is not what the first reading has shown.
func (w *rewinder) readAt(p []byte, at *mark) (int, error) {
	if err := w.seek(at.offset); err != nil {
		return 0, &ReadError{err}
	}
	p = p[:w.room(at.offset, len(p))]
	position := w.position
	w.position = unknown // in case Read does not return
	n, err := w.body.Read(p)
	if n, err = checked(n, err, len(p)); err == errInvalidRead {
		return 0, err
	}
	w.position = position + int64(n)
	if n > 0 && at.offset == w.end {
		if w.sought {
			w.changed = true
			return 0, &ReadError{errLimited} // Seek may know only what was read before
		}
		return 0, io.EOF // the body has grown
	}
	at.offset += int64(n)
	at.sum = crc32.Update(at.sum, castagnoli, p[:n])
	switch {
	case !w.moved:
		w.first = *at
		if err == io.EOF {
			w.end = at.offset
		}
	case at.offset == w.first.offset && at.sum != w.first.sum:
		w.changed = true
		return 0, &ReadError{errChanged}
	case at.offset < w.end && err == io.EOF:
		w.changed = true
		err = &ReadError{io.ErrUnexpectedEOF}
	}
	return n, err
}

// room returns how many bytes a Read may ask for at an offset. A Read ends where the first
// reading ended, so that the bytes are compared there, and at the end of the body. At the end
// it asks for one more byte, because a body may set its trailer when its end is met.
func (w *rewinder) room(offset int64, size int) int64 {
	room := int64(size)
	if offset < w.first.offset {
		room = min(room, w.first.offset-offset)
	}
	if w.end != unknown {
		room = min(room, max(w.end-offset, 1))
	}
	return room
}

// seek moves the body to an offset. If that fails, or the body is not what the first reading has shown,
// seek moves it back: an attempt that stands there can continue.
func (w *rewinder) seek(offset int64) error {
	if w.changed {
		return errChanged
	}
	if w.position == offset {
		return nil
	}
	stood := w.position
	if stood != unknown {
		// A device, or a body that other code reads too, would otherwise send the wrong bytes.
		at, err := w.body.Seek(0, io.SeekCurrent)
		if err == nil && at != w.start+stood {
			err = errMoved
		}
		if err != nil {
			return err
		}
	}
	end, sought, err := w.settled()
	if err == nil {
		err = w.move(offset)
	}
	if err == nil {
		w.moved, w.end, w.sought = true, end, sought
	} else if stood != unknown {
		_ = w.move(stood)
	}
	return err
}

func (w *rewinder) move(offset int64) error {
	w.position = unknown // in case Seek does not return
	at, err := w.body.Seek(w.start+offset, io.SeekStart)
	if err == nil && at != w.start+offset {
		err = errMoved
	}
	if err == nil {
		w.position = offset
	}
	return err
}

// settled returns where the body ends, and whether only Seek has shown this. When the first reading is over,
// this is where the length was announced, where the first reading met the end, or where Seek finds it. If
// Seek finds the end elsewhere, Read leaves out a part of what Seek moves in. If more bytes follow the
// end that Seek finds only now, Seek knows only a part of the body.
func (w *rewinder) settled() (end int64, sought bool, err error) {
	if w.moved {
		return w.end, w.sought, nil
	}
	end = w.end
	if length := w.of.length; length > 0 {
		end = length
	}
	w.position = unknown // in case Seek does not return
	size, err := w.body.Seek(0, io.SeekEnd)
	size = max(size-w.start, 0)
	switch {
	case err != nil && end == unknown:
		return 0, false, err
	case err != nil: // the body cannot say, but the end is known
		return end, false, nil
	case size < w.first.offset || end != unknown && end != size:
		return 0, false, errLimited
	case w.size > 0 && w.fileSize() < w.size: // it was cut short meanwhile
		return 0, false, io.ErrUnexpectedEOF
	}
	return size, end == unknown, nil
}
