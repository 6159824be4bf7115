package replay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func beside(t *testing.T, elder *Lease) *Lease {
	t.Helper()
	l, err := as[*Lease](elder.Beside(t.Context(), nil))
	require.NoError(t, err)
	return l
}

func TestAttemptsSideBySideReadTheWholeBody(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			s := newSource(kind.make([]byte(text), new(closer)), int64(len(text)))
			elder := lease(t, s, nil)
			a := open(t, elder)
			gotA := read(t, a, 5)
			ends := 0
			younger, err := as[*Lease](elder.Beside(t.Context(), func() { ends++ }))
			require.NoError(t, err)
			b := open(t, younger)
			gotB := read(t, b, 9)
			gotA += read(t, a, 6)
			gotB += readAll(t, b)
			assert.Equal(t, text, gotB)
			assert.Equal(t, text, gotA+readAll(t, a))
			assert.Equal(t, 1, ends)
			assert.Equal(t, kind.name == "section", s.ReadableBeside())
			assert.Equal(t, text, readAll(t, open(t, lease(t, s, younger))), "a retry may follow")
		})
	}
}

// Either attempt may read past the limit. The elder attempt goes on and has every byte.
func TestYoungerAttemptGivesWayWhenTheRecordIsOutgrown(t *testing.T) {
	for _, who := range []string{"elder", "younger"} {
		t.Run(who, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				content, body := chanBody()
				s := New(body, 8)
				elder := lease(t, s, nil)
				younger := beside(t, elder)
				a, b := open(t, elder), open(t, younger)
				first := a
				if who == "younger" {
					first = b
				}
				read3 := func(r io.Reader) {
					go func() { content <- []byte(text[:3]) }()
					assert.Equal(t, text[:3], read(t, r, 3))
				}
				read3(b)
				assert.Equal(t, text[:3], read(t, a, 3))
				result := make(chan string)
				go func() {
					p := make([]byte, 100)
					n, _ := first.Read(p)
					result <- string(p[:n])
				}()
				content <- []byte(text[3:12])
				synctest.Wait()
				got := text[:3] + <-result
				failsWith(t, b, ErrOver)
				_, err := younger.Open()
				assert.Equal(t, ErrOver, err)
				go func() { content <- []byte(text[12:]); close(content) }()
				if who == "younger" {
					got = text[:3]
				}
				assert.Equal(t, text, got+readAll(t, a))
				assert.False(t, s.Repeatable())
				assert.Nil(t, s.origin.(*stream).record)
			})
		})
	}
}

// An attempt that needs no more of the body is not a reason to end the other.
func TestYoungerAttemptIsOnItsOwnWhenTheElderNeedsNoMore(t *testing.T) {
	for name, end := range map[string]func(*Lease, *Reader){
		"cut":    func(l *Lease, _ *Reader) { l.Cut() },
		"closed": func(_ *Lease, r *Reader) { r.Close() },
		"closed, and has forgotten one": func(l *Lease, r *Reader) {
			l.Open()
			newest, _ := l.Open()
			newest.Close()
			r.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := streamOf(text, 8)
			elder := lease(t, s, nil)
			a := open(t, elder)
			r := open(t, beside(t, elder))
			read(t, a, 3)
			got := read(t, r, 5)
			end(elder, a)
			assert.Equal(t, text, got+readAll(t, r))
			assert.False(t, s.Repeatable())
		})
	}
}

// The elder attempt may not have begun to read, nor even have opened a reader.
func TestElderAttemptThatHasReadNothingIsNotPassed(t *testing.T) {
	for _, opened := range []bool{false, true} {
		s, _ := streamOf(text, 8)
		elder := lease(t, s, nil)
		var a *Reader
		if opened {
			a = open(t, elder)
		}
		_, err := io.ReadAll(open(t, beside(t, elder)))
		assert.Equal(t, ErrOver, err)
		if !opened {
			a = open(t, elder)
		}
		assert.Equal(t, text, readAll(t, a))
	}
}

func TestElderAttemptThatWasCutBeforeItOpenedABodyDoesNotCount(t *testing.T) {
	s, _ := streamOf(text, 8)
	elder := lease(t, s, nil)
	r := open(t, beside(t, elder))
	elder.Cut()
	assert.Equal(t, text, readAll(t, r))
}

func TestYoungestOfThreeGivesWayToTheEldest(t *testing.T) {
	s, _ := streamOf(text, 8)
	elder := lease(t, s, nil)
	middle := beside(t, elder)
	a, b, c := open(t, elder), open(t, middle), open(t, beside(t, middle))
	b.Close()
	_, err := io.ReadAll(c)
	assert.Equal(t, ErrOver, err)
	assert.Equal(t, text, readAll(t, a))
}

