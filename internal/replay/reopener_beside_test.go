package replay

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// beginShared begins an attempt whose body GetBody rewinds each time.
func beginShared() (*rewound, *Reopener, *Reopening) {
	shared := &rewound{Reader: bytes.NewReader([]byte(text))}
	r, first := begin(shared, shared.get)
	return shared, r, first
}

func reopenBeside(t *testing.T, elder *Reopening) *Reopening {
	t.Helper()
	o, err := as[*Reopening](elder.Beside(t.Context(), nil))
	require.NoError(t, err)
	return o
}

func TestReopenerOpensBesideAnAttemptThatHasClosedItsBodies(t *testing.T) {
	shared, _, elder := beginShared()
	assert.Equal(t, text, readAll(t, elder.Body()))
	require.NoError(t, elder.Body().Close())
	ends := 0
	younger, err := as[*Reopening](elder.Beside(t.Context(), func() { ends++ }))
	require.NoError(t, err)
	assert.Equal(t, text, readAll(t, younger.Body()))
	assert.Equal(t, 1, ends)
	failsWith(t, elder.Body(), io.EOF)
	require.NoError(t, younger.Body().Close())
	assert.EqualValues(t, 2, shared.closes.Load(), "once for each time it was opened")
}

// GetBody would rewind what the elder attempt reads, is about to read, or closes.
func TestReopenerOpensNothingBesideABodyInUse(t *testing.T) {
	for name, use := range map[string]func(*Reopening){
		"unread":      func(*Reopening) {},
		"read":        func(o *Reopening) { io.ReadFull(o.Body(), make([]byte, 3)) },
		"at its end":  func(o *Reopening) { io.ReadAll(o.Body()) },
		"opened anew": func(o *Reopening) { o.Body().Close(); o.Open() },
		"one of two":  func(o *Reopening) { first := o.Body(); o.Open(); first.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			shared := &rewound{Reader: bytes.NewReader([]byte(text))}
			opens := 0
			_, elder := begin(shared, func() (io.ReadCloser, error) { opens++; return shared, nil })
			use(elder)
			opens = 0
			stood := shared.Len()
			_, err := elder.Beside(t.Context(), nil)
			assert.Equal(t, ErrInUse, err)
			assert.Zero(t, opens)
			assert.Len(t, readAll(t, elder.Body()), stood)
		})
	}
}

func TestReopenerOpensNothingBesideAnAttemptThatIsOver(t *testing.T) {
	for name, end := range map[string]func(*Reopener, *Reopening){
		"cut":    func(_ *Reopener, o *Reopening) { o.Cut() },
		"sealed": func(r *Reopener, _ *Reopening) { r.Seal(false) },
	} {
		t.Run(name, func(t *testing.T) {
			_, r, elder := beginShared()
			elder.Body().Close()
			end(r, elder)
			_, err := elder.Beside(t.Context(), nil)
			assert.Equal(t, ErrOver, err)
		})
	}
}

// slowBody is in use for a second after each call.
type slowBody struct{ plainBody }

func (s slowBody) Read(p []byte) (int, error) { time.Sleep(time.Second); return s.plainBody.Read(p) }
func (s slowBody) Close() error               { time.Sleep(time.Second); return s.plainBody.Close() }

// A body may be closed while it is read, and a Close may take long.
func TestReopenerOpensNothingBesideACallUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		get := func() (io.ReadCloser, error) {
			time.Sleep(time.Second)
			return plainBody{bytes.NewReader([]byte(text)), new(closer)}, nil
		}
		_, elder := begin(slowBody{plainBody{bytes.NewReader([]byte(text)), new(closer)}}, get)
		refused := func() {
			synctest.Wait()
			_, err := elder.Beside(t.Context(), nil)
			assert.Equal(t, ErrInUse, err)
		}
		go elder.Body().Read(make([]byte, 1))
		time.Sleep(time.Second / 2)
		go elder.Body().Close()
		refused() // both
		time.Sleep(time.Second * 3 / 4)
		refused() // Close
		time.Sleep(time.Second)
		opened := make(chan io.ReadCloser)
		go func() { body, _ := elder.Open(); opened <- body }()
		refused()
		(<-opened).Close()
		reopenBeside(t, elder)
	})
}

