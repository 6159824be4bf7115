package replay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// faultyFile says that it has size bytes, and gives head and then err.
type faultyFile struct {
	closer
	size int64
	head string
	err  error
}

func (f *faultyFile) Read([]byte) (int, error) { panic("a section is read at an offset") }

func (f *faultyFile) Seek(_ int64, whence int) (int64, error) {
	if whence == io.SeekEnd {
		return f.size, nil
	}
	return 0, nil
}

func (f *faultyFile) Stat() (os.FileInfo, error) { return sizeInfo{size: f.size}, nil }

func (f *faultyFile) ReadAt(p []byte, at int64) (int, error) {
	n := copy(p, f.head[min(at, int64(len(f.head))):])
	if n < len(p) {
		return n, f.err
	}
	return n, nil
}

func TestFileIsRepeatableWhateverTheLimit(t *testing.T) {
	for _, limit := range []int64{-1, 0, 1} {
		s := New(fileOf(t, text), limit)
		var l *Lease
		for range 3 {
			l = lease(t, s, l)
			assert.Equal(t, text, readAll(t, open(t, l)))
			assert.True(t, s.Repeatable())
		}
	}
}

func TestFileCutShortMeanwhileIsNotTheEndOfTheBody(t *testing.T) {
	for _, c := range []struct {
		name string
		size int64 // what is left of the file, which is sent from its byte 4 on
	}{
		{"to nothing", 0},
		{"to before the body", 2},
		{"to the beginning of the body", 4},
		{"to the middle of the body", 10},
		{"by one byte", int64(len(text)) - 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fileOf(t, text)
			_, err := f.Seek(4, io.SeekStart)
			require.NoError(t, err)
			s := New(f, 1000)
			first := lease(t, s, nil)
			assert.Equal(t, text[4:], readAll(t, open(t, first)))
			require.NoError(t, f.Truncate(c.size))
			for _, chunk := range []int{1, 1000} {
				var got bytes.Buffer
				_, err := io.CopyBuffer(struct{ io.Writer }{&got}, open(t, lease(t, s, nil)), make([]byte, chunk))
				assert.Equal(t, &ReadError{io.ErrUnexpectedEOF}, err)
				assert.Equal(t, text[4:max(4, c.size)], got.String())
			}
		})
	}
}

// Seek finds the end that the file has by then.
func TestFileInAnotherTypeThatIsCutShortIsNotSentAgain(t *testing.T) {
	f := fileOf(t, text)
	s := New(struct{ *os.File }{f}, 0)
	first := lease(t, s, nil)
	read(t, open(t, first), 3)
	require.NoError(t, f.Truncate(int64(len(text))-1))
	_, err := leaseInstead(first)
	assert.Equal(t, io.ErrUnexpectedEOF, err)
}

// statting counts how often its size is asked for, which may cost a request.
type statting struct {
	*os.File
	asked *int
}

func (s statting) Stat() (os.FileInfo, error) {
	*s.asked++
	return s.File.Stat()
}

// An announced length says enough.
func TestFileInAnotherTypeIsAskedForItsSizeOnlyIfTheLengthIsUnknown(t *testing.T) {
	for length, want := range map[int64]int{-1: 2, 0: 2, int64(len(text)): 0} {
		asked := 0
		s := Of(&http.Request{Body: statting{fileOf(t, text), &asked}, ContentLength: length}, 0)
		first := lease(t, s, nil)
		read(t, open(t, first), 3)
		assert.Equal(t, text, readAll(t, open(t, lease(t, s, first))))
		assert.Equal(t, want, asked, length)
	}
}

// An early end is believed while nobody came further, and no longer.
func TestFileCutShortBelowAnotherReaderIsNotTheEndOfTheBody(t *testing.T) {
	f := fileOf(t, text)
	s := New(f, 1000)
	elder := lease(t, s, nil)
	slow := open(t, elder)
	read(t, slow, 3)
	beside, err := elder.Beside(new(http.Request))
	require.NoError(t, err)
	read(t, open(t, beside), 9)
	require.NoError(t, f.Truncate(3))
	failsWith(t, slow, &ReadError{io.ErrUnexpectedEOF})
}

