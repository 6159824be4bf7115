package replay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// The kinds of origin that the fuzz targets choose from.
const (
	kindSection = iota
	kindRewinder
	kindReaderAt // a rewinder with random access
	kindStream
	kindCount
)

var errFuzz = errors.New("the body failed")

// chunked reads content in chunks of the given sizes, over and over. A chunk of
// zero is a Read that gives nothing, but no two of them follow each other.
type chunked struct {
	content []byte
	at      int
	chunks  []byte
	next    int
	idle    bool  // the last Read gave nothing
	end     error // what comes after content
	early   bool  // the end comes with the last bytes
	met     bool  // the end was given
}

func (c *chunked) Read(p []byte) (int, error) {
	size := len(p)
	if len(c.chunks) > 0 {
		size = min(size, int(c.chunks[c.next%len(c.chunks)]))
		c.next++
	}
	left := c.content[c.at:]
	switch {
	case len(left) == 0:
		c.met = true
		return 0, c.end
	case size == 0 && !c.idle:
		c.idle = true
		return 0, nil
	}
	c.idle = false
	n := copy(p[:max(size, 1)], left)
	c.at += n
	if c.early && n == len(left) {
		c.met = true
		return n, c.end
	}
	return n, nil
}

func (c *chunked) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += int64(c.at)
	case io.SeekEnd:
		offset += int64(len(c.content))
	}
	c.at = int(offset)
	return offset, nil
}

// fuzzBody is a body of the given kind that stands skip bytes into content.
func fuzzBody(kind int, content []byte, skip int, c *chunked, closes *closer) io.ReadCloser {
	switch kind {
	case kindSection:
		r := bytes.NewReader(content)
		r.Seek(int64(skip), io.SeekStart)
		return fileBody{r, closes}
	case kindRewinder:
		c.content, c.at = content, skip
		return seekBody{c, closes}
	case kindReaderAt:
		c.content, c.at = content, skip
		return readAtBody{seekBody{c, closes}}
	}
	c.content = content[skip:]
	return plainBody{c, closes}
}

// readAtBody has a ReadAt that is not used.
type readAtBody struct{ seekBody }

func (readAtBody) ReadAt([]byte, int64) (int, error) {
	panic("a ReadAt may return what Read leaves out")
}

// The model has the promises of a Source, for one goroutine.
type (
	model struct {
		t       *testing.T
		kind    int
		content []byte // what every attempt must get
		end     error  // what must come after it
		limit   int64
		source  *Body
		body    *chunked
		start   int // where body stood when it was handed over
		closes  *closer

		leases     []*modelLease
		readers    []*modelReader
		generation int   // the generation of the newest lease
		taken      int64 // from a stream
		spent      bool
		ended      bool // the stream's end was met
		sealed     bool
		closed     bool
	}
	modelLease struct {
		lease      *Lease
		generation int
		over       bool
		newest     *modelReader
		met        bool // a reader has met the end
	}
	modelReader struct {
		reader io.ReadCloser
		lease  *modelLease
		offset int64
		used   bool
		ended  bool
		over   bool
	}
)

func (m *model) isStream() bool { return m.kind == kindStream }

// counts reports whether r keeps the body open.
func (r *modelReader) counts() bool {
	return !r.over && !r.lease.over && !r.ended && (r.used || r == r.lease.newest)
}

// outgrow is called when a Read of r has taken more than is kept.
func (m *model) outgrow(r *modelReader) {
	if r.lease.generation < m.generation {
		r.lease.over = true
		return
	}
	m.spent = true
}

// settle checks what must hold after every step.
func (m *model) settle() {
	busy := false
	for _, r := range m.readers {
		r.over = r.over || r.lease.over
		busy = busy || r.counts()
	}
	m.closed = m.closed || m.sealed && !busy
	for _, r := range m.readers {
		r.over = r.over || m.closed
	}
	want := int32(0)
	if m.closed {
		want = 1
		m.closes.wait() // the Read that has cut off the last reader closes the body after it has returned
	}
	require.Equal(m.t, want, m.closes.closes.Load(), "closes")
	require.Equal(m.t, !m.spent, m.source.Repeatable(), "repeatable")
	for _, l := range m.leases {
		require.Equal(m.t, l.met, toldOfEnd(l.lease), "whether the end was told")
	}
}

func (m *model) first() { m.add(&modelLease{lease: m.source.First(new(http.Request))}) }