func TestReopenerIsAsBeforeWhenGetBodyFailsBeside(t *testing.T) {
	var broken error = io.ErrNoProgress
	_, elder := begin(plainBody{bytes.NewReader([]byte(text)), new(closer)}, func() (io.ReadCloser, error) {
		return plainBody{bytes.NewReader([]byte(text)), new(closer)}, broken
	})
	elder.Body().Close()
	_, err := elder.Beside(t.Context(), nil)
	assert.Equal(t, broken, err)
	broken = nil
	body, err := elder.Open()
	require.NoError(t, err)
	assert.Equal(t, text, readAll(t, body))
}

// net/http may send the request of either again.
func TestReopenerOpensForOneOfTwoAttemptsAtATime(t *testing.T) {
	_, _, elder := beginShared()
	elder.Body().Close()
	younger := reopenBeside(t, elder)
	head := read(t, younger.Body(), 3)
	_, err := elder.Open()
	assert.Equal(t, ErrOver, err)
	assert.Equal(t, text, head+readAll(t, younger.Body()))

	younger.Body().Close()
	body, err := elder.Open()
	require.NoError(t, err)
	head = read(t, body, 3)
	_, err = younger.Open()
	assert.Equal(t, ErrOver, err)
	younger.Cut()
	assert.Equal(t, text, head+readAll(t, body))
}

// A base may read a body that it has closed, which is another attempt's by then.
func TestReopenerReadsNothingFromABodyThatWasClosed(t *testing.T) {
	_, _, elder := beginShared()
	old := elder.Body()
	old.Close()
	younger := reopenBeside(t, elder)
	failsWith(t, old, ErrOver)
	assert.Equal(t, text, readAll(t, younger.Body()))
}

func TestReopenerCutsTheLoserAlone(t *testing.T) {
	for _, elderWins := range []bool{false, true} {
		var closes closer
		body := func() io.ReadCloser { return plainBody{bytes.NewReader([]byte(text)), &closes} }
		r, elder := begin(body(), func() (io.ReadCloser, error) { return body(), nil })
		elder.Body().Close()
		winner, loser := reopenBeside(t, elder), elder
		if elderWins {
			winner.Body().Close()
			loser = winner
			_, err := elder.Open()
			require.NoError(t, err)
			winner = elder
		}
		closed := closes.closes.Load()
		head := read(t, winner.Body(), 3)
		r.Seal(false)
		loser.Cut()
		assert.Equal(t, text, head+readAll(t, winner.Body()))
		winner.Body().Close()
		assert.Equal(t, closed+1, closes.closes.Load())
	}
}

// A loser may be cut long after the winner's response was handed over.
func TestReopenerClosesWhatALoserHasOpenWhenItIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closes closer
		r, elder := begin(plainBody{bytes.NewReader([]byte(text)), new(closer)}, func() (io.ReadCloser, error) {
			return plainBody{bytes.NewReader([]byte(text)), &closes}, nil
		})
		elder.Body().Close()
		loser := reopenBeside(t, elder)
		read(t, loser.Body(), 3)
		r.Seal(false)
		assert.Zero(t, closes.closes.Load(), "it may finish")
		loser.Cut()
		synctest.Wait()
		assert.EqualValues(t, 1, closes.closes.Load())
		loser.Body().Close()
		assert.EqualValues(t, 1, closes.closes.Load())
	})
}

// The retry after both have failed pauses both attempts.
func TestReopenerPausesBothOlderAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &rewound{Reader: bytes.NewReader([]byte(text)), pause: 100 * time.Millisecond}
		_, elder := begin(shared, shared.get)
		elder.Body().Close()
		younger := reopenBeside(t, elder)
		old := make(chan error)
		go func() {
			_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, younger.Body(), make([]byte, 1))
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
		assert.Equal(t, text, readAll(t, next.Body()))
	})
}

func TestReopenerLetsBothAttemptsGoOnIfGetBodyFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken error
		_, elder := begin(plainBody{bytes.NewReader([]byte(text)), new(closer)}, func() (io.ReadCloser, error) {
			return plainBody{bytes.NewReader([]byte(text)), new(closer)}, broken
		})
		elder.Body().Close()
		younger := reopenBeside(t, elder)
		broken = errors.New("no more")
		_, err := elder.Next(t.Context(), time.Hour, nil)
		assert.Equal(t, broken, err)
		_, err = elder.Beside(t.Context(), nil)
		assert.Equal(t, ErrInUse, err)
		time.Sleep(time.Second)
		assert.Equal(t, text, readAll(t, younger.Body()))
		younger.Body().Close()
		_, err = elder.Open()
		assert.Equal(t, broken, err, "it is not over")
	})
}