func TestFileThatGrewGivesWhatItHad(t *testing.T) {
	f := fileOf(t, text)
	s := New(f, 1000)
	l := lease(t, s, nil)
	r := open(t, l)
	head := read(t, r, 5)
	_, err := f.WriteAt([]byte("and more"), int64(len(text)))
	require.NoError(t, err)
	assert.Equal(t, text, head+readAll(t, r))
	assert.Equal(t, text, readAll(t, open(t, lease(t, s, l))))
}

// A goroutine or a buffer for each Read would show as an allocation.
func TestFileIsReadStraightIntoTheCallersBuffer(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "body"))
	require.NoError(t, err)
	require.NoError(t, f.Truncate(1<<20))
	r := open(t, lease(t, New(f, 1000), nil))
	p := make([]byte, 8)
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if n, err := r.Read(p); n != len(p) || err != nil {
			panic(err)
		}
	}))
	require.NoError(t, r.Close())
	require.NoError(t, f.Close())
}

func TestFileIsNotReadOnceItsLastByteWasGiven(t *testing.T) {
	reads := 0
	body := &spyFile{fileBody: fileBody{bytes.NewReader([]byte(text)), new(closer)}, readAt: func([]byte) { reads++ }}
	r := open(t, lease(t, newBody(body, 1000), nil))
	read(t, r, len(text))
	failsWith(t, r, io.EOF)
	assert.Equal(t, 1, reads)
}

// spyFile reports every ReadAt.
type spyFile struct {
	fileBody
	readAt func(p []byte)
}

func (f *spyFile) ReadAt(p []byte, at int64) (int, error) {
	f.readAt(p)
	return f.fileBody.ReadAt(p, at)
}

func TestFileIsReadByAllReadersAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stall, first := make(chan struct{}), true
		body := &spyFile{fileBody: fileBody{bytes.NewReader([]byte(text)), new(closer)}}
		body.readAt = func([]byte) {
			if first {
				first = false
				<-stall
			}
		}
		s := newBody(body, 1000)
		a, b := open(t, lease(t, s, nil)), open(t, lease(t, s, nil))
		result := make(chan string)
		go func() {
			p, _ := io.ReadAll(a)
			result <- string(p)
		}()
		synctest.Wait()
		assert.Equal(t, text, readAll(t, b), "a deadlock if it waited for the first reader")
		close(stall)
		assert.Equal(t, text, <-result)
	})
}

func TestFileIsNotClosedUnderAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // Close takes no time here
		f := fileOf(t, text)
		s := New(f, 1000)
		r := open(t, lease(t, s, nil))
		read(t, r, 3)
		s.Seal(false)
		assert.Equal(t, text[3:], readAll(t, r))
		require.NoError(t, r.Close())
		_, err := f.Stat()
		assert.ErrorIs(t, err, os.ErrClosed)
	})
}

func TestFileWithImpossibleCountsFails(t *testing.T) {
	for name, count := range map[string]int{"negative": -1, "larger than the buffer": 9, "the whole body": len(text)} {
		t.Run(name, func(t *testing.T) {
			s := newBody(lyingFile{fileBody{bytes.NewReader([]byte(text)), new(closer)}, count}, 1000)
			for range 2 {
				failsWith(t, open(t, lease(t, s, nil)), errInvalidRead)
			}
		})
	}
}

// lyingFile gives impossible counts.
type lyingFile struct {
	fileBody
	count int
}

func (f lyingFile) ReadAt([]byte, int64) (int, error) { return f.count, nil }

// An io.ReaderAt may return an error with the last byte it was asked for.
func TestFileThatFailsAfterItsLastByteWasSentWhole(t *testing.T) {
	s := newBody(lateFile{fileBody{bytes.NewReader([]byte(text)), new(closer)}}, 1000)
	assert.Equal(t, text, readAll(t, open(t, lease(t, s, nil))))
}

type lateFile struct{ fileBody }

func (f lateFile) ReadAt(p []byte, at int64) (int, error) {
	n, _ := f.fileBody.ReadAt(p, at)
	if at+int64(n) == f.Size() {
		return n, errors.New("too late to matter")
	}
	return n, nil
}

// specialFile reports a size that it does not have, as a file in /sys does.
type specialFile struct {
	*os.File
	reports int64
}

func (f *specialFile) Stat() (os.FileInfo, error) { return sizeInfo{size: f.reports}, nil }

