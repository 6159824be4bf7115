package replay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rewound is what some GetBody returns each time: one reader, rewound. The race
// detector sees two that use it at once.
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

func reopen(t *testing.T, previous *Reopening) *Reopening {
	t.Helper()
	next, err := as[*Reopening](previous.Next(t.Context(), time.Hour, nil))
	require.NoError(t, err)
	return next
}

func begin(body io.ReadCloser, getBody func() (io.ReadCloser, error)) (*Reopener, *Reopening) {
	r := NewReopener(body, getBody)
	first, _ := r.First(context.Background(), nil)
	return r, first.(*Reopening)
}

func TestReopenerSendsASharedReaderWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &rewound{Reader: bytes.NewReader([]byte(text)), pause: 100 * time.Millisecond}
		_, first := begin(shared, shared.get)
		old := make(chan error)
		go func() {
			_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, first.Body(), make([]byte, 1))
			old <- err
		}()
		time.Sleep(350 * time.Millisecond)
		start := time.Now()
		next := reopen(t, first)
		assert.Equal(t, 50*time.Millisecond, time.Since(start), "for the Read that was under way")
		time.Sleep(200 * time.Millisecond) // in which the previous attempt reads nothing
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
			r, first := begin(plainBody{bytes.NewReader([]byte(text)), new(closer)}, get)
			_, err := first.Next(t.Context(), time.Hour, nil)
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
		_, first := begin(stalled, func() (io.ReadCloser, error) { opened++; return stalled, nil })
		go func() { _, _ = io.ReadAll(first.Body()) }()
		synctest.Wait()
		start := time.Now()
		next := reopen(t, first)
		assert.Equal(t, 250*time.Millisecond, time.Since(start))

		go func() { _, _ = io.ReadAll(next.Body()) }()
		synctest.Wait()
		time.AfterFunc(100*time.Millisecond, cancel)
		start = time.Now()
		_, err := next.Next(ctx, time.Hour, nil)
		assert.Equal(t, context.Canceled, err)
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
		assert.Equal(t, 1, opened, "GetBody is of no use any more")
		first.Cut()
		time.Sleep(time.Hour)
	})
}

// The end of an attempt frees its reads, paused reads included.
func TestReopenerSealEndsPausedReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, first := begin(plainBody{bytes.NewReader([]byte(text)), new(closer)}, func() (io.ReadCloser, error) {
			return plainBody{bytes.NewReader([]byte(text)), new(closer)}, nil
		})
		start := time.Now()
		next := reopen(t, first)
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
	_, first := begin(plainBody{readerFunc(func([]byte) (int, error) { return 0, errDisk }), new(closer)}, nil)
	failsWith(t, first.Body(), &BodyError{errDisk})
}

func TestReopenerClosesOnceWhatTheBaseForgot(t *testing.T) {
	for _, tc := range []struct {
		name  string
		use   func(r *Reopener, first *Reopening)
		cut   bool
		first int32 // how often the first body was closed after Seal
		again int32 // how often the other body was closed
	}{
		{"closed by the base", func(_ *Reopener, o *Reopening) { o.Body().Close(); o.Body().Close() }, false, 1, 0},
		{"still to be read", func(*Reopener, *Reopening) {}, false, 0, 0},
		{"read in part", func(_ *Reopener, o *Reopening) { o.Body().Read(make([]byte, 1)) }, false, 0, 0},
		{"read to the end", func(_ *Reopener, o *Reopening) { io.ReadAll(o.Body()) }, false, 1, 0},
		{"superseded unread", func(_ *Reopener, o *Reopening) { o.Open() }, false, 1, 0},
		{"superseded in use", func(_ *Reopener, o *Reopening) { o.Body().Read(make([]byte, 1)); o.Open() }, false, 0, 0},
		{"of an attempt that was cut", func(r *Reopener, o *Reopening) {
			o.Next(context.Background(), 0, nil)
			o.Cut()
		}, false, 1, 0},
		{"the attempt failed", func(_ *Reopener, o *Reopening) { o.Open() }, true, 1, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var first, again closer
			r, o := begin(plainBody{bytes.NewReader([]byte(text)), &first}, func() (io.ReadCloser, error) {
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
	r, o := begin(plainBody{readerFunc(func([]byte) (int, error) {
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

// A server may wait for the rest of the request, and somebody for the server.
func TestReopenerPausesNoLongerThan250ms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		get := func() (io.ReadCloser, error) { return plainBody{bytes.NewReader([]byte(text)), new(closer)}, nil }
		body, _ := get()
		_, first := begin(body, get)
		reopen(t, first)
		start := time.Now()
		failsWith(t, first.Body(), ErrOver)
		assert.Equal(t, 250*time.Millisecond, time.Since(start))
	})
}

// A GetBody may wait for the previous body to be closed.
func TestReopenerFreesAGetBodyThatWaitsForTheClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := make(chan struct{}, 1)
		get := func() (io.ReadCloser, error) {
			one <- struct{}{}
			return leased{bytes.NewReader([]byte(text)), one}, nil
		}
		body, _ := get()
		_, first := begin(body, get)
		go func() {
			time.Sleep(time.Millisecond)
			_, _ = io.ReadAll(first.Body()) // fails
			_ = first.Body().Close()
		}()
		start := time.Now()
		next := reopen(t, first)
		assert.Equal(t, 250*time.Millisecond, time.Since(start))
		got, err := io.ReadAll(next.Body())
		require.NoError(t, err)
		assert.Equal(t, text, string(got))
	})
}

// leased gives its place back when it is closed.
type leased struct {
	io.Reader
	place chan struct{}
}

func (l leased) Close() error { <-l.place; return nil }

func TestReopenerEndsPausedReadsThoughTheirBodyIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		get := func() (io.ReadCloser, error) { panic("GetBody") }
		r, first := begin(plainBody{bytes.NewReader([]byte(text)), new(closer)}, get)
		assert.Panics(t, func() { _, _ = first.Next(t.Context(), 0, nil) })
		ended := make(chan error)
		go func() { _, err := first.Body().Read(make([]byte, 1)); ended <- err }()
		synctest.Wait()
		require.NoError(t, first.Body().Close())
		r.Seal(true)
		assert.Equal(t, ErrOver, <-ended)
	})
}

