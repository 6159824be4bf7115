package replay

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ownRead is a body that embeds a file and has a Read of its own.
type ownRead struct {
	*bytes.Reader
	closer
	read io.Reader
}

func (b *ownRead) Read(p []byte) (int, error) { return b.read.Read(p) }

// ownReads are Reads that leave out what Seek moves in. A Seek resets none of them.
var ownReads = map[string]func(file *bytes.Reader, limit int64) io.Reader{
	"by a counter": func(file *bytes.Reader, limit int64) io.Reader { return io.LimitReader(file, limit) },
	"by the position": func(file *bytes.Reader, limit int64) io.Reader {
		return readerFunc(func(p []byte) (int, error) {
			at, _ := file.Seek(0, io.SeekCurrent)
			return io.LimitReader(file, limit-at).Read(p)
		})
	},
	"and is over once it has met its end": func(file *bytes.Reader, limit int64) io.Reader {
		limited, over := io.LimitReader(file, limit), false
		return readerFunc(func(p []byte) (int, error) {
			if over {
				return 0, io.EOF
			}
			n, err := limited.Read(p)
			over = err == io.EOF
			return n, err
		})
	},
}

// shapes are the ways in which a body can show its Seek.
var shapes = map[string]func(*ownRead) io.ReadCloser{
	"with ReadAt": func(b *ownRead) io.ReadCloser { return b },
	"without ReadAt": func(b *ownRead) io.ReadCloser {
		return struct {
			io.ReadSeeker
			io.Closer
		}{b, b}
	},
}

// A retry begins after any number of reads by the first attempt. It sends what the first attempt
// sent or would have sent, or it fails.
func TestBodyWhoseReadLimitsItselfIsSentWholeOrFails(t *testing.T) {
	for name, own := range ownReads {
		for shape, show := range shapes {
			for _, length := range []string{"unknown length", "known length"} {
				t.Run(fmt.Sprintf("%s, %s, %s", name, shape, length), func(t *testing.T) {
					for limit := range len(text) + 10 {
						want := text[:min(limit, len(text))]
						for came := range len(want) + 2 {
							file := bytes.NewReader([]byte(text))
							s := New(show(&ownRead{Reader: file, read: own(file, int64(limit))}), 0)
							if length == "known length" {
								s.length = int64(len(want))
							}
							first := lease(t, s, nil)
							r := open(t, first)
							require.Equal(t, want[:min(came, len(want))], read(t, r, min(came, len(want))))
							if came > len(want) {
								failsWith(t, r, io.EOF)
							}
							next, err := leaseInstead(first)
							if limit < len(text) && min(came, limit) > 0 && (came > len(want) || s.length > 0) {
								require.Equal(t, errLimited, err, "limit %d, read %d: it is known before the attempt", limit, came)
							}
							if err != nil {
								require.Equal(t, errLimited, err)
								continue
							}
							got, err := io.ReadAll(open(t, next))
							if err == nil {
								require.Equal(t, want, string(got), "limit %d, read %d", limit, came)
							}
						}
					}
				})
			}
		}
	}
}

