package replay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
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

func reopen(t *testing.T, previous *Lease) *Lease {
	t.Helper()
	next, err := previous.Next(new(http.Request), time.Hour)
	require.NoError(t, err)
	return next
}

func TestGetBodySendsASharedReaderWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &rewound{Reader: bytes.NewReader([]byte(text)), pause: 100 * time.Millisecond}
		_, first := begin(shared, shared.get)
		old := make(chan error)
		go func() {
			_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, first.newest, make([]byte, 1))
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
		got, err := io.ReadAll(next.newest)
		require.NoError(t, err)
		assert.Equal(t, text, string(got))
	})
}

func TestGetBodyLetsThePreviousAttemptGoOnIfGetBodyFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, get := range map[string]func() (io.ReadCloser, error){
			"error":   func() (io.ReadCloser, error) { return nil, io.ErrNoProgress },
			"nothing": func() (io.ReadCloser, error) { return nil, nil },
		} {
			r, first := begin(plainBody{bytes.NewReader([]byte(text)), new(closer)}, get)
			_, err := first.Next(new(http.Request), time.Hour)
			if name == "error" {
				assert.Equal(t, io.ErrNoProgress, err)
			} else {
				assert.Equal(t, ErrNoBody, err)
			}
			r.Seal(false)
			got, err := io.ReadAll(first.newest)
			require.NoError(t, err)
			assert.Equal(t, text, string(got))
		}
	})
}

func TestGetBodyWaitsForAStalledReadNoLongerThan250ms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		stalled := plainBody{readerFunc(func([]byte) (int, error) { time.Sleep(time.Minute); return 0, io.EOF }), new(closer)}
		opened := 0
		_, first := beginIn(ctx, stalled, func() (io.ReadCloser, error) { opened++; return stalled, nil })
		go func() { _, _ = io.ReadAll(first.newest) }()
		synctest.Wait()
		start := time.Now()
		next := reopen(t, first)
		assert.Equal(t, 250*time.Millisecond, time.Since(start))

		go func() { _, _ = io.ReadAll(next.newest) }()
		synctest.Wait()
		time.AfterFunc(100*time.Millisecond, cancel)
		start = time.Now()
		_, err := next.Next(new(http.Request), time.Hour)
		assert.Equal(t, context.Canceled, err)
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
		assert.Equal(t, 1, opened, "GetBody is of no use any more")
		first.Cut()
		time.Sleep(time.Hour)
	})
}

// The end of an attempt frees its reads, paused reads included.
func TestGetBodySealEndsPausedReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, first := begin(plainBody{bytes.NewReader([]byte(text)), new(closer)}, func() (io.ReadCloser, error) {
			return plainBody{bytes.NewReader([]byte(text)), new(closer)}, nil
		})
		start := time.Now()
		next := reopen(t, first)
		assert.Zero(t, time.Since(start), "nobody reads")
		ended := make(chan error)
		go func() { _, err := first.newest.Read(make([]byte, 1)); ended <- err }()
		synctest.Wait()
		r.Seal(true)
		assert.Equal(t, ErrOver, <-ended)
		failsWith(t, next.newest, ErrOver)
	})
}

func TestGetBodyMarksErrorsOfTheBody(t *testing.T) {
	errDisk := errors.New("disk error")
	_, first := begin(plainBody{readerFunc(func([]byte) (int, error) { return 0, errDisk }), new(closer)}, nil)
	failsWith(t, first.newest, &BodyError{errDisk})
}