// A base may call GetBody late. It would rewind what the next attempt reads.
func TestReopenerOpensNothingForAnAttemptThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &rewound{Reader: bytes.NewReader([]byte(text))}
		_, first := begin(shared, shared.get)
		next := reopen(t, first)
		late := make(chan error)
		go func() { _, err := first.Open(); late <- err }() // paused, and then over
		synctest.Wait()
		read(t, next.Body(), 3)
		first.Cut()
		assert.Equal(t, ErrOver, <-late)
		assert.Equal(t, text[3:], readAll(t, next.Body()))
	})
}

func TestReopenerClosesWhatOpenedTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closes closer
		r, first := begin(plainBody{bytes.NewReader([]byte(text)), new(closer)}, func() (io.ReadCloser, error) {
			time.Sleep(time.Second)
			return plainBody{bytes.NewReader([]byte(text)), &closes}, nil
		})
		time.AfterFunc(time.Millisecond, func() { r.Seal(true) })
		_, err := first.Open()
		assert.Equal(t, ErrOver, err)
		synctest.Wait()
		assert.EqualValues(t, 1, closes.closes.Load())
	})
}

// GetBody may return the very same body again. An attempt that is over must not close it while
// another attempt reads it.
func TestReopenerClosesASharedBodyWithItsLastReader(t *testing.T) {
	for _, how := range []string{"the base closes late", "the base forgets to close"} {
		t.Run(how, func(t *testing.T) {
			shared := &rewound{Reader: bytes.NewReader([]byte(text))}
			get := func() (io.ReadCloser, error) { return shared, nil }
			r, first := begin(shared, get)
			old := first.Body()
			next := reopen(t, first)
			first.Cut()
			if how == "the base closes late" {
				require.NoError(t, old.Close())
			}
			r.Seal(false)
			assert.Zero(t, shared.closes.Load())
			require.NoError(t, next.Body().Close())
			assert.EqualValues(t, 1, shared.closes.Load())
		})
	}
}

func TestReopenerTakesTheEmptyBodyForNone(t *testing.T) {
	_, first := begin(plainBody{bytes.NewReader([]byte(text)), new(closer)}, func() (io.ReadCloser, error) {
		return http.NoBody, nil
	})
	_, err := first.Next(t.Context(), 0, nil)
	assert.Equal(t, ErrNoBody, err)
}

func TestReopenerTellsOfTheEndOnce(t *testing.T) {
	ends := 0
	get := func() (io.ReadCloser, error) { return plainBody{bytes.NewReader([]byte(text)), new(closer)}, nil }
	body, _ := get()
	o, err := as[*Reopening](NewReopener(body, get).First(t.Context(), func() { ends++ }))
	require.NoError(t, err)
	again, err := o.Open()
	require.NoError(t, err)
	readAll(t, again)
	readAll(t, o.Body())
	assert.Equal(t, 1, ends)
}

// uncomparable is a body for which == panics.
type uncomparable struct {
	io.Reader
	closes []*closer
}

func (u uncomparable) Close() error { return u.closes[0].Close() }

func TestReopenerClosesBodiesThatCannotBeCompared(t *testing.T) {
	var first, again closer
	_, o := begin(uncomparable{bytes.NewReader([]byte(text)), []*closer{&first}}, func() (io.ReadCloser, error) {
		return uncomparable{bytes.NewReader([]byte(text)), []*closer{&again}}, nil
	})
	body := o.Body()
	next := reopen(t, o)
	o.Cut()
	require.NoError(t, body.Close())
	require.NoError(t, next.Body().Close())
	assert.EqualValues(t, 1, first.closes.Load())
	assert.EqualValues(t, 1, again.closes.Load())
}