func TestRetryIsPromisedTheBeginningAgainstBothOlderAttempts(t *testing.T) {
	for _, after := range []string{"elder", "younger"} {
		for _, reads := range []string{"elder", "younger"} {
			t.Run(after+", "+reads+" reads on", func(t *testing.T) {
				s, _ := streamOf(text, 8)
				elder := lease(t, s, nil)
				younger := beside(t, elder)
				older := map[string]*Lease{"elder": elder, "younger": younger}
				readers := map[string]*Reader{"elder": open(t, elder), "younger": open(t, younger)}
				next := lease2(t, older[after])
				got, err := io.ReadAll(readers[reads])
				assert.Equal(t, ErrOver, err)
				assert.LessOrEqual(t, len(got), len(text))
				r := open(t, next)
				hedge := open(t, beside(t, next))
				assert.Equal(t, text[:5], read(t, hedge, 5))
				assert.Equal(t, text, readAll(t, r))
			})
		}
	}
}

// A Read may bring nothing. Then it uses nothing up, although an older attempt has made
// the record longer than its limit.
func TestRetryThatReadsNothingLosesNothing(t *testing.T) {
	content, body := chanBody()
	s := New(body, 8)
	elder := lease(t, s, nil)
	younger := beside(t, elder)
	a, b := open(t, elder), open(t, younger)
	r := open(t, lease2(t, younger))
	go func() { content <- []byte(text[:12]) }()
	_, _ = b.Read(make([]byte, 100))
	assert.Equal(t, text[:12], read(t, a, 12))
	assert.Equal(t, text[:12], read(t, r, 12))
	go func() { content <- nil }()
	_, err := r.Read(make([]byte, 100))
	require.NoError(t, err)
	go func() { content <- []byte(text[12:]); close(content) }()
	_, _ = a.Read(make([]byte, 100))
	assert.Equal(t, text[12:], readAll(t, r))
}

func TestAttemptBesideAnOlderOneGivesWayToTheRetry(t *testing.T) {
	s, _ := streamOf(text, 8)
	elder := lease(t, s, nil)
	a := open(t, elder)
	next := lease2(t, elder)
	younger := beside(t, elder)
	a.Close()
	_, err := io.ReadAll(open(t, younger))
	assert.Equal(t, ErrOver, err)
	assert.Equal(t, text, readAll(t, open(t, next)))
}

// lease2 is lease without the cut.
func lease2(t *testing.T, after *Lease) *Lease {
	t.Helper()
	l, err := as[*Lease](after.Next(t.Context(), 0, nil))
	require.NoError(t, err)
	return l
}

func TestLeaseBesideIsRefused(t *testing.T) {
	broken := errors.New("the body is broken")
	for name, c := range map[string]struct {
		limit int64
		do    func(*Source, *Lease, *Reader)
		want  error
	}{
		"elder cut": {100, func(_ *Source, l *Lease, _ *Reader) { l.Cut() }, ErrOver},
		"spent":     {3, func(_ *Source, _ *Lease, r *Reader) { r.Read(make([]byte, 8)) }, ErrSpent},
		"sealed":    {100, func(s *Source, _ *Lease, _ *Reader) { s.Seal(false) }, ErrSpent},
		"failed":    {100, func(_ *Source, _ *Lease, r *Reader) { io.ReadAll(r) }, &ReadError{broken}},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(plainBody{io.MultiReader(bytes.NewReader([]byte(text)), &onceReader{broken}), new(closer)}, c.limit)
			l := lease(t, s, nil)
			c.do(s, l, open(t, l))
			_, err := l.Beside(t.Context(), nil)
			assert.Equal(t, c.want, err)
		})
	}
}

func TestLoserIsCutAndTheWinnerReadsOn(t *testing.T) {
	for _, kind := range kinds {
		for _, elderWins := range []bool{false, true} {
			for _, sealedFirst := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, elder wins: %t, sealed first: %t", kind.name, elderWins, sealedFirst), func(t *testing.T) {
					var c closer
					s := newSource(kind.make([]byte(text), &c), 100)
					winner := lease(t, s, nil)
					loser := beside(t, winner)
					a, b := open(t, winner), open(t, loser)
					if !elderWins {
						winner, loser, a, b = loser, winner, b, a
					}
					got := read(t, a, 7)
					read(t, b, 9)
					if sealedFirst {
						s.Seal(false)
					}
					loser.Cut()
					failsWith(t, b, ErrOver)
					if !sealedFirst {
						s.Seal(false)
					}
					assert.Equal(t, text, got+readAll(t, a))
					require.NoError(t, b.Close())
					require.NoError(t, a.Close())
					assert.EqualValues(t, 1, c.closes.Load())
				})
			}
		}
	}
}

// The Read of an attempt may cut that attempt, after the result. Then nobody else
// closes the body.
func TestBodyIsClosedByTheReadThatCutTheLastAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c closer
		s := New(plainBody{bytes.NewReader([]byte(text)), &c}, 8)
		elder := lease(t, s, nil)
		r := open(t, beside(t, elder))
		s.Seal(false)
		_, err := io.ReadAll(r)
		assert.Equal(t, ErrOver, err)
		synctest.Wait()
		assert.EqualValues(t, 1, c.closes.Load())
	})
}