// FuzzOwnRead reads a body with a Read of its own from several attempts. An attempt that meets
// the end has read what the first attempt would have read alone.
func FuzzOwnRead(f *testing.F) {
	const ownKinds = 6
	for own := range byte(2 * ownKinds) {
		f.Add([]byte(text), own, uint16(12), int64(-1), uint64(own))
		f.Add([]byte(text), own, uint16(len(text)), int64(0), uint64(own)+100)
		f.Add([]byte(text), own, uint16(len(text)+8), int64(12), uint64(own)+200)
		f.Add([]byte{}, own, uint16(0), int64(0), uint64(own))
		f.Add(bytes.Repeat([]byte(text), 80), own, uint16(2500), int64(1), uint64(own))
	}
	f.Fuzz(func(t *testing.T, content []byte, kind byte, limit uint16, length int64, seed uint64) {
		content = content[:min(len(content), 3000)] // which may be as many Reads
		want := content[:min(int(limit), len(content))]
		random := rand.New(rand.NewPCG(seed, 1))
		file := bytes.NewReader(content)
		limited := io.LimitReader(file, int64(limit))
		b := &ownRead{Reader: file}
		switch kind % ownKinds {
		case 0:
			b.read = limited
		case 1:
			b.read = ownReads["by the position"](file, int64(limit))
		case 2:
			b.read = ownReads["and is over once it has met its end"](file, int64(limit))
		case 3: // it gives other bytes when it is read again, up to the limit
			b.read = rolling(limited)
			plain := want
			want, _ = io.ReadAll(rolling(bytes.NewReader(plain)))
		case 4: // it gives other bytes, and keeps the position
			b.read = rolling(file)
			want, _ = io.ReadAll(rolling(bytes.NewReader(content)))
		case 5: // its limit grows whenever it is met
			b.read = readerFunc(func(p []byte) (int, error) {
				n, err := limited.Read(p)
				if err == io.EOF {
					limited = io.LimitReader(file, int64(limit)+1)
				}
				return n, err
			})
		}
		shape := shapes["with ReadAt"]
		if kind/ownKinds%2 == 1 {
			shape = shapes["without ReadAt"]
		}
		s := New(shape(b), 0)
		if length > 0 {
			s.length = int64(len(want)) // any other length is an error of net/http's
		}
		l := s.First(new(http.Request))
		for i := range 4 {
			if i > 0 {
				next, err := leaseInstead(l)
				if err != nil {
					break
				}
				l = next
			}
			for range 1 + random.IntN(2) { // the second as a resend of net/http's HTTP/2
				r := open(t, l)
				if random.IntN(2) == 0 {
					_, _ = io.CopyN(io.Discard, r, random.Int64N(int64(len(content))+1))
					require.NoError(t, r.Close())
					continue
				}
				got, err := drain(r, random)
				if err == io.EOF {
					require.Equal(t, string(want), string(got))
				}
			}
		}
		s.Seal(true)
	})
}

// rolling changes each byte by all bytes that it has read.
func rolling(r io.Reader) io.Reader {
	var key byte
	return readerFunc(func(p []byte) (int, error) {
		n, err := r.Read(p)
		for i := range n {
			key += p[i] + 1
			p[i] = key
		}
		return n, err
	})
}

// A Read that encrypts does not start again after a Seek. Not one complete body is wrong, and
// the last bytes are not given: net/http ends a body when its announced length was read.
func TestBodyThatReturnsOtherBytesWhenItIsReadAgainFails(t *testing.T) {
	for _, came := range []int{1, 5, len(text)} {
		for shape, show := range shapes {
			t.Run(fmt.Sprintf("%s, %d", shape, came), func(t *testing.T) {
				file := bytes.NewReader([]byte(text))
				s := New(show(&ownRead{Reader: file, read: rolling(file)}), 0)
				s.length = int64(len(text))
				l := lease(t, s, nil)
				read(t, open(t, l), came)
				got, err := io.ReadAll(open(t, lease(t, s, l)))
				assert.Equal(t, &ReadError{errChanged}, err)
				assert.Less(t, len(got), came)
			})
		}
	}
}

// Before its end was met, a body that grows is all that it has by then. Afterwards, it may as well have a Read
// that leaves out the rest.
func TestSeekerThatGrewIsSentWholeOrNotAtAll(t *testing.T) {
	for _, came := range []int{5, len(text)} {
		for shape, show := range shapes {
			for _, known := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %d bytes were read, and the end was met: %t", shape, came, known), func(t *testing.T) {
					file := bytes.NewReader([]byte(text))
					s := New(show(&ownRead{Reader: file, read: file}), 0)
					l := lease(t, s, nil)
					r := open(t, l)
					read(t, r, came)
					if known {
						readAll(t, r)
					}
					grow(t, file, text+"and more")
					next, err := leaseInstead(l)
					if known {
						assert.Equal(t, errLimited, err)
						return
					}
					require.NoError(t, err)
					assert.Equal(t, text+"and more", readAll(t, open(t, next)))
					grow(t, file, text+"and more, and more")
					_, err = io.ReadAll(open(t, lease(t, s, next)))
					assert.Error(t, err, "the end is no end")
				})
			}
		}
	}
}