func TestGetBodyClosesOnceWhatTheBaseForgot(t *testing.T) {
	for _, tc := range []struct {
		name  string
		use   func(r *Body, first *Lease)
		cut   bool
		first int32 // how often the first body was closed after Seal
		again int32 // how often the other body was closed
	}{
		{"closed by the base", func(_ *Body, o *Lease) { o.newest.Close(); o.newest.Close() }, false, 1, 0},
		{"still to be read", func(*Body, *Lease) {}, false, 0, 0},
		{"read in part", func(_ *Body, o *Lease) { o.newest.Read(make([]byte, 1)) }, false, 0, 0},
		{"read to the end", func(_ *Body, o *Lease) { io.ReadAll(o.newest) }, false, 1, 0},
		{"superseded unread", func(_ *Body, o *Lease) { o.Open() }, false, 1, 0},
		{"superseded in use", func(_ *Body, o *Lease) { o.newest.Read(make([]byte, 1)); o.Open() }, false, 0, 0},
		{"of an attempt that was cut", func(r *Body, o *Lease) {
			o.Next(new(http.Request), 0)
			o.Cut()
		}, false, 1, 0},
		{"the attempt failed", func(_ *Body, o *Lease) { o.Open() }, true, 1, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var first, again closer
				r, o := begin(plainBody{bytes.NewReader([]byte(text)), &first}, func() (io.ReadCloser, error) {
					return plainBody{bytes.NewReader([]byte(text)), &again}, nil
				})
				body := o.newest
				tc.use(r, o)
				r.Seal(tc.cut)
				assert.Equal(t, tc.first, first.closes.Load())
				assert.Equal(t, tc.again, again.closes.Load())
				require.NoError(t, body.Close())
				assert.EqualValues(t, 1, first.closes.Load())
			})
		})
	}
}

// A body that the base forgets is closed when its end is met after the result.
func TestGetBodyClosesAtTheEndAfterTheResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // Close takes no time here
		var closes closer
		reads := 0
		r, o := begin(plainBody{readerFunc(func([]byte) (int, error) {
			if reads++; reads > 1 {
				return 0, errors.New("read of a closed body")
			}
			return 0, io.EOF
		}), &closes}, nil)
		r.Seal(false)
		_, err := io.ReadAll(o.newest)
		require.NoError(t, err)
		assert.EqualValues(t, 1, closes.closes.Load())
		failsWith(t, o.newest, io.EOF)
	})
}

// A server may wait for the rest of the request, and somebody for the server.
func TestGetBodyPausesNoLongerThan250ms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		get := func() (io.ReadCloser, error) { return plainBody{bytes.NewReader([]byte(text)), new(closer)}, nil }
		body, _ := get()
		_, attempt := begin(body, get)
		for range 3 {
			next := reopen(t, attempt)
			start := time.Now()
			failsWith(t, attempt.newest, ErrOver)
			assert.Equal(t, 250*time.Millisecond, time.Since(start))
			attempt = next
		}
	})
}

// A base closes what it reads when it gives up, and may wait for the Read.
func TestGetBodyEndsAPausedReadThatIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, attempt := beginShared()
		reopen(t, attempt)
		start, ended := time.Now(), make(chan error)
		go func() { _, err := attempt.newest.Read(make([]byte, 1)); ended <- err }()
		synctest.Wait()
		require.NoError(t, attempt.newest.Close())
		assert.Equal(t, ErrOver, <-ended)
		assert.Zero(t, time.Since(start))
	})
}

// The timer of a pause may fire when another pause has just begun in its place.
func TestGetBodyPauseOutlastsTheTimerOfAnEarlierPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		get := func() (io.ReadCloser, error) { return plainBody{bytes.NewReader([]byte(text)), new(closer)}, nil }
		body, _ := get()
		b, first := begin(body, get)
		next := reopen(t, first)
		b.mu.Lock()
		time.Sleep(pauseTime) // the timer has fired, and waits for mu
		assert.NoError(t, next.pause(time.Hour))
		b.mu.Unlock()
		start := time.Now()
		failsWith(t, next.newest, ErrOver)
		assert.Equal(t, pauseTime, time.Since(start))
	})
}