// An attempt that is under way goes on when the body cannot be rewound for another.
func TestSeekThatFailsLeavesTheOtherAttemptAlone(t *testing.T) {
	broken := errors.New("the tape is torn")
	for name, seek := range map[string]func(*hookedSeeker) (int64, error){
		"with an error": func(*hookedSeeker) (int64, error) { return 0, broken },
		"without one":   func(h *hookedSeeker) (int64, error) { return h.Reader.Seek(0, io.SeekCurrent) },
	} {
		t.Run(name, func(t *testing.T) {
			h, s := newHookedSeeker(text)
			h.seek = func(offset int64, whence int) (int64, error) {
				if whence == io.SeekStart {
					return seek(h)
				}
				return h.Reader.Seek(offset, whence)
			}
			elder := lease(t, s, nil)
			r := open(t, elder)
			got := read(t, r, 5)
			_, err := elder.Beside(t.Context(), nil)
			assert.Error(t, err)
			assert.Equal(t, text, got+readAll(t, r))
		})
	}
}

// FuzzBeside reads a source from two attempts at once, and ends one of them at some
// moment. Then a retry may follow.
func FuzzBeside(f *testing.F) {
	big := make([]byte, 30_000)
	rot(0).Read(big)
	for kind := range byte(kindCount) {
		for _, limit := range []int64{-1, 0, 100, int64(len(big)) - 1, int64(len(big)), 1 << 40} {
			for ending := range byte(endingCount) {
				f.Add(big, kind+kindCount*(ending%2), limit, []byte{}, ending, uint64(limit))
				f.Add(big[:300], kind, limit, []byte{1, 0, 9}, ending, uint64(kind))
			}
		}
	}
	f.Fuzz(func(t *testing.T, content []byte, kind byte, limit int64, chunks []byte, ending byte, seed uint64) {
		if len(chunks) > 0 {
			content = content[:min(len(content), 3000)] // which may be as many Reads
		}
		closes := closer{done: make(chan struct{})}
		body := &chunked{chunks: chunks, end: io.EOF, early: kind/kindCount%2 == 1}
		p := &pair{t: t, content: content, random: rand.New(rand.NewPCG(seed, 1))}
		p.source = newSource(fuzzBody(int(kind%kindCount), content, 0, body, &closes), limit)
		p.run(ending % endingCount)
		p.source.Seal(true)
		closes.wait()
		require.EqualValues(t, 1, closes.closes.Load())
	})
}

// How a pair of attempts ends.
const (
	endNone = iota
	endCutElder
	endCutYounger
	endCloseElder
	endSeal
	endRetry
	endingCount
)

// pair is two attempts side by side.
type pair struct {
	t       *testing.T
	content []byte
	random  *rand.Rand
	source  *Source
}

type outcome struct {
	got []byte
	err error
}

func (p *pair) start(wg *sync.WaitGroup, r io.Reader) *outcome {
	o, random := new(outcome), rand.New(rand.NewPCG(p.random.Uint64(), 2))
	wg.Go(func() { o.got, o.err = drain(r, random) })
	return o
}

// check checks that an attempt got the whole body or one of the errors.
func (p *pair) check(name string, o *outcome, allowed ...error) {
	p.t.Helper()
	if o.err == io.EOF {
		require.True(p.t, bytes.Equal(p.content, o.got), "%s ended well with %d wrong bytes", name, len(o.got))
		return
	}
	require.Contains(p.t, allowed, o.err, name)
	require.True(p.t, bytes.HasPrefix(p.content, o.got), "%s got wrong bytes", name)
}

func (p *pair) run(ending byte) {
	elder := lease(p.t, p.source, nil)
	younger := beside(p.t, elder)
	a, b := open(p.t, elder), open(p.t, younger)
	var wg sync.WaitGroup
	first, second := p.start(&wg, a), p.start(&wg, b)
	for range p.random.IntN(200) {
		p.source.Repeatable() // passes time, and takes the lock
	}
	mayFail := []error{ErrOver, ErrSpent}
	var elderMay []error
	var retry *outcome
	switch ending {
	case endCutElder:
		elder.Cut()
		elderMay = mayFail
	case endCloseElder:
		a.Close()
		elderMay = mayFail
	case endCutYounger:
		younger.Cut()
	case endSeal:
		p.source.Seal(false)
	case endRetry:
		if l, err := as[*Lease](younger.Next(p.t.Context(), 0, nil)); err == nil {
			elderMay = mayFail
			retry = p.start(&wg, open(p.t, l))
		} else {
			require.Equal(p.t, ErrSpent, err)
		}
	}
	wg.Wait()
	p.check("the elder attempt", first, elderMay...)
	p.check("the younger attempt", second, mayFail...)
	if retry != nil {
		p.check("the retry", retry)
	}
}