// add adds a lease, which begins with a reader.
func (m *model) add(l *modelLease) {
	m.leases = append(m.leases, l)
	l.newest = &modelReader{reader: l.lease.newest, lease: l}
	m.readers = append(m.readers, l.newest)
}

// next has an attempt follow the attempt old, which is cut or not.
func (m *model) next(old *modelLease, cut bool) {
	l, err := follow(old.lease)
	switch {
	case m.sealed || m.spent:
		require.Equal(m.t, ErrSpent, err)
		return
	case m.isStream() && m.ended && m.end != io.EOF:
		require.Equal(m.t, &ReadError{m.end}, err) // the next attempt would only meet it again
		return
	}
	require.NoError(m.t, err)
	if cut {
		old.lease.Cut()
		old.over = true
	} else {
		m.source.mu.Lock()
		m.source.endPause() // does not wait for it
		m.source.mu.Unlock()
	}
	m.generation++
	m.add(&modelLease{lease: l, generation: m.generation})
}

func (m *model) beside(elder *modelLease) {
	if m.kind != kindSection {
		return
	}
	l, err := elder.lease.Beside(new(http.Request))
	if m.sealed || elder.over {
		require.Equal(m.t, ErrOver, err)
		return
	}
	require.NoError(m.t, err)
	m.add(&modelLease{lease: l, generation: elder.generation})
}

func (m *model) open(l *modelLease) {
	r, err := l.lease.Open()
	switch {
	case l.over || m.closed:
		require.Equal(m.t, ErrOver, err)
	case m.spent:
		require.Equal(m.t, ErrSpent, err)
	default:
		require.NoError(m.t, err)
		reader := &modelReader{reader: r, lease: l}
		l.newest = reader
		m.readers = append(m.readers, reader)
	}
}

// read reports whether the reader may have more.
func (m *model) read(r *modelReader, size int) bool {
	p := make([]byte, size)
	r.used = true
	n, err := r.reader.Read(p)
	require.True(m.t, n >= 0 && n <= size, "count %d of %d", n, size)
	switch {
	case r.ended:
		require.Zero(m.t, n)
		require.Equal(m.t, io.EOF, err)
		return false
	case r.over:
		require.Zero(m.t, n)
		require.Equal(m.t, ErrOver, err)
		return false
	case size == 0:
		require.NoError(m.t, err)
		return true
	case m.isStream() && r.offset < m.taken && m.spent:
		require.Zero(m.t, n)
		require.Equal(m.t, ErrSpent, err)
		return false
	case m.isStream() && r.offset < m.taken:
		require.NotZero(m.t, n)
		require.NoError(m.t, err)
	case m.isStream() && !m.ended: // the body itself was read
		before := m.taken
		m.taken, m.ended = int64(m.body.at-m.start), m.body.met
		if m.taken > max(m.limit, before, 0) && !m.spent {
			m.outgrow(r)
		}
		if err == ErrOver && r.lease.over { // which cut the attempt that did it
			require.Zero(m.t, n)
			return false
		}
	}
	require.LessOrEqual(m.t, r.offset+int64(n), int64(len(m.content)))
	require.True(m.t, bytes.Equal(m.content[r.offset:r.offset+int64(n)], p[:n]), "wrong bytes at %d", r.offset)
	r.offset += int64(n)
	switch {
	case err == nil:
		if m.kind == kindSection {
			require.Equal(m.t, min(size, bufferSize), n)
			require.Less(m.t, r.offset, int64(len(m.content)))
		}
		return true
	case m.end == io.EOF:
		require.Equal(m.t, io.EOF, err)
		r.lease.met, r.ended = true, true
	default:
		require.Equal(m.t, &ReadError{m.end}, err)
	}
	require.EqualValues(m.t, len(m.content), r.offset, "the end came early")
	return false
}

func (m *model) seal(cut bool) {
	m.source.Seal(cut)
	m.sealed = true
	if cut {
		for _, l := range m.leases {
			l.over = true
		}
	}
}