// A GetBody may wait for the previous body to be closed.
func TestGetBodyFreesAGetBodyThatWaitsForTheClose(t *testing.T) {
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
			_, _ = io.ReadAll(first.newest) // fails
			_ = first.newest.Close()
		}()
		start := time.Now()
		next := reopen(t, first)
		assert.Equal(t, 250*time.Millisecond, time.Since(start))
		got, err := io.ReadAll(next.newest)
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

func TestGetBodyEndsPausedReadsThoughTheirBodyIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		get := func() (io.ReadCloser, error) { panic("GetBody") }
		r, first := begin(plainBody{bytes.NewReader([]byte(text)), new(closer)}, get)
		assert.Panics(t, func() { _, _ = first.Next(new(http.Request), 0) })
		ended := make(chan error)
		go func() { _, err := first.newest.Read(make([]byte, 1)); ended <- err }()
		synctest.Wait()
		require.NoError(t, first.newest.Close())
		r.Seal(true)
		assert.Equal(t, ErrOver, <-ended)
	})
}

// A base may call GetBody late. It would rewind what the next attempt reads.
func TestGetBodyOpensNothingForAnAttemptThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &rewound{Reader: bytes.NewReader([]byte(text))}
		_, first := begin(shared, shared.get)
		next := reopen(t, first)
		late := make(chan error)
		go func() { _, err := first.Open(); late <- err }() // paused, and then over
		synctest.Wait()
		read(t, next.newest, 3)
		first.Cut()
		assert.Equal(t, ErrOver, <-late)
		assert.Equal(t, text[3:], readAll(t, next.newest))
	})
}

func TestGetBodyClosesWhatOpenedTooLate(t *testing.T) {
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
func TestGetBodyClosesASharedBodyWithItsLastReader(t *testing.T) {
	for _, how := range []string{"the base closes late", "the base forgets to close"} {
		t.Run(how, func(t *testing.T) {
			shared := &rewound{Reader: bytes.NewReader([]byte(text))}
			get := func() (io.ReadCloser, error) { return shared, nil }
			r, first := begin(shared, get)
			old := first.newest
			next := reopen(t, first)
			first.Cut()
			if how == "the base closes late" {
				require.NoError(t, old.Close())
			}
			r.Seal(false)
			assert.Zero(t, shared.closes.Load())
			require.NoError(t, next.newest.Close())
			assert.EqualValues(t, 1, shared.closes.Load())
		})
	}
}

func TestGetBodyTakesTheEmptyBodyForNone(t *testing.T) {
	_, first := begin(plainBody{bytes.NewReader([]byte(text)), new(closer)}, func() (io.ReadCloser, error) {
		return http.NoBody, nil
	})
	_, err := first.Next(new(http.Request), 0)
	assert.Equal(t, ErrNoBody, err)
}

// Each attempt has a Trailer of its own, which the body fills at its end.
func TestGetBodyFillsTheTrailerOfEachAttempt(t *testing.T) {
	b, _ := begin(textBody(), func() (io.ReadCloser, error) { return textBody(), nil })
	announceTrailer(b)
	l := b.First(new(http.Request))
	next := reopen(t, l)
	again, err := next.Open()
	require.NoError(t, err)
	readAll(t, again)
	assert.True(t, toldOfEnd(next))
	assert.False(t, toldOfEnd(l))
	readAll(t, next.newest)
}

// uncomparable is a body for which == panics.
type uncomparable struct {
	io.Reader
	closes []*closer
}

func (u uncomparable) Close() error { return u.closes[0].Close() }

func TestGetBodyClosesBodiesThatCannotBeCompared(t *testing.T) {
	var first, again closer
	_, o := begin(uncomparable{bytes.NewReader([]byte(text)), []*closer{&first}}, func() (io.ReadCloser, error) {
		return uncomparable{bytes.NewReader([]byte(text)), []*closer{&again}}, nil
	})
	body := o.newest
	next := reopen(t, o)
	o.Cut()
	require.NoError(t, body.Close())
	require.NoError(t, next.newest.Close())
	assert.EqualValues(t, 1, first.closes.Load())
	assert.EqualValues(t, 1, again.closes.Load())
}

// A GetBody that the base has called rewinds, like a Read, what the next attempt reads.
func TestGetBodyWaitsForAGetBodyUnderWay(t *testing.T) {
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

// An attempt may open the body again while it reads, as a Transport below does for its retry, or net/http for
// a resend. The Close of a shared body often does nothing, and its Read goes on.
func TestGetBodyOpensNoBodyThatIsRead(t *testing.T) {
	for name, tc := range map[string]struct {
		closes  bool
		watched int // by Transports above
	}{"open": {}, "closed": {closes: true}, "watched": {watched: 2}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shared := &stuckOnce{Reader: bytes.NewReader([]byte(text))}
				req := &http.Request{Body: shared, GetBody: func() (io.ReadCloser, error) {
					shared.mu.Lock()
					defer shared.mu.Unlock()
					_, err := shared.Seek(0, io.SeekStart)
					return shared, err
				}}
				for range tc.watched {
					Watch(req, new(holds))
				}
				_, attempt := begin(req.Body, req.GetBody)
				old := make(chan error)
				go func() {
					got, err := io.ReadAll(attempt.newest)
					assert.Equal(t, text[:5], string(got), "nothing from behind the rewind")
					old <- err
				}()
				time.Sleep(time.Millisecond)
				first := attempt.newest
				if tc.closes {
					require.NoError(t, first.Close())
				}
				_, err := attempt.Open()
				assert.Equal(t, ErrInUse, err)
				assert.Equal(t, ErrOver, <-old)
				require.NoError(t, first.Close())
				again, err := attempt.Open()
				require.NoError(t, err)
				assert.Equal(t, text, readAll(t, again))
			})
		})
	}
}