// The retry calls GetBody while nothing else seems to be under way.
func TestReopenerOpensNothingBesideARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, elder := begin(plainBody{bytes.NewReader([]byte(text)), new(closer)}, func() (io.ReadCloser, error) {
			time.Sleep(100 * time.Millisecond)
			return plainBody{bytes.NewReader([]byte(text)), new(closer)}, nil
		})
		elder.Body().Close()
		go elder.Next(t.Context(), time.Hour, nil)
		synctest.Wait()
		_, err := elder.Beside(t.Context(), nil)
		assert.Equal(t, ErrInUse, err)
		time.Sleep(time.Second)
	})
}

// A base may never close what a previous attempt has opened.
func TestReopenerOpensAgainAlthoughAPreviousBodyWasNotClosed(t *testing.T) {
	_, _, first := beginShared()
	read(t, first.Body(), 3)
	next := reopen(t, first)
	first.Cut()
	body, err := next.Open()
	require.NoError(t, err)
	assert.Equal(t, text, readAll(t, body))
}

func TestReopenerWaitsForTheReadOfAnAttemptOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stalled := plainBody{readerFunc(func([]byte) (int, error) { time.Sleep(time.Minute); return 0, io.EOF }), new(closer)}
		_, first := begin(stalled, func() (io.ReadCloser, error) {
			return plainBody{bytes.NewReader([]byte(text)), new(closer)}, nil
		})
		go io.ReadAll(first.Body())
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
func TestReopenerLetsNoOlderAttemptGoOnIfGetBodyFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken error
		shared := &rewound{Reader: bytes.NewReader([]byte(text))}
		_, first := begin(shared, func() (io.ReadCloser, error) { shared.get(); return shared, broken })
		next := reopen(t, first)
		broken = errors.New("no more")
		_, err := next.Next(t.Context(), time.Hour, nil)
		require.Equal(t, broken, err)
		failsWith(t, first.Body(), ErrOver)
		assert.Equal(t, text, readAll(t, next.Body()))
	})
}

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

// FuzzReopenerBeside has two attempts open, read and close bodies that share one
// position, as net/http does when it sends a request again. One of them may be cut, and a
// retry may follow. What is read to its end is the whole body.
func FuzzReopenerBeside(f *testing.F) {
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
			(&sender{content, random}).send(t, elder.Body())
		}
		younger, err := as[*Reopening](elder.Beside(t.Context(), nil))
		cutYounger := func() {}
		if err != nil {
			require.Equal(t, ErrInUse, err)
		} else {
			cutYounger = younger.Cut
		}
		var wg sync.WaitGroup
		for _, o := range []*Reopening{elder, younger} {
			if o != nil {
				s := &sender{content, rand.New(rand.NewPCG(random.Uint64(), 2))}
				wg.Go(func() { s.run(t, o, o == younger || younger == nil) })
			}
		}
		for range random.IntN(200) {
			r.inUseLocked() // passes time, and takes the lock
		}
		switch ending % endingCount {
		case endCutElder:
			elder.Cut()
		case endCutYounger:
			cutYounger()
		case endSeal:
			r.Seal(false)
		case endRetry:
			next, err := as[*Reopening](elder.Next(t.Context(), time.Hour, nil))
			require.NoError(t, err)
			elder.Cut()
			cutYounger()
			(&sender{content, random}).send(t, next.Body())
		}
		wg.Wait()
		r.Seal(true)
		require.Eventually(t, func() bool { return under.closes.Load() == under.opens.Load() }, time.Minute, time.Millisecond)
	})
}

// inUseLocked reports whether an attempt has a body open.
func (r *Reopener) inUseLocked() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.attempts) > 0 && r.attempts[0].inUse()
}

// sender sends the bodies of one attempt.
type sender struct {
	content []byte
	random  *rand.Rand
}

// run sends the body that is open, if any, and opens further ones.
func (s *sender) run(t *testing.T, o *Reopening, isOpen bool) {
	if isOpen {
		s.send(t, o.Body())
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