func specialFileOf(t *testing.T, s *Body, reports int64) *specialFile {
	t.Helper()
	f := &specialFile{fileOf(t, text), reports}
	s.origin = sectionOf(f, 0, reports)
	return f
}

// lostFile ends early, and cannot say how long it is any more, as on a server that is gone.
type lostFile struct{ fileBody }

func (lostFile) Stat() (os.FileInfo, error) { return nil, errors.New("stale handle") }

func TestFileThatLosesItsSizeIsCutShort(t *testing.T) {
	f := lostFile{fileBody{bytes.NewReader([]byte(text)), new(closer)}}
	s := New(f, 1000)
	s.origin = sectionOf(f, 0, f.Reader.Size()+1)
	_, err := io.ReadAll(open(t, lease(t, s, nil)))
	assert.Equal(t, &ReadError{io.ErrUnexpectedEOF}, err)
}

func TestFileThatReportsAWrongSizeEndsWhereTheFirstReadingEnds(t *testing.T) {
	for _, came := range []int{0, 5, len(text), len(text) + 1} {
		for name, c := range map[string]struct {
			length int64
			again  int64 // the size that the file reports afterwards
			fails  bool  // a later attempt
		}{
			"unknown length":               {0, 4096, false},
			"the length that it has":       {int64(len(text)), 4096, false},
			"the length that it reports":   {4096, 4096, true},
			"unknown length, reports less": {0, int64(len(text)), came <= len(text)},
		} {
			t.Run(fmt.Sprintf("%s, %d bytes read", name, came), func(t *testing.T) {
				s := New(plainBody{nil, new(closer)}, 0)
				f := specialFileOf(t, s, 4096)
				s.length = c.length
				l := lease(t, s, nil)
				r := open(t, l)
				read(t, r, min(came, len(text)))
				if came > len(text) && c.length != 4096 {
					failsWith(t, r, io.EOF)
				}
				f.reports = c.again
				for range 2 {
					l = lease(t, s, l)
					got, err := io.ReadAll(open(t, l))
					assert.Equal(t, text, string(got))
					if c.fails {
						assert.Equal(t, &ReadError{io.ErrUnexpectedEOF}, err)
					} else {
						assert.NoError(t, err)
					}
				}
			})
		}
	}
}

// The end that was met is the end, for a file that is longer by then as well.
func TestFileThatReportsAWrongSizeIsNotReadPastItsEnd(t *testing.T) {
	s := New(plainBody{nil, new(closer)}, 0)
	f := specialFileOf(t, s, 4096)
	l := lease(t, s, nil)
	assert.Equal(t, text, readAll(t, open(t, l)))
	_, err := f.WriteAt([]byte("and more"), int64(len(text)))
	require.NoError(t, err)
	assert.Equal(t, text, readAll(t, open(t, lease(t, s, l))))
}

// Two attempts side by side may meet the end at the same time.
func TestFileThatReportsAWrongSizeMayEndForTwoReadersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(plainBody{nil, new(closer)}, 0)
		f := &slowFile{specialFileOf(t, b, 4096)}
		b.origin = sectionOf(f, 0, 4096)
		l := lease(t, b, nil)
		r := open(t, l)
		got := make(chan error)
		for _, r := range []*Reader{r, open(t, l)} {
			go func() { _, err := io.ReadAll(r); got <- err }()
		}
		require.NoError(t, <-got)
		require.NoError(t, <-got)
	})
}

type slowFile struct{ *specialFile }

func (f *slowFile) ReadAt(p []byte, at int64) (int, error) {
	time.Sleep(time.Second)
	return f.specialFile.ReadAt(p, at)
}

// A file that reports a wrong size may be cut short unseen, except by a reading that came further.
func TestFileThatReportsAWrongSizeIsNotCutShort(t *testing.T) {
	b := New(plainBody{nil, new(closer)}, 0)
	f := specialFileOf(t, b, 4096)
	l := lease(t, b, nil)
	assert.Equal(t, text, readAll(t, open(t, l)))
	require.NoError(t, f.Truncate(5))
	got, err := io.ReadAll(open(t, lease(t, b, l)))
	assert.Equal(t, text[:5], string(got))
	assert.Equal(t, &ReadError{io.ErrUnexpectedEOF}, err)
}