// A Read that is not waited for reads from behind the rewind. Neither its own attempt nor the next
// attempt may take the result for a whole body.
func TestGetBodyPassesAStuckRead(t *testing.T) {
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
				got, err := io.ReadAll(first.newest)
				assert.Equal(t, text[:5], string(got), "nothing from behind the rewind")
				old <- err
			}()
			time.Sleep(time.Millisecond)
			_, err := first.Next(new(http.Request), time.Hour)
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
func TestGetBodyForgetsTheBodiesOfPastAttempts(t *testing.T) {
	var bodies []weak.Pointer[largeBody]
	get := func() (io.ReadCloser, error) {
		b := new(largeBody)
		b.Reader = bytes.NewReader(b.content[:])
		bodies = append(bodies, weak.Make(b))
		return b, nil
	}
	send := func(o *Lease) {
		_, err := io.Copy(io.Discard, o.newest)
		require.NoError(t, err)
		require.NoError(t, o.newest.Close())
	}
	body, _ := get()
	r, o := begin(body, get)
	body = nil
	for i := range 400 {
		send(o)
		if i%10 == 0 {
			younger, err := o.Beside(new(http.Request))
			require.NoError(t, err)
			send(younger)
			younger.Cut()
		}
		next := reopen(t, o)
		o.Cut()
		o = next
		if i%50 == 49 {
			require.LessOrEqual(t, kept(bodies), 2)
			require.LessOrEqual(t, len(r.opened), 3)
			for _, o := range r.opened {
				require.LessOrEqual(t, len(o.readers), 1)
			}
		}
	}
	send(o)
	r.Seal(true)
}

// An attempt that is over may still hold its body: in a Read, or because its base has not closed
// it. Such a body is closed in the end.
func TestGetBodyClosesABodyThatAPastAttemptStillHolds(t *testing.T) {
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
				go o.newest.Read(make([]byte, 8))
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
	reader := o.newest
	require.NoError(t, reader.Close())
	body = nil
	assert.Zero(t, kept(bodies))
	runtime.KeepAlive(reader)
}