// A GetBody that the base has called rewinds, like a Read, what the next attempt reads.
func TestReopenerWaitsForAGetBodyUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		get := func() (io.ReadCloser, error) {
			time.Sleep(100 * time.Millisecond)
			return plainBody{bytes.NewReader([]byte(text)), new(closer)}, nil
		}
		_, first := begin(plainBody{bytes.NewReader([]byte(text)), new(closer)}, get)
		go func() { _, _ = first.Open() }()
		synctest.Wait()
		start := time.Now()
		reopen(t, first)
		assert.Equal(t, 200*time.Millisecond, time.Since(start), "one after the other")
		first.Cut()
	})
}

// stuckOnce is a shared body whose second Read takes longer than anybody waits.
type stuckOnce struct {
	*bytes.Reader
	mu    sync.Mutex
	reads int
	closer
}

func (s *stuckOnce) Read(p []byte) (int, error) {
	if s.reads++; s.reads == 2 {
		time.Sleep(400 * time.Millisecond)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Reader.Read(p[:min(len(p), 5)])
}

// A Read that is not waited for reads from behind the rewind. Neither its own attempt nor the next
// attempt may take the result for a whole body.
func TestReopenerPassesAStuckRead(t *testing.T) {
	for _, wrapped := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			shared := &stuckOnce{Reader: bytes.NewReader([]byte(text))}
			r, first := begin(shared, func() (io.ReadCloser, error) {
				shared.mu.Lock()
				defer shared.mu.Unlock()
				_, err := shared.Seek(0, io.SeekStart)
				if wrapped {
					return plainBody{shared, new(closer)}, err
				}
				return shared, err
			})
			r.length = int64(len(text))
			old := make(chan error)
			go func() {
				_, err := io.ReadAll(first.Body())
				old <- err
			}()
			time.Sleep(time.Millisecond)
			_, err := first.Next(t.Context(), time.Hour, nil)
			if wrapped {
				assert.NoError(t, err, "nothing shows that the body is shared")
				first.Cut()
			} else {
				assert.Equal(t, ErrInUse, err)
			}
			assert.Equal(t, ErrOver, <-old)
		})
	}
}

// largeBody is a body whose memory is watched.
type largeBody struct {
	*bytes.Reader
	content [1 << 20]byte
}

func (*largeBody) Close() error { return nil }

// kept returns how many of the bodies are still in memory.
func kept(bodies []weak.Pointer[largeBody]) (n int) {
	runtime.GC()
	for _, body := range bodies {
		if body.Value() != nil {
			n++
		}
	}
	return n
}

// Hundreds of attempts, and pairs of attempts, keep the bodies of the last two.
func TestReopenerForgetsTheBodiesOfPastAttempts(t *testing.T) {
	var bodies []weak.Pointer[largeBody]
	get := func() (io.ReadCloser, error) {
		b := new(largeBody)
		b.Reader = bytes.NewReader(b.content[:])
		bodies = append(bodies, weak.Make(b))
		return b, nil
	}
	send := func(o *Reopening) {
		_, err := io.Copy(io.Discard, o.Body())
		require.NoError(t, err)
		require.NoError(t, o.Body().Close())
	}
	body, _ := get()
	r, o := begin(body, get)
	body = nil
	for i := range 400 {
		send(o)
		if i%10 == 0 {
			younger, err := as[*Reopening](o.Beside(t.Context(), nil))
			require.NoError(t, err)
			send(younger)
			younger.Cut()
		}
		next := reopen(t, o)
		o.Cut()
		o = next
		if i%50 == 49 {
			require.LessOrEqual(t, kept(bodies), 2)
			require.LessOrEqual(t, len(r.attempts), 3)
		}
	}
	send(o)
	r.Seal(true)
}

// An attempt that is over may still hold its body: in a Read, or because its base has not closed
// it. Such a body is closed in the end.
func TestReopenerClosesABodyThatAPastAttemptStillHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closers []*closer
		stall := make(chan struct{})
		get := func() (io.ReadCloser, error) {
			c := new(closer)
			closers = append(closers, c)
			return plainBody{readerFunc(func([]byte) (int, error) { <-stall; return 0, io.EOF }), c}, nil
		}
		body, _ := get()
		r, o := begin(body, get)
		for i := range 10 {
			if i%2 == 0 {
				go o.Body().Read(make([]byte, 8))
				synctest.Wait()
			}
			next := reopen(t, o)
			o.Cut()
			o = next
		}
		close(stall)
		synctest.Wait()
		r.Seal(true)
		synctest.Wait()
		require.Len(t, closers, 11)
		for _, c := range closers {
			assert.EqualValues(t, 1, c.closes.Load())
		}
	})
}

// A stopped timer, or a base, may keep an attempt's request for longer than the attempt.
func TestReaderThatIsClosedLetsGoOfTheBody(t *testing.T) {
	body := &largeBody{Reader: bytes.NewReader(nil)}
	bodies := []weak.Pointer[largeBody]{weak.Make(body)}
	_, o := begin(body, nil)
	reader := o.Body()
	require.NoError(t, reader.Close())
	body = nil
	assert.Zero(t, kept(bodies))
	runtime.KeepAlive(reader)
}