// FuzzReplay runs a schedule of steps, two bytes each, beside a model.
func FuzzReplay(f *testing.F) {
	const (
		stepOpen = iota
		stepRead
		stepDrain
		stepClose
		stepLease
		stepReplace
		stepBeside
		stepSeal
		stepSealCut
		steps
	)
	// Byte 0 of what a step is made of says what is done, and the rest to which
	// lease or reader; byte 1 how much is read.
	step := func(kind, which, amount byte) []byte { return []byte{kind + steps*which, amount} }
	schedule := bytes.Join([][]byte{
		step(stepOpen, 0, 0), step(stepRead, 0, 3), step(stepRead, 0, 0),
		step(stepLease, 0, 0), step(stepOpen, 1, 0), step(stepRead, 1, 1), step(stepDrain, 0, 200),
		step(stepDrain, 1, 1), step(stepReplace, 0, 0), step(stepOpen, 2, 0), step(stepRead, 0, 9),
		step(stepDrain, 2, 7), step(stepSeal, 0, 0), step(stepClose, 2, 0), step(stepClose, 1, 0), step(stepOpen, 1, 0),
	}, nil)
	// The reader of a pair that reads first outgrows the record, and a retry may follow.
	pair := func(first, second byte, then ...[]byte) []byte {
		return bytes.Join(append([][]byte{
			step(stepOpen, 0, 0), step(stepBeside, 0, 0), step(stepOpen, 1, 0), step(stepRead, 0, 1), step(stepRead, 1, 2),
			step(stepDrain, first, 3), step(stepDrain, second, 9), step(stepOpen, second, 0),
		}, then...), nil)
	}
	pairs := [][]byte{
		pair(0, 1), pair(1, 0, step(stepSeal, 0, 0)), pair(1, 0, step(stepReplace, 1, 0)),
		pair(1, 1, step(stepReplace, 0, 0), step(stepOpen, 2, 0), step(stepDrain, 1, 3), step(stepDrain, 3, 9)),
		bytes.Join([][]byte{step(stepOpen, 0, 0), step(stepBeside, 0, 0), step(stepOpen, 1, 0), step(stepLease, 0, 0),
			step(stepReplace, 2, 0), step(stepOpen, 3, 0), step(stepRead, 0, 4), step(stepDrain, 1, 9),
			step(stepDrain, 0, 9), step(stepBeside, 3, 0), step(stepDrain, 2, 9)}, nil),
		bytes.Join([][]byte{step(stepOpen, 0, 0), step(stepBeside, 0, 0), step(stepOpen, 1, 0), step(stepClose, 0, 0),
			step(stepDrain, 1, 9)}, nil),
	}
	for kind := range byte(kindCount) {
		for _, limit := range []int64{-1 << 63, -1, 0, 1, int64(len(text)) - 1, int64(len(text)), 1<<63 - 1} {
			f.Add([]byte(text), kind, uint16(0), limit, []byte{1}, schedule)
			f.Add([]byte(text+text[:1]), kind, uint16(1), limit, []byte{}, schedule)
			f.Add([]byte{}, kind, uint16(0), limit, []byte{0}, schedule)
			f.Add([]byte{0}, kind+kindCount, uint16(0), limit, []byte{255, 0, 1}, schedule)
			f.Add([]byte(text), kind+2*kindCount, uint16(0xffff), limit, []byte{2, 0}, schedule)
		}
		f.Add(make([]byte, 1<<16), kind, uint16(3), int64(1<<16-3), []byte{}, bytes.Join([][]byte{
			step(stepOpen, 0, 0), step(stepRead, 0, 255), step(stepDrain, 0, 255), step(stepReplace, 0, 0),
			step(stepOpen, 1, 0), step(stepDrain, 1, 255),
		}, nil))
		f.Add([]byte(text), kind+3*kindCount, uint16(2), int64(5), []byte{3},
			bytes.Join([][]byte{step(stepOpen, 0, 0), step(stepRead, 0, 6), step(stepSealCut, 0, 0), step(stepRead, 0, 1)}, nil))
		f.Add([]byte(text), kind, uint16(0), int64(5), []byte{3}, step(stepSeal, 0, 0))
		for _, schedule := range pairs {
			f.Add([]byte(text), kind, uint16(0), int64(5), []byte{3}, schedule)
			f.Add([]byte(text), kind+kindCount, uint16(0), int64(len(text))-1, []byte{7}, schedule)
		}
		f.Add([]byte(text), kind, uint16(0), int64(5), []byte{3}, []byte{})
	}
	f.Fuzz(func(t *testing.T, content []byte, kind byte, skip uint16, limit int64, chunks, schedule []byte) {
		if len(schedule) > 400 {
			schedule = schedule[:400] // long enough for anything, and quick
		}
		if len(chunks) > 0 {
			content = content[:min(len(content), 3000)] // which may be as many Reads
		}
		c := &chunked{chunks: chunks, end: io.EOF, early: kind/kindCount%2 == 1}
		kind, fails := kind%kindCount, kind/kindCount/2%2 == 1
		from := int(skip) % (len(content) + 1)
		m := &model{t: t, kind: int(kind), content: content[from:], end: io.EOF, limit: limit, body: c}
		m.closes = &closer{done: make(chan struct{})}
		if kind == kindSection && len(m.content) == 0 {
			m.kind = kindRewinder // see newBody
		}
		if fails && kind != kindSection {
			c.end, m.end = errFuzz, errFuzz
		}
		body := fuzzBody(int(kind), content, from, c, m.closes)
		m.start = c.at
		m.source = newBody(body, limit)
		announceTrailer(m.source)
		m.first()
		for len(schedule) >= 2 {
			do, which, amount := schedule[0]%steps, int(schedule[0]/steps), int(schedule[1])
			schedule = schedule[2:]
			l := m.leases[which%len(m.leases)]
			var r *modelReader
			if len(m.readers) > 0 {
				r = m.readers[which%len(m.readers)]
			}
			if amount > 250 { // much more than there is
				amount = len(content) + amount
			}
			switch {
			case do == stepOpen:
				m.open(l)
			case do == stepLease:
				m.next(l, false)
			case do == stepReplace:
				m.next(l, true)
			case do == stepBeside:
				m.beside(l)
			case do == stepSeal || do == stepSealCut:
				m.seal(do == stepSealCut)
			case r == nil:
			case do == stepRead:
				m.read(r, amount)
			case do == stepDrain:
				for m.read(r, amount+1+len(content)/256) { // not byte by byte through a long one
				}
			case do == stepClose:
				require.NoError(t, r.reader.Close())
				r.over = true
			}
			m.settle()
		}
		m.seal(false)
		m.settle()
		for _, r := range m.readers {
			require.NoError(t, r.reader.Close())
			r.over = true
			m.settle()
		}
		require.True(t, m.closed)
	})
}