// beginShared begins an attempt whose body GetBody rewinds each time.
func beginShared() (*rewound, *Body, *Lease) {
	shared := &rewound{Reader: bytes.NewReader([]byte(text))}
	r, first := begin(shared, shared.get)
	return shared, r, first
}

func TestGetBodyOpensBesideAnAttemptThatHasClosedItsBodies(t *testing.T) {
	shared, _, elder := beginShared()
	assert.Equal(t, text, readAll(t, elder.newest))
	require.NoError(t, elder.newest.Close())
	younger := beside(t, elder)
	assert.Equal(t, text, readAll(t, younger.newest))
	failsWith(t, elder.newest, io.EOF)
	require.NoError(t, younger.newest.Close())
	assert.EqualValues(t, 2, shared.closes.Load(), "once for each time it was opened")
}

// GetBody would rewind what the elder attempt reads, is about to read, or closes.
func TestGetBodyOpensNothingBesideABodyInUse(t *testing.T) {
	for name, use := range map[string]func(*Lease){
		"unread":      func(*Lease) {},
		"read":        func(o *Lease) { io.ReadFull(o.newest, make([]byte, 3)) },
		"at its end":  func(o *Lease) { io.ReadAll(o.newest) },
		"opened anew": func(o *Lease) { o.newest.Close(); o.Open() },
		"one of two":  func(o *Lease) { first := o.newest; o.Open(); first.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			shared := &rewound{Reader: bytes.NewReader([]byte(text))}
			opens := 0
			_, elder := begin(shared, func() (io.ReadCloser, error) { opens++; return shared, nil })
			use(elder)
			opens = 0
			stood := shared.Len()
			_, err := elder.Beside(new(http.Request))
			assert.Equal(t, ErrInUse, err)
			assert.Zero(t, opens)
			assert.Len(t, readAll(t, elder.newest), stood)
		})
	}
}

func TestGetBodyOpensNothingBesideAnAttemptThatIsOver(t *testing.T) {
	for name, end := range map[string]func(*Body, *Lease){
		"cut":    func(_ *Body, o *Lease) { o.Cut() },
		"sealed": func(r *Body, _ *Lease) { r.Seal(false) },
	} {
		t.Run(name, func(t *testing.T) {
			_, r, elder := beginShared()
			elder.newest.Close()
			end(r, elder)
			_, err := elder.Beside(new(http.Request))
			assert.Equal(t, ErrOver, err)
		})
	}
}

// slowBody is in use for a second after each call.
type slowBody struct{ plainBody }

func (s slowBody) Read(p []byte) (int, error) { time.Sleep(time.Second); return s.plainBody.Read(p) }
func (s slowBody) Close() error               { time.Sleep(time.Second); return s.plainBody.Close() }

// A body may be closed while it is read, and a Close may take long.
func TestGetBodyOpensNothingBesideACallUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		get := func() (io.ReadCloser, error) {
			time.Sleep(time.Second)
			return plainBody{bytes.NewReader([]byte(text)), new(closer)}, nil
		}
		_, elder := begin(slowBody{plainBody{bytes.NewReader([]byte(text)), new(closer)}}, get)
		refused := func() {
			synctest.Wait()
			_, err := elder.Beside(new(http.Request))
			assert.Equal(t, ErrInUse, err)
		}
		go elder.newest.Read(make([]byte, 1))
		time.Sleep(time.Second / 2)
		go elder.newest.Close()
		refused() // both
		time.Sleep(time.Second * 3 / 4)
		refused() // Close
		time.Sleep(time.Second)
		opened := make(chan io.ReadCloser)
		go func() { body, _ := elder.Open(); opened <- body }()
		refused()
		(<-opened).Close()
		beside(t, elder)
	})
}

