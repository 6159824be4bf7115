package replay

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// faultySeeker fails at an offset.
type faultySeeker struct {
	*strings.Reader
	failAt int64
	err    error
}

func (f *faultySeeker) Read(p []byte) (int, error) {
	at := f.Size() - int64(f.Len())
	if at >= f.failAt {
		return 0, f.err
	}
	return f.Reader.Read(p[:min(int64(len(p)), f.failAt-at)])
}

// hookedSeeker lets a test put another Seek or Read in the place of its own.
type hookedSeeker struct {
	*bytes.Reader
	seek func(offset int64, whence int) (int64, error)
	read func(p []byte) (int, error)
}

func (h *hookedSeeker) Seek(offset int64, whence int) (int64, error) {
	if h.seek != nil {
		return h.seek(offset, whence)
	}
	return h.Reader.Seek(offset, whence)
}

func (h *hookedSeeker) Read(p []byte) (int, error) {
	if h.read != nil {
		return h.read(p)
	}
	return h.Reader.Read(p)
}

func newHookedSeeker(content string) (*hookedSeeker, *Body) {
	h := &hookedSeeker{Reader: bytes.NewReader([]byte(content))}
	return h, New(seekBody{h, new(closer)}, 0)
}

func TestSeekerIsRepeatableWhateverTheLimit(t *testing.T) {
	for _, limit := range []int64{-1, 0, 1} {
		s := New(seekBody{strings.NewReader(text), new(closer)}, limit)
		var l *Lease
		for range 3 {
			l = lease(t, s, l)
			assert.Equal(t, text, readAll(t, open(t, l)))
			assert.True(t, s.Repeatable())
		}
	}
}

func TestSeekerIsNotReadAheadOfItsReaders(t *testing.T) {
	h, s := newHookedSeeker(text)
	var asked []int
	h.read = func(p []byte) (int, error) {
		asked = append(asked, len(p))
		return h.Reader.Read(p)
	}
	r := open(t, lease(t, s, nil))
	assert.Empty(t, asked)
	read(t, r, 5)
	read(t, r, 3)
	assert.Equal(t, []int{5, 3}, asked)
}

func TestSeekerThatLiesFailsInsteadOfSendingWrongBytes(t *testing.T) {
	broken := errors.New("the tape is torn")
	for _, c := range []struct {
		name string
		seek func(h *hookedSeeker, offset int64, whence int) (int64, error)
		want error
	}{
		{"its position does not follow its reads", func(h *hookedSeeker, offset int64, whence int) (int64, error) {
			if whence == io.SeekCurrent {
				return 0, nil
			}
			return h.Reader.Seek(offset, whence)
		}, errMoved},
		{"it does not go back", func(h *hookedSeeker, _ int64, _ int) (int64, error) {
			return h.Reader.Seek(0, io.SeekCurrent)
		}, errMoved},
		{"it goes elsewhere", func(h *hookedSeeker, offset int64, whence int) (int64, error) {
			if whence == io.SeekStart {
				offset++
			}
			return h.Reader.Seek(offset, whence)
		}, errMoved},
		{"it cannot go back", func(h *hookedSeeker, offset int64, whence int) (int64, error) {
			if whence == io.SeekStart {
				return 0, broken
			}
			return h.Reader.Seek(offset, whence)
		}, broken},
		{"it fails elsewhere", func(h *hookedSeeker, offset int64, whence int) (int64, error) {
			if whence == io.SeekStart {
				return 3, broken
			}
			return h.Reader.Seek(offset, whence)
		}, broken},
		{"it cannot tell where it is", func(h *hookedSeeker, offset int64, whence int) (int64, error) {
			if whence == io.SeekCurrent {
				return 0, broken
			}
			return h.Reader.Seek(offset, whence)
		}, broken},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, s := newHookedSeeker(text)
			h.seek = func(offset int64, whence int) (int64, error) { return c.seek(h, offset, whence) }
			l := lease(t, s, nil)
			read(t, open(t, l), 5)
			_, err := l.Next(new(http.Request), 0)
			assert.Equal(t, c.want, err, "it is known before the attempt")
			failsWith(t, open(t, lease(t, s, nil)), &ReadError{c.want})
		})
	}
}

// A Seek that went wrong leaves the body at an unknown place. A reader that
// stood where the body stood before must not go on from there.
func TestReaderDoesNotGoOnFromWhereAWrongSeekLeftTheBody(t *testing.T) {
	for _, stood := range []int{1, 5} {
		h, s := newHookedSeeker(text)
		a := open(t, lease(t, s, nil))
		head := read(t, a, stood)
		h.seek = func(offset int64, whence int) (int64, error) {
			if whence == io.SeekStart {
				offset += 2
			}
			return h.Reader.Seek(offset, whence)
		}
		failsWith(t, open(t, lease(t, s, nil)), &ReadError{errMoved})
		h.seek = nil
		got, err := io.ReadAll(a)
		if err == nil {
			assert.Equal(t, text, head+string(got))
		} else {
			assert.Empty(t, got)
		}
	}
}