// drain reads r to its end in random pieces, and returns what came.
func drain(r io.Reader, random *rand.Rand) ([]byte, error) {
	var got []byte
	for {
		p := make([]byte, 1+random.IntN(1<<random.IntN(12)))
		n, err := r.Read(p)
		got = append(got, p[:n]...)
		if err != nil {
			return got, err
		}
	}
}

// FuzzReplayConcurrent reads a source from several goroutines. Now and then it puts a new lease in
// the place of a lease whose readers are at work. An attempt must get a beginning of the body, and
// all of it unless another reader took the bytes first. An attempt that all others leave alone can
// rely on a grant.
func FuzzReplayConcurrent(f *testing.F) {
	big := make([]byte, 30_000)
	rot(0).Read(big)
	for kind := range byte(kindCount) {
		for _, limit := range []int64{-1, 0, 100, int64(len(big)) - 1, int64(len(big)), 1 << 40} {
			f.Add(big, kind, limit, []byte{}, uint64(limit))
			f.Add(big[:300], kind, limit, []byte{1, 0}, uint64(kind))
			f.Add([]byte{}, kind+kindCount, limit, []byte{1}, uint64(kind))
			f.Add(big, kind+kindCount, limit, []byte{255, 3}, uint64(kind))
		}
	}
	f.Fuzz(func(t *testing.T, content []byte, kind byte, limit int64, chunks []byte, seed uint64) {
		if len(chunks) > 0 {
			content = content[:min(len(content), 3000)] // which may be as many Reads
		}
		c := closer{done: make(chan struct{})}
		source := &chunked{chunks: chunks, end: io.EOF, early: kind/kindCount%2 == 1}
		s := newBody(fuzzBody(int(kind%kindCount), content, 0, source, &c), limit)
		random := rand.New(rand.NewPCG(seed, 1))

		type result struct {
			got []byte
			err error
		}
		read := func(r io.ReadCloser) <-chan result {
			done := make(chan result, 1)
			own := rand.New(rand.NewPCG(random.Uint64(), 2))
			go func() {
				got, err := drain(r, own)
				done <- result{got, err}
			}()
			return done
		}
		check := func(r result, allowed ...error) {
			if r.err == io.EOF {
				require.True(t, bytes.Equal(content, r.got), "an attempt ended well with wrong bytes")
				return
			}
			require.Contains(t, allowed, r.err)
			require.True(t, bytes.HasPrefix(content, r.got), "an attempt got wrong bytes")
		}

		// One attempt after the other, each cutting off a reader at work.
		l := lease(t, s, nil)
		last := read(open(t, l))
		for range 4 {
			for range random.IntN(200) {
				s.Repeatable() // passes time, and takes the lock
			}
			next, err := leaseInstead(l)
			if err != nil {
				require.Equal(t, ErrSpent, err)
				break
			}
			r := open(t, next)
			check(<-last, ErrOver)
			l, last = next, read(r)
		}
		r := <-last
		require.Equal(t, io.EOF, r.err, "the last attempt's body was promised")
		check(r)

		// Then all at once.
		var readers []*Reader
		for range 4 {
			if !s.Repeatable() {
				break
			}
			readers = append(readers, open(t, lease(t, s, nil)))
		}
		var unread *Reader // it alone keeps the body open when the others have met the end
		if s.Repeatable() {
			unread = open(t, lease(t, s, nil))
		}
		s.Seal(false)
		var done []<-chan result
		for _, r := range readers {
			done = append(done, read(r))
		}
		for i := range done {
			check(<-done[i], ErrSpent)
			if unread != nil {
				require.Zero(t, c.closes.Load())
			}
			readers[i].Close()
		}
		s.Seal(true)
		c.wait()
		require.EqualValues(t, 1, c.closes.Load())
	})
}

