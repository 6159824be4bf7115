package replay

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A Seek may fail at any of its calls. An attempt that ends its body has sent all of it.
func TestSeekerWhoseSeekFailsOnceIsSentWholeOrFails(t *testing.T) {
	for _, readAt := range []bool{false, true} {
		for failing := range 12 {
			synctest.Test(t, func(t *testing.T) { sendWithAFailingSeek(t, failing, readAt) })
		}
	}
}

func sendWithAFailingSeek(t *testing.T, failing int, readAt bool) {
	broken := errors.New("the tape is torn")
	h := &hookedSeeker{Reader: bytes.NewReader([]byte(text))}
	calls := 0
	h.seek = func(offset int64, whence int) (int64, error) {
		if calls++; calls == failing+1 {
			return 0, broken
		}
		return h.Reader.Seek(offset, whence)
	}
	var body io.ReadCloser = seekBody{h, new(closer)}
	if readAt {
		body = struct {
			*hookedSeeker
			*closer
		}{h, new(closer)}
	}
	s := New(body, 100)
	first := lease(t, s, nil)
	r := open(t, first)
	got := read5(r)
	next, err := first.Next(new(http.Request), 0)
	rest, restErr := io.ReadAll(r)
	if restErr == nil {
		require.Equal(t, text, got+string(rest), "Seek %d", failing)
	}
	if err != nil {
		return
	}
	first.Cut()
	for range 2 {
		again, err := io.ReadAll(open(t, next))
		if err == nil {
			require.Equal(t, text, string(again), "Seek %d", failing)
		}
	}
}

func read5(r io.Reader) string {
	p := make([]byte, 5)
	n, _ := io.ReadFull(r, p)
	return string(p[:n])
}

// A Read that panics may have moved the body. The retry gets all bytes, whether Seek reports where
// the body stands or not.
func TestSeekerWhoseReadPanicsIsRewound(t *testing.T) {
	h, s := newHookedSeeker(text)
	l := lease(t, s, nil)
	r := open(t, l)
	read(t, r, 5)
	h.read = func(p []byte) (int, error) {
		_, _ = h.Reader.Read(p[:3])
		panic("torn")
	}
	assert.PanicsWithValue(t, "torn", func() { _, _ = r.Read(make([]byte, 8)) })
	h.read = nil
	assert.Equal(t, text, readAll(t, open(t, lease(t, s, l))))
}

// A Seek that panics leaves the turn to other readers.
func TestSeekerWhoseSeekPanicsDoesNotBlockTheNextReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := newHookedSeeker(text)
		l := lease(t, s, nil)
		read(t, open(t, l), 5)
		h.seek = func(int64, int) (int64, error) { panic("torn") }
		assert.PanicsWithValue(t, "torn", func() { _, _ = l.Next(new(http.Request), 0) })
		h.seek = nil
		assert.Equal(t, text, readAll(t, open(t, lease(t, s, l))))
	})
}

// A Close that blocks holds up neither the result nor the attempt.
func TestSeekerWhoseCloseBlocksDoesNotHoldUpTheResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		s := New(struct {
			io.ReadSeeker
			io.Closer
		}{bytes.NewReader([]byte(text)), closeFunc(func() { <-free })}, 100)
		l := lease(t, s, nil)
		read(t, open(t, l), 5)
		assert.Equal(t, text, readAll(t, open(t, lease(t, s, l))))
		start := time.Now()
		s.Seal(true)
		assert.Equal(t, 10*time.Millisecond, time.Since(start))
		close(free)
	})
}

type closeFunc func()

func (f closeFunc) Close() error { f(); return nil }