func TestSeekerWithImpossibleCountsFails(t *testing.T) {
	for name, count := range map[string]int{"negative": -1, "larger than the buffer": 9} {
		t.Run(name, func(t *testing.T) {
			h, s := newHookedSeeker(text)
			h.read = func([]byte) (int, error) { return count, nil }
			failsWith(t, open(t, lease(t, s, nil)), errInvalidRead)
		})
	}
}

// The count says how far the body moved, and an impossible one does not.
func TestAttemptDoesNotGoOnFromWhereAnImpossibleCountLeftTheBody(t *testing.T) {
	for name, count := range map[string]int{"negative": -1, "larger than the buffer": 9} {
		t.Run(name, func(t *testing.T) {
			h, s := newHookedSeeker(text)
			h.read = func(p []byte) (int, error) {
				h.Reader.Read(p)
				return count, nil
			}
			failsWith(t, open(t, lease(t, s, nil)), errInvalidRead)
			h.read = nil
			got, err := io.ReadAll(open(t, lease(t, s, nil)))
			if err == nil {
				assert.Equal(t, text, string(got))
			} else {
				assert.Empty(t, got)
			}
		})
	}
}

func TestSeekerThatSomebodyElseReadsFails(t *testing.T) {
	h, s := newHookedSeeker(text)
	a := open(t, lease(t, s, nil))
	read(t, a, 5)
	_, err := h.Reader.ReadByte()
	require.NoError(t, err)
	failsWith(t, open(t, lease(t, s, nil)), &ReadError{errMoved})
}

func TestSeekerThatIsShorterTheSecondTimeIsNotAtItsEnd(t *testing.T) {
	for _, left := range []int{0, 10, len(text) - 1} {
		h, s := newHookedSeeker(text)
		assert.Equal(t, text, readAll(t, open(t, lease(t, s, nil))))
		h.read = func(p []byte) (int, error) {
			at, _ := h.Reader.Seek(0, io.SeekCurrent)
			if at >= int64(left) {
				return 0, io.EOF
			}
			return h.Reader.Read(p[:min(len(p), left-int(at))])
		}
		got, err := io.ReadAll(open(t, lease(t, s, nil)))
		assert.Equal(t, text[:left], string(got))
		assert.Equal(t, &ReadError{io.ErrUnexpectedEOF}, err)
		h.read = nil
		failsWith(t, open(t, lease(t, s, nil)), &ReadError{errChanged}) // whatever it returns by now
	}
}

// The bytes that come with an error have moved the position too.
func TestSeekerThatFailsWithBytesIsRewoundFromWhereItStands(t *testing.T) {
	broken := errors.New("once")
	h, s := newHookedSeeker(text)
	h.read = func(p []byte) (int, error) {
		n, _ := h.Reader.Read(p[:4])
		return n, broken
	}
	n, err := open(t, lease(t, s, nil)).Read(make([]byte, 8))
	assert.Equal(t, 4, n)
	assert.Equal(t, &ReadError{broken}, err)
	h.read = nil
	assert.Equal(t, text, readAll(t, open(t, lease(t, s, nil))))
}

// cachingSeeker can seek within the bytes that were read, and takes them for the whole.
type cachingSeeker struct {
	rest  io.Reader
	cache []byte
	at    int
}

func (c *cachingSeeker) Read(p []byte) (int, error) {
	if c.at < len(c.cache) {
		n := copy(p, c.cache[c.at:])
		c.at += n
		return n, nil
	}
	n, err := c.rest.Read(p)
	c.cache = append(c.cache, p[:n]...)
	c.at += n
	return n, err
}

func (c *cachingSeeker) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += int64(c.at)
	case io.SeekEnd:
		offset += int64(len(c.cache))
	}
	c.at = int(offset)
	return offset, nil
}

// The end that Seek finds in the middle of the first reading may be no end. The body is not cut
// there.
func TestSeekerThatSeeksInWhatWasReadIsNotCutShort(t *testing.T) {
	for came := range len(text) + 1 {
		s := New(seekBody{&cachingSeeker{rest: strings.NewReader(text)}, new(closer)}, 0)
		l := lease(t, s, nil)
		read(t, open(t, l), came)
		got, err := io.ReadAll(open(t, lease(t, s, l)))
		if err == nil {
			assert.Equal(t, text, string(got), came)
		} else {
			assert.Equal(t, &ReadError{errLimited}, err, came)
			failsWith(t, open(t, lease(t, s, nil)), &ReadError{errChanged})
		}
	}
}