func grow(t *testing.T, file *bytes.Reader, content string) {
	t.Helper()
	at, err := file.Seek(0, io.SeekCurrent)
	require.NoError(t, err)
	*file = *bytes.NewReader([]byte(content))
	_, err = file.Seek(at, io.SeekStart)
	require.NoError(t, err)
}

// A body may set its trailer when its end is met. The first attempt may not have come so far.
func TestSeekerIsReadUpToItsEndByEachAttempt(t *testing.T) {
	h, s := newHookedSeeker(text)
	ends := 0
	h.read = func(p []byte) (int, error) {
		n, err := h.Reader.Read(p)
		if err == io.EOF {
			ends++
		}
		return n, err
	}
	l := lease(t, s, nil)
	read(t, open(t, l), 5)
	for i := range 2 {
		l = lease(t, s, l)
		assert.Equal(t, text, readAll(t, open(t, l)))
		assert.Equal(t, i+1, ends)
	}
}

// A size is asked for when it is needed: it may cost a request.
func TestSeekerThatIsReadOnceIsNotMoved(t *testing.T) {
	h, s := newHookedSeeker(text)
	h.seek = func(int64, int) (int64, error) { panic("the body is moved") }
	assert.Equal(t, text, readAll(t, open(t, lease(t, s, nil))))
}

// If Seek finds no end, the end that the first attempt met is enough, or the announced length.
func TestSeekerThatFindsNoEndIsRewoundIfItsEndIsKnown(t *testing.T) {
	for name, c := range map[string]struct {
		came   int
		length int64
		want   error
	}{
		"met":       {len(text), 0, nil},
		"announced": {5, int64(len(text)), nil},
		"neither":   {5, 0, io.ErrNoProgress},
	} {
		t.Run(name, func(t *testing.T) {
			h, s := newHookedSeeker(text)
			s.length = c.length
			h.seek = func(offset int64, whence int) (int64, error) {
				if whence == io.SeekEnd {
					return 0, io.ErrNoProgress
				}
				return h.Reader.Seek(offset, whence)
			}
			l := lease(t, s, nil)
			r := open(t, l)
			got := read(t, r, c.came)
			if c.came == len(text) {
				failsWith(t, r, io.EOF)
			}
			next, err := l.Next(new(http.Request), 0)
			require.Equal(t, c.want, err)
			if err != nil {
				assert.Equal(t, text, got+readAll(t, r), "the first attempt can continue")
				return
			}
			assert.Equal(t, text, readAll(t, open(t, next)))
		})
	}
}

// The attempt that a retry follows is cut only when the retry is certain. If it went on reading
// until then, each Read would move the body.
func TestAttemptBeforeARetryDoesNotMoveTheBodyBack(t *testing.T) {
	for _, cut := range []bool{true, false} {
		t.Run(fmt.Sprintf("it is cut: %t", cut), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, s := newHookedSeeker(text)
				first := lease(t, s, nil)
				r := open(t, first)
				got := read(t, r, 5)
				next, err := follow(first)
				require.NoError(t, err)
				if cut {
					time.AfterFunc(pauseTime-1, first.Cut)
				}
				start := time.Now()
				p := make([]byte, 3)
				n, err := r.Read(p)
				if cut {
					assert.Equal(t, ErrOver, err)
					at, err := h.Reader.Seek(0, io.SeekCurrent)
					require.NoError(t, err)
					assert.Zero(t, at, "the body stands where the retry begins")
				} else {
					require.NoError(t, err, "the server may wait for the body, and OnRetry for the server")
					assert.Equal(t, pauseTime, time.Since(start))
					assert.Equal(t, text, got+string(p[:n])+readAll(t, r))
					assert.Equal(t, pauseTime, time.Since(start), "only the first Read waits")
				}
				assert.Equal(t, text, readAll(t, open(t, next)))
			})
		})
	}
}