// Several readers start together. If the stream is too long to keep, one reader gets it all, and
// the others fail. If the body can be repeated, all readers get it.
func TestConcurrentReadersGetTheExactBody(t *testing.T) {
	content := make([]byte, 20_000)
	rot(0).Read(content)
	for kind := range kindCount {
		for _, limit := range []int64{-1, 0, 1000, int64(len(content)) - 1, int64(len(content))} {
			t.Run(fmt.Sprintf("%d/%d", kind, limit), func(t *testing.T) {
				for seed := range uint64(2) {
					closes := closer{done: make(chan struct{})}
					s := newBody(fuzzBody(kind, content, 0, &chunked{chunks: []byte{200, 1, 0, 255}, end: io.EOF}, &closes), limit)
					spends := kind >= kindStream && limit < int64(len(content))
					var wg sync.WaitGroup
					var mu sync.Mutex
					whole, failed := 0, 0
					var readers []*Reader // all there before the first can spend the source
					for range 4 {
						readers = append(readers, open(t, lease(t, s, nil)))
					}
					for i, r := range readers {
						wg.Go(func() {
							got, err := drain(r, rand.New(rand.NewPCG(seed, uint64(i))))
							mu.Lock()
							defer mu.Unlock()
							switch {
							case err == io.EOF && bytes.Equal(got, content):
								whole++
							case err == ErrSpent && bytes.HasPrefix(content, got):
								failed++
							default:
								t.Errorf("%d bytes and %v", len(got), err)
							}
							r.Close()
						})
					}
					s.Seal(false)
					wg.Wait()
					if spends {
						require.Equal(t, []int{1, 3}, []int{whole, failed})
					} else {
						require.Equal(t, []int{4, 0}, []int{whole, failed})
					}
					closes.wait() // on a busy machine, Close may take its time
					require.EqualValues(t, 1, closes.closes.Load())
				}
			})
		}
	}
}

// The previous attempt is still reading its body, slowly, when the next attempt begins: the
// commonest way to corrupt a retry.
func TestAttemptGetsTheExactBodyWhileTheOneBeforeIsStillReading(t *testing.T) {
	content := make([]byte, 200_000)
	rot(3).Read(content)
	for kind := range kindCount {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			for seed := range uint64(4) {
				s := newBody(fuzzBody(kind, content, 0, &chunked{end: io.EOF}, new(closer)), int64(len(content)))
				var l *Lease
				var wg sync.WaitGroup
				for i := range uint64(4) {
					l = lease(t, s, l)
					r := open(t, l)
					random := rand.New(rand.NewPCG(seed, i))
					first := make([]byte, 1000)
					n, err := io.ReadFull(r, first)
					require.NoError(t, err)
					require.True(t, bytes.Equal(content[:n], first))
					wg.Go(func() {
						got, err := drain(r, random)
						got = append(first, got...)
						switch {
						case err == io.EOF && bytes.Equal(content, got):
						case err == ErrOver && i < 3 && bytes.HasPrefix(content, got):
						default:
							t.Errorf("attempt %d: %d bytes and %v", i, len(got), err)
						}
					})
				}
				wg.Wait()
			}
		})
	}
}
