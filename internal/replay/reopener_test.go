package replay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rewound is what some GetBody returns each time: one reader, rewound. The race
// detector sees whoever uses it beside another.
type rewound struct {
	*bytes.Reader
	pause time.Duration // before each Read
	closer
}

func (r *rewound) Read(p []byte) (int, error) {
	time.Sleep(r.pause)
	return r.Reader.Read(p)
}

func (r *rewound) get() (io.ReadCloser, error) {
	_, err := r.Seek(0, io.SeekStart)
	return r, err
}

func reopen(t *testing.T, r *Reopener, previous *Reopening) *Reopening {
	t.Helper()
	next, err := r.Reopen(t.Context(), previous)
	require.NoError(t, err)
	return next
}

func TestReopenerSendsASharedReaderWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &rewound{Reader: bytes.NewReader([]byte(text)), pause: 100 * time.Millisecond}
		r, first := NewReopener(shared, shared.get)
		old := make(chan error)
		go func() {
			_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, first.Body(), make([]byte, 1))
			old <- err
		}()
		time.Sleep(350 * time.Millisecond)
		start := time.Now()
		next := reopen(t, r, first)
		assert.Equal(t, 50*time.Millisecond, time.Since(start), "for the Read that was under way")
		time.Sleep(time.Second) // in which the previous attempt reads nothing
		assert.Equal(t, len(text), shared.Len())
		first.Cut()
		assert.Equal(t, ErrOver, <-old)
		got, err := io.ReadAll(next.Body())
		require.NoError(t, err)
		assert.Equal(t, text, string(got))
	})
}

func TestReopenerLetsThePreviousAttemptGoOnIfGetBodyFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, get := range map[string]func() (io.ReadCloser, error){
			"error":   func() (io.ReadCloser, error) { return nil, io.ErrNoProgress },
			"nothing": func() (io.ReadCloser, error) { return nil, nil },
		} {
			r, first := NewReopener(plainBody{bytes.NewReader([]byte(text)), new(closer)}, get)
			_, err := r.Reopen(t.Context(), first)
			if name == "error" {
				assert.Equal(t, io.ErrNoProgress, err)
			} else {
				assert.Equal(t, ErrNoBody, err)
			}
			r.Seal(false)
			got, err := io.ReadAll(first.Body())
			require.NoError(t, err)
			assert.Equal(t, text, string(got))
		}
	})
}

func TestReopenerWaitsForAStalledReadNoLongerThan250ms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		stalled := plainBody{readerFunc(func([]byte) (int, error) { time.Sleep(time.Minute); return 0, io.EOF }), new(closer)}
		opened := 0
		r, first := NewReopener(stalled, func() (io.ReadCloser, error) { opened++; return stalled, nil })
		go func() { _, _ = io.ReadAll(first.Body()) }()
		synctest.Wait()
		start := time.Now()
		next := reopen(t, r, first)
		assert.Equal(t, 250*time.Millisecond, time.Since(start))

		go func() { _, _ = io.ReadAll(next.Body()) }()
		synctest.Wait()
		time.AfterFunc(100*time.Millisecond, cancel)
		start = time.Now()
		_, err := r.Reopen(ctx, next)
		assert.Equal(t, context.Canceled, err)
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
		assert.Equal(t, 1, opened, "GetBody is of no use any more")
		first.Cut()
		time.Sleep(time.Hour)
	})
}

// What ends an attempt frees its reads, also those that are paused.
func TestReopenerSealEndsPausedReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, first := NewReopener(plainBody{bytes.NewReader([]byte(text)), new(closer)}, func() (io.ReadCloser, error) {
			return plainBody{bytes.NewReader([]byte(text)), new(closer)}, nil
		})
		start := time.Now()
		next := reopen(t, r, first)
		assert.Zero(t, time.Since(start), "nobody reads")
		ended := make(chan error)
		go func() { _, err := first.Body().Read(make([]byte, 1)); ended <- err }()
		synctest.Wait()
		r.Seal(true)
		assert.Equal(t, ErrOver, <-ended)
		failsWith(t, next.Body(), ErrOver)
	})
}

func TestReopenerMarksErrorsOfTheBody(t *testing.T) {
	errDisk := errors.New("disk error")
	_, first := NewReopener(plainBody{readerFunc(func([]byte) (int, error) { return 0, errDisk }), new(closer)}, nil)
	failsWith(t, first.Body(), &BodyError{errDisk})
}

func TestReopenerClosesOnceWhatTheBaseForgot(t *testing.T) {
	for _, tc := range []struct {
		name  string
		use   func(r *Reopener, first *Reopening)
		cut   bool
		first int32 // closes of the first body after Seal
		again int32 // and of the other one
	}{
		{"closed by the base", func(_ *Reopener, o *Reopening) { o.Body().Close(); o.Body().Close() }, false, 1, 0},
		{"still to be read", func(*Reopener, *Reopening) {}, false, 0, 0},
		{"read in part", func(_ *Reopener, o *Reopening) { o.Body().Read(make([]byte, 1)) }, false, 0, 0},
		{"read to the end", func(_ *Reopener, o *Reopening) { io.ReadAll(o.Body()) }, false, 1, 0},
		{"superseded unread", func(_ *Reopener, o *Reopening) { o.Open() }, false, 1, 0},
		{"superseded in use", func(_ *Reopener, o *Reopening) { o.Body().Read(make([]byte, 1)); o.Open() }, false, 0, 0},
		{"of an attempt that was cut", func(r *Reopener, o *Reopening) { r.Reopen(context.Background(), o); o.Cut() }, false, 1, 0},
		{"the attempt failed", func(_ *Reopener, o *Reopening) { o.Open() }, true, 1, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var first, again closer
			r, o := NewReopener(plainBody{bytes.NewReader([]byte(text)), &first}, func() (io.ReadCloser, error) {
				return plainBody{bytes.NewReader([]byte(text)), &again}, nil
			})
			body := o.Body()
			tc.use(r, o)
			r.Seal(tc.cut)
			assert.Equal(t, tc.first, first.closes.Load())
			assert.Equal(t, tc.again, again.closes.Load())
			require.NoError(t, body.Close())
			assert.EqualValues(t, 1, first.closes.Load())
		})
	}
}

// A body that the base forgets is closed when its end is met after the result.
func TestReopenerClosesAtTheEndAfterTheResult(t *testing.T) {
	var closes closer
	reads := 0
	r, o := NewReopener(plainBody{readerFunc(func([]byte) (int, error) {
		if reads++; reads > 1 {
			return 0, errors.New("read of a closed body")
		}
		return 0, io.EOF
	}), &closes}, nil)
	r.Seal(false)
	_, err := io.ReadAll(o.Body())
	require.NoError(t, err)
	assert.EqualValues(t, 1, closes.closes.Load())
	failsWith(t, o.Body(), io.EOF)
}