func TestGetBodyIsAsBeforeWhenGetBodyFailsBeside(t *testing.T) {
	var broken error = io.ErrNoProgress
	_, elder := begin(plainBody{bytes.NewReader([]byte(text)), new(closer)}, func() (io.ReadCloser, error) {
		return plainBody{bytes.NewReader([]byte(text)), new(closer)}, broken
	})
	elder.newest.Close()
	_, err := elder.Beside(new(http.Request))
	assert.Equal(t, broken, err)
	broken = nil
	body, err := elder.Open()
	require.NoError(t, err)
	assert.Equal(t, text, readAll(t, body))
}

// net/http may send the request of either again.
func TestGetBodyOpensForOneOfTwoAttemptsAtATime(t *testing.T) {
	_, _, elder := beginShared()
	elder.newest.Close()
	younger := beside(t, elder)
	head := read(t, younger.newest, 3)
	_, err := elder.Open()
	assert.Equal(t, ErrOver, err)
	assert.Equal(t, text, head+readAll(t, younger.newest))

	younger.newest.Close()
	body, err := elder.Open()
	require.NoError(t, err)
	head = read(t, body, 3)
	_, err = younger.Open()
	assert.Equal(t, ErrOver, err)
	younger.Cut()
	assert.Equal(t, text, head+readAll(t, body))
}

// A base may read a body that it has closed, which is another attempt's by then.
func TestGetBodyReadsNothingFromABodyThatWasClosed(t *testing.T) {
	_, _, elder := beginShared()
	old := elder.newest
	old.Close()
	younger := beside(t, elder)
	failsWith(t, old, ErrOver)
	assert.Equal(t, text, readAll(t, younger.newest))
}

func TestGetBodyCutsTheLoserAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // Close takes no time here
		for _, elderWins := range []bool{false, true} {
			var closes closer
			body := func() io.ReadCloser { return plainBody{bytes.NewReader([]byte(text)), &closes} }
			r, elder := begin(body(), func() (io.ReadCloser, error) { return body(), nil })
			elder.newest.Close()
			winner, loser := beside(t, elder), elder
			if elderWins {
				winner.newest.Close()
				loser = winner
				_, err := elder.Open()
				require.NoError(t, err)
				winner = elder
			}
			closed := closes.closes.Load()
			head := read(t, winner.newest, 3)
			r.Seal(false)
			loser.Cut()
			assert.Equal(t, text, head+readAll(t, winner.newest))
			winner.newest.Close()
			assert.Equal(t, closed+1, closes.closes.Load())
		}
	})
}

// A loser may be cut long after the winner's response was handed over.
func TestGetBodyClosesWhatALoserHasOpenWhenItIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closes closer
		r, elder := begin(plainBody{bytes.NewReader([]byte(text)), new(closer)}, func() (io.ReadCloser, error) {
			return plainBody{bytes.NewReader([]byte(text)), &closes}, nil
		})
		elder.newest.Close()
		loser := beside(t, elder)
		read(t, loser.newest, 3)
		r.Seal(false)
		assert.Zero(t, closes.closes.Load(), "it may finish")
		loser.Cut()
		synctest.Wait()
		assert.EqualValues(t, 1, closes.closes.Load())
		loser.newest.Close()
		assert.EqualValues(t, 1, closes.closes.Load())
	})
}

// The retry after both have failed pauses both attempts.
func TestGetBodyPausesBothOlderAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &rewound{Reader: bytes.NewReader([]byte(text)), pause: 100 * time.Millisecond}
		_, elder := begin(shared, shared.get)
		elder.newest.Close()
		younger := beside(t, elder)
		old := make(chan error)
		go func() {
			_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, younger.newest, make([]byte, 1))
			old <- err
		}()
		time.Sleep(50 * time.Millisecond)
		start := time.Now()
		next := reopen(t, elder)
		assert.Equal(t, 50*time.Millisecond, time.Since(start), "for the Read that was under way")
		time.Sleep(200 * time.Millisecond)
		assert.Equal(t, len(text), shared.Len(), "nobody reads on")
		elder.Cut()
		younger.Cut()
		assert.Equal(t, ErrOver, <-old)
		assert.Equal(t, text, readAll(t, next.newest))
	})
}

func TestGetBodyLetsBothAttemptsGoOnIfGetBodyFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken error
		_, elder := begin(plainBody{bytes.NewReader([]byte(text)), new(closer)}, func() (io.ReadCloser, error) {
			return plainBody{bytes.NewReader([]byte(text)), new(closer)}, broken
		})
		elder.newest.Close()
		younger := beside(t, elder)
		broken = errors.New("no more")
		_, err := elder.Next(new(http.Request), time.Hour)
		assert.Equal(t, broken, err)
		_, err = elder.Beside(new(http.Request))
		assert.Equal(t, ErrInUse, err)
		time.Sleep(time.Second)
		assert.Equal(t, text, readAll(t, younger.newest))
		younger.newest.Close()
		_, err = elder.Open()
		assert.Equal(t, broken, err, "it is not over")
	})
}

// The retry calls GetBody while nothing else seems to be under way.
func TestGetBodyOpensNothingBesideARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, elder := begin(plainBody{bytes.NewReader([]byte(text)), new(closer)}, func() (io.ReadCloser, error) {
			time.Sleep(100 * time.Millisecond)
			return plainBody{bytes.NewReader([]byte(text)), new(closer)}, nil
		})
		elder.newest.Close()
		go elder.Next(new(http.Request), time.Hour)
		synctest.Wait()
		_, err := elder.Beside(new(http.Request))
		assert.Equal(t, ErrInUse, err)
		time.Sleep(time.Second)
	})
}

// A base may never close what a previous attempt has opened.
func TestGetBodyOpensAgainAlthoughAPreviousBodyWasNotClosed(t *testing.T) {
	_, _, first := beginShared()
	read(t, first.newest, 3)
	next := reopen(t, first)
	first.Cut()
	body, err := next.Open()
	require.NoError(t, err)
	assert.Equal(t, text, readAll(t, body))
}

func TestGetBodyWaitsForTheReadOfAnAttemptOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stalled := plainBody{readerFunc(func([]byte) (int, error) { time.Sleep(time.Minute); return 0, io.EOF }), new(closer)}
		_, first := begin(stalled, func() (io.ReadCloser, error) {
			return plainBody{bytes.NewReader([]byte(text)), new(closer)}, nil
		})
		go io.ReadAll(first.newest)
		synctest.Wait()
		next := reopen(t, first)
		first.Cut()
		start := time.Now()
		reopen(t, next)
		assert.Zero(t, time.Since(start))
		next.Cut()
		time.Sleep(time.Hour)
	})
}

// The older attempt might read the body of the attempt that goes on.
func TestGetBodyLetsNoOlderAttemptGoOnIfGetBodyFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken error
		shared := &rewound{Reader: bytes.NewReader([]byte(text))}
		_, first := begin(shared, func() (io.ReadCloser, error) { shared.get(); return shared, broken })
		next := reopen(t, first)
		broken = errors.New("no more")
		_, err := next.Next(new(http.Request), time.Hour)
		require.Equal(t, broken, err)
		failsWith(t, first.newest, ErrOver)
		assert.Equal(t, text, readAll(t, next.newest))
	})
}

// How FuzzGetBodyBeside goes on.
const (
	endNone = iota
	endCutElder
	endCutYounger
	endSeal
	endRetry
	endingCount
)

// onePosition is the worst GetBody: its bodies share a position and a Close.
type onePosition struct {
	content *bytes.Reader
	users   atomic.Int32 // calls under way
	opens   atomic.Int32
	closes  atomic.Int32
	t       *testing.T
}

// use fails the test if two use the body at once.
func (o *onePosition) use() func() {
	assert.EqualValues(o.t, 1, o.users.Add(1), "calls at the same time")
	return func() { o.users.Add(-1) }
}

func (o *onePosition) get() (io.ReadCloser, error) {
	defer o.use()()
	o.opens.Add(1)
	_, err := o.content.Seek(0, io.SeekStart)
	return &onePositionBody{o: o}, err
}

type onePositionBody struct {
	o      *onePosition
	closed atomic.Bool
}

func (b *onePositionBody) Read(p []byte) (int, error) {
	defer b.o.use()()
	assert.False(b.o.t, b.closed.Load(), "a Read of a closed body")
	return b.o.content.Read(p)
}

func (b *onePositionBody) Close() error {
	assert.False(b.o.t, b.closed.Swap(true), "a second Close")
	b.o.closes.Add(1)
	return nil
}

// FuzzGetBodyBeside has two attempts open, read and close bodies that share one
// position, as net/http does when it sends a request again. One of them may be cut, and a
// retry may follow. What is read to its end is the whole body.
func FuzzGetBodyBeside(f *testing.F) {
	for ending := range byte(endingCount) {
		for seed := range uint64(20) {
			f.Add([]byte(text), ending, seed)
		}
		f.Add([]byte{}, ending, uint64(0))
		f.Add(make([]byte, 3000), ending, uint64(1))
	}
	f.Fuzz(func(t *testing.T, content []byte, ending byte, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 1))
		under := &onePosition{content: bytes.NewReader(content), t: t}
		body, _ := under.get()
		r, elder := begin(body, under.get)
		if random.IntN(4) > 0 {
			(&sender{content, random}).send(t, elder.newest)
		}
		younger, err := elder.Beside(new(http.Request))
		cutYounger := func() {}
		if err != nil {
			require.Equal(t, ErrInUse, err)
		} else {
			cutYounger = younger.Cut
		}
		var wg sync.WaitGroup
		for _, o := range []*Lease{elder, younger} {
			if o != nil {
				s := &sender{content, rand.New(rand.NewPCG(random.Uint64(), 2))}
				wg.Go(func() { s.run(t, o, o == younger || younger == nil) })
			}
		}
		for range random.IntN(200) {
			r.Repeatable() // passes time, and takes the lock
		}
		switch ending % endingCount {
		case endCutElder:
			elder.Cut()
		case endCutYounger:
			cutYounger()
		case endSeal:
			r.Seal(false)
		case endRetry:
			next, err := elder.Next(new(http.Request), time.Hour)
			require.NoError(t, err)
			elder.Cut()
			cutYounger()
			(&sender{content, random}).send(t, next.newest)
		}
		wg.Wait()
		r.Seal(true)
		require.Eventually(t, func() bool { return under.closes.Load() == under.opens.Load() }, time.Minute, time.Millisecond)
	})
}

// sender sends the bodies of one attempt.
type sender struct {
	content []byte
	random  *rand.Rand
}

// run sends the body that is open, if any, and opens further ones.
func (s *sender) run(t *testing.T, o *Lease, isOpen bool) {
	if isOpen {
		s.send(t, o.newest)
	}
	for range s.random.IntN(4) {
		body, err := o.Open()
		if err != nil {
			assert.Equal(t, ErrOver, err)
			continue
		}
		s.send(t, body)
	}
}

// send reads a body to its end, or a part of it, and closes it.
func (s *sender) send(t *testing.T, body io.ReadCloser) {
	defer body.Close()
	if s.random.IntN(3) == 0 {
		_, _ = io.ReadFull(body, make([]byte, s.random.IntN(len(s.content)+1)))
		return
	}
	got, err := drain(body, s.random)
	if err == io.EOF {
		assert.True(t, bytes.Equal(s.content, got), "an attempt ended well with %d wrong bytes", len(got))
		return
	}
	assert.Equal(t, ErrOver, err)
	assert.True(t, bytes.HasPrefix(s.content, got), "an attempt got wrong bytes")
}
