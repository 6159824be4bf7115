package replay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEachKindOfBodyIsReadInTheWayThatSuitsIt(t *testing.T) {
	for _, c := range []struct {
		name string
		body func(*testing.T) io.ReadCloser
		kind origin
		want string
	}{
		{"a file", func(t *testing.T) io.ReadCloser { return fileOf(t, text) }, &section{}, text},
		{"a file, from the middle", func(t *testing.T) io.ReadCloser {
			f := fileOf(t, text)
			_, err := f.Seek(9, io.SeekStart)
			require.NoError(t, err)
			return f
		}, &section{}, text[9:]},
		{"a file, at its last byte", func(t *testing.T) io.ReadCloser {
			f := fileOf(t, text)
			_, err := f.Seek(-1, io.SeekEnd)
			require.NoError(t, err)
			return f
		}, &section{}, text[len(text)-1:]},
		{"a file, read to its end", func(t *testing.T) io.ReadCloser {
			f := fileOf(t, text)
			_, err := io.ReadAll(f)
			require.NoError(t, err)
			return f
		}, &stream{}, ""},
		{"a file, beyond its end", func(t *testing.T) io.ReadCloser {
			f := fileOf(t, text)
			_, err := f.Seek(1000, io.SeekStart)
			require.NoError(t, err)
			return f
		}, &stream{}, ""},
		{"an empty file", func(t *testing.T) io.ReadCloser { return fileOf(t, "") }, &stream{}, ""},
		{"a pipe that is a file", func(t *testing.T) io.ReadCloser { return pipeOf(t, text) }, &stream{}, text},
		{"a file in another type", func(t *testing.T) io.ReadCloser {
			return struct{ *os.File }{fileOf(t, text)}
		}, &rewinder{}, text},
		{"a pipe that is a file in another type", func(t *testing.T) io.ReadCloser {
			return struct{ *os.File }{pipeOf(t, text)}
		}, &stream{}, text},
		{"bytes behind a Close", func(*testing.T) io.ReadCloser {
			return fileBody{bytes.NewReader([]byte(text)), new(closer)}
		}, &rewinder{}, text},
		{"bytes behind a Close, from the middle", func(*testing.T) io.ReadCloser {
			r := bytes.NewReader([]byte(text))
			r.Seek(4, io.SeekStart)
			return fileBody{r, new(closer)}
		}, &rewinder{}, text[4:]},
		{"bytes behind a Close, from the end", func(*testing.T) io.ReadCloser {
			r := bytes.NewReader([]byte(text))
			r.Seek(0, io.SeekEnd)
			return fileBody{r, new(closer)}
		}, &rewinder{}, ""},
		{"a seeker without random access", func(*testing.T) io.ReadCloser {
			return seekBody{strings.NewReader(text), new(closer)}
		}, &rewinder{}, text},
		{"a seeker without random access, from the middle", func(*testing.T) io.ReadCloser {
			r := strings.NewReader(text)
			r.Seek(4, io.SeekStart)
			return seekBody{r, new(closer)}
		}, &rewinder{}, text[4:]},
		{"a seeker without random access, empty", func(*testing.T) io.ReadCloser {
			return seekBody{strings.NewReader(""), new(closer)}
		}, &rewinder{}, ""},
		{"a seeker that cannot seek", func(*testing.T) io.ReadCloser {
			return unseekable{plainBody{strings.NewReader(text), new(closer)}}
		}, &stream{}, text},
		{"a stream", func(*testing.T) io.ReadCloser {
			return plainBody{strings.NewReader(text), new(closer)}
		}, &stream{}, text},
		{"an empty stream", func(*testing.T) io.ReadCloser {
			return plainBody{strings.NewReader(""), new(closer)}
		}, &stream{}, ""},
		{"a file hidden in a NopCloser", func(t *testing.T) io.ReadCloser {
			return io.NopCloser(fileOf(t, text))
		}, &stream{}, text},
		{"bytes hidden in a NopCloser", func(*testing.T) io.ReadCloser {
			return io.NopCloser(bytes.NewReader([]byte(text)))
		}, &stream{}, text},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := New(c.body(t), 1000)
			require.IsType(t, c.kind, s.origin)
			var l *Lease
			for range 3 {
				assert.True(t, s.Repeatable())
				l = lease(t, s, l)
				r := open(t, l)
				assert.Equal(t, c.want, readAll(t, r))
				failsWith(t, r, io.EOF)
			}
		})
	}
}

// openOrSkip opens a file that not every system has.
func openOrSkip(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Skip(err)
	}
	return f
}

// A file in /proc has random access and a Seek, but no size.
func TestFileInProcIsReadOnceAndRepeatedFromTheRecord(t *testing.T) {
	f := openOrSkip(t, "/proc/version")
	want, err := os.ReadFile("/proc/version")
	require.NoError(t, err)
	s := New(f, 1<<16)
	require.IsType(t, &stream{}, s.origin)
	l := lease(t, s, nil)
	assert.Equal(t, string(want), readAll(t, open(t, l)))
	assert.Equal(t, string(want), readAll(t, open(t, lease(t, s, l))))
	s.Seal(true)
}

func TestEndlessDeviceIsRepeatedAsFarAsItIsKept(t *testing.T) {
	s := New(openOrSkip(t, "/dev/zero"), 600)
	require.IsType(t, &stream{}, s.origin)
	first := lease(t, s, nil)
	want := read(t, open(t, first), 600)
	second := lease(t, s, first)
	r := open(t, second)
	assert.Equal(t, want, read(t, r, 600))
	read(t, r, 1)
	_, err := leaseInstead(second)
	assert.Equal(t, ErrSpent, err)
	s.Seal(true)
}

func TestEveryAttemptReadsTheExactBytes(t *testing.T) {
	big := make([]byte, 10_000)
	rot(7).Read(big)
	for _, kind := range kinds {
		for name, content := range map[string][]byte{"empty": {}, "one byte": {'x'}, "text": []byte(text), "big": big} {
			for _, chunk := range []int{1, 7, 4096, 100_000} {
				t.Run(fmt.Sprintf("%s/%s/%d", kind.name, name, chunk), func(t *testing.T) {
					s := newBody(kind.make(content, new(closer)), int64(len(content)))
					var l *Lease
					for range 3 {
						l = lease(t, s, l)
						var got bytes.Buffer
						_, err := io.CopyBuffer(struct{ io.Writer }{&got}, open(t, l), make([]byte, chunk))
						require.NoError(t, err)
						require.True(t, bytes.Equal(content, got.Bytes()))
					}
				})
			}
		}
	}
}

func TestAttemptReadsTheWholeBodyHoweverFarTheOneBeforeCame(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			for n := range len(text) + 1 {
				s := newBody(kind.make([]byte(text), new(closer)), 1000)
				first := lease(t, s, nil)
				assert.Equal(t, text[:n], read(t, open(t, first), n))
				require.Equal(t, text, readAll(t, open(t, lease(t, s, first))), "after %d bytes", n)
			}
		})
	}
}

func TestReadersSideBySideDoNotShareAPosition(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			s := newBody(kind.make([]byte(text), new(closer)), 1000)
			l := lease(t, s, nil)
			a, b, c := open(t, l), open(t, l), open(t, lease(t, s, nil))
			var gotA, gotB, gotC string
			gotA += read(t, a, 5)
			gotB += read(t, b, 1)
			gotC += read(t, c, 8)
			gotA += read(t, a, 9)
			gotC += read(t, c, 3)
			gotB += read(t, b, 2)
			gotC += readAll(t, c)
			require.NoError(t, c.Close())
			gotA += readAll(t, a)
			gotB += readAll(t, b)
			assert.Equal(t, []string{text, text, text}, []string{gotA, gotB, gotC})
		})
	}
}

func TestReadOfNothingReadsNothing(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			s := newBody(kind.make([]byte{}, new(closer)), 1000)
			r := open(t, lease(t, s, nil))
			n, err := r.Read(nil)
			assert.Zero(t, n)
			assert.NoError(t, err, "the end has not been met")
			failsWith(t, r, io.EOF)
			assert.NoError(t, r.Close())
			s.Seal(true)
			assert.Empty(t, s.opened, "no call is under way")
		})
	}
}

// permutations calls f with every order of 0 to n-1.
func permutations(n int, f func([]int)) {
	var extend func(order []int)
	extend = func(order []int) {
		if len(order) == n {
			f(order)
			return
		}
		for i := range n {
			if !slices.Contains(order, i) {
				extend(append(slices.Clone(order), i))
			}
		}
	}
	extend(nil)
}

func TestBodyIsClosedOnceWhenSealedAndNoReaderIsOpen(t *testing.T) {
	const (
		closeOld = iota
		closeNew
		closeNewAgain
		replace // the old reader's lease
		cutOld  // as a timeout does
		seal
		sealCut
		events
	)
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				permutations(events, func(order []int) {
					var c closer
					s := newBody(kind.make([]byte(text), &c), 1000)
					l := lease(t, s, nil)
					older, newer := open(t, l), open(t, lease(t, s, nil))
					read(t, older, 5)
					oldOpen, newOpen, sealed, wasClosed := true, true, false, false
					for i, event := range order {
						switch event {
						case closeOld:
							require.NoError(t, older.Close())
							oldOpen = false
						case closeNew, closeNewAgain:
							require.NoError(t, newer.Close())
							newOpen = false
						case replace:
							next, err := leaseInstead(l)
							require.Equal(t, sealed, err != nil)
							if !sealed {
								require.NoError(t, next.newest.Close())
								oldOpen = false
							}
						case cutOld:
							l.Cut()
							oldOpen = false
						case seal:
							s.Seal(false)
							sealed = true
						case sealCut:
							s.Seal(true)
							sealed, oldOpen, newOpen = true, false, false
						}
						synctest.Wait() // for the Close that Cut begins
						wasClosed = wasClosed || sealed && !oldOpen && !newOpen
						want := int32(0)
						if wasClosed {
							want = 1
						}
						require.Equal(t, want, c.closes.Load(), "after %v of %v", order[:i+1], order)
					}
					require.EqualValues(t, 1, c.closes.Load())
				})
			})
		})
	}
}

// inBubble: in virtual time closing.Soon waits for every Close, however slow the machine is.
func inBubble(t *testing.T, f func(*testing.T)) { synctest.Test(t, f) }

// The context may end before the first attempt.
func TestBodyThatNoAttemptReadsIsClosedBySeal(t *testing.T) {
	for _, getBody := range []func() (io.ReadCloser, error){nil, func() (io.ReadCloser, error) { return nil, nil }} {
		inBubble(t, func(t *testing.T) {
			var c closer
			b := Of(&http.Request{Body: plainBody{strings.NewReader(text), &c}, GetBody: getBody}, 1000)
			b.Seal(false)
			assert.EqualValues(t, 1, c.closes.Load())
			b.Seal(true)
			assert.EqualValues(t, 1, c.closes.Load())
		})
	}
}

func TestLeaseThatIsCutCannotBeOpened(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			s := newBody(kind.make([]byte(text), new(closer)), 1000)
			l := lease(t, s, nil)
			l.Cut()
			l.Cut()
			_, err := l.Open()
			assert.Equal(t, ErrOver, err)
			assert.True(t, s.Repeatable())
			assert.Equal(t, text, readAll(t, open(t, lease(t, s, l))))
		})
	}
}

func TestSealedBodyCanStillBeOpenedWhileItIsRead(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // Close takes no time here
				var c closer
				s := newBody(kind.make([]byte(text), &c), 1000)
				l := lease(t, s, nil)
				a := open(t, l)
				s.Seal(false)
				_, err := leaseInstead(l)
				assert.Equal(t, ErrSpent, err, "there is no further attempt")
				b := open(t, l)
				assert.Equal(t, text, readAll(t, a))
				require.NoError(t, a.Close())
				assert.Zero(t, c.closes.Load())
				assert.Equal(t, text, readAll(t, b))
				require.NoError(t, b.Close())
				assert.EqualValues(t, 1, c.closes.Load())
			})
		})
	}
}

func TestReaderThatIsOverGivesNothing(t *testing.T) {
	for _, kind := range kinds {
		for name, end := range map[string]func(*Body, *Lease, *Reader){
			"closed":   func(_ *Body, _ *Lease, r *Reader) { r.Close() },
			"replaced": func(s *Body, l *Lease, _ *Reader) { leaseInstead(l) },
			"cut off":  func(_ *Body, l *Lease, _ *Reader) { l.Cut() },
			"sealed":   func(s *Body, _ *Lease, _ *Reader) { s.Seal(true) },
		} {
			t.Run(kind.name+"/"+name, func(t *testing.T) {
				s := newBody(kind.make([]byte(text), new(closer)), 1000)
				l := lease(t, s, nil)
				r := open(t, l)
				read(t, open(t, l), 20) // what is on record is over too
				read(t, r, 5)
				end(s, l, r)
				failsWith(t, r, ErrOver)
				n, err := r.Read(nil)
				assert.Zero(t, n)
				assert.Equal(t, ErrOver, err)
				assert.NoError(t, r.Close(), "closing it again is no error")
			})
		}
	}
}

// net/http looks for the end once it has sent what was announced, and an error there costs the connection.
func TestReaderThatHasGivenTheAnnouncedLengthIsAtItsEnd(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			s := newBody(kind.make([]byte(text), new(closer)), 1000)
			s.length = int64(len(text))
			l := lease(t, s, nil)
			r := open(t, l)
			read(t, r, len(text))
			l.Cut()
			failsWith(t, r, io.EOF)
		})
	}
}

// Cutting off the old attempt for a retry that cannot be would cost the caller
// what the old attempt still brings.
func TestLeaseThatIsRefusedLeavesTheOldAttemptAlone(t *testing.T) {
	t.Run("spent", func(t *testing.T) {
		s := New(plainBody{strings.NewReader(text), new(closer)}, 3)
		l := lease(t, s, nil)
		r := open(t, l)
		head := read(t, r, 4)
		_, err := leaseInstead(l)
		require.Equal(t, ErrSpent, err)
		assert.Equal(t, text, head+readAll(t, r))
	})
	t.Run("sealed", func(t *testing.T) {
		s := New(seekBody{strings.NewReader(text), new(closer)}, 3)
		l := lease(t, s, nil)
		r := open(t, l)
		head := read(t, r, 4)
		s.Seal(false)
		_, err := leaseInstead(l)
		require.Equal(t, ErrSpent, err)
		assert.Equal(t, text, head+readAll(t, r))
	})
}

// The function fills the attempt's trailer. Another reader of the same lease may fill
// it at that moment, or a reader that has met the end may read it. Without the race
// detector this test cannot fail.
func TestTrailerIsFilledBeforeReadReturnsTheEnd(t *testing.T) {
	content, body := chanBody()
	b := New(body, 1000)
	announceTrailer(b)
	l, other := lease(t, b, nil), lease(t, b, nil)
	done := make(chan bool)
	for range 2 {
		r := open(t, l)
		go func() {
			io.Copy(io.Discard, r)
			done <- toldOfEnd(l)
		}()
	}
	content <- []byte(text)
	assert.False(t, toldOfEnd(l))
	close(content)
	for range 2 {
		assert.True(t, <-done)
	}
	assert.False(t, toldOfEnd(other), "the end was met by another attempt")
}

func TestFailureDoesNotFillTheTrailer(t *testing.T) {
	b := New(plainBody{iotest.ErrReader(io.ErrUnexpectedEOF), new(closer)}, 1000)
	announceTrailer(b)
	l := lease(t, b, nil)
	r := open(t, l)
	failsWith(t, r, &ReadError{io.ErrUnexpectedEOF})
	assert.False(t, toldOfEnd(l))
	r.Close()
	failsWith(t, r, ErrOver)
}

func TestBodyThatFailsIsTheCauseOfAReadError(t *testing.T) {
	broken := errors.New("the disk is on fire")
	for _, c := range []struct {
		name string
		body io.ReadCloser
		want string // what comes before the error
	}{
		{"section", &faultyFile{size: 9, head: text[:4], err: broken}, text[:4]},
		{"rewinder", seekBody{&faultySeeker{Reader: strings.NewReader(text), failAt: 4, err: broken}, new(closer)}, text[:4]},
		{"stream", plainBody{io.MultiReader(strings.NewReader(text[:4]), iotest.ErrReader(broken)), new(closer)}, text[:4]},
		{"stream that fails with its last bytes", plainBody{
			iotest.DataErrReader(io.MultiReader(strings.NewReader(text[:4]), iotest.ErrReader(broken))), new(closer),
		}, text[:4]},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newBody(c.body, 1000)
			for range 2 {
				got, err := io.ReadAll(open(t, lease(t, s, nil)))
				assert.Equal(t, c.want, string(got))
				readError, ok := errors.AsType[*ReadError](err)
				require.True(t, ok, "%T", err)
				assert.ErrorIs(t, err, broken)
				assert.Equal(t, broken.Error(), readError.Error())
			}
		})
	}
}

// serialBody lets neither its Read nor its Close begin before the other is
// done, as the body of a request that net/http's server received. A channel
// stands in for the mutex: a goroutine that waits for a mutex would keep a
// bubble from finding a deadlock.
type serialBody struct {
	closer
	lock chan struct{}
	body io.Reader
}

func newSerialBody(body io.Reader) *serialBody {
	return &serialBody{lock: make(chan struct{}, 1), body: body}
}

func (b *serialBody) Read(p []byte) (int, error) {
	b.lock <- struct{}{}
	defer func() { <-b.lock }()
	return b.body.Read(p)
}

func (b *serialBody) Close() error {
	b.lock <- struct{}{}
	defer func() { <-b.lock }()
	return b.closer.Close()
}

// endings are the ways in which a source loses its last reader and is sealed.
var endings = map[string]func(*Body, *Reader){
	"closed, then sealed":  func(s *Body, r *Reader) { r.Close(); s.Seal(false) },
	"sealed, then closed":  func(s *Body, r *Reader) { s.Seal(false); r.Close() },
	"cut off, then sealed": func(s *Body, r *Reader) { r.lease.Cut(); s.Seal(false) },
	"sealed, then cut off": func(s *Body, r *Reader) { s.Seal(false); r.lease.Cut() },
	"cut off by the seal":  func(s *Body, _ *Reader) { s.Seal(true) },
}

func TestCloseFreesAReadThatIsUnderWay(t *testing.T) {
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pipe, _ := io.Pipe() // nobody writes
				freed := make(chan error, 1)
				s := New(plainPipe{readerFunc(func(p []byte) (int, error) {
					n, err := pipe.Read(p)
					freed <- err
					return n, err
				}), pipe}, 1000)
				r := open(t, lease(t, s, nil))
				result := make(chan error, 1)
				go func() {
					_, err := r.Read(make([]byte, 8))
					result <- err
				}()
				synctest.Wait()
				end(s, r)
				assert.Equal(t, ErrOver, <-result)
				assert.Equal(t, io.ErrClosedPipe, <-freed)
			})
		})
	}
}

type plainPipe struct {
	io.Reader
	io.Closer
}

func TestCloseDoesNotWaitForAReadThatIsUnderWay(t *testing.T) {
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				content, stalled := chanBody()
				body := newSerialBody(stalled)
				s := newBody(body, 1000)
				r := open(t, lease(t, s, nil))
				result := make(chan error, 1)
				go func() {
					_, err := r.Read(make([]byte, 100))
					result <- err
				}()
				synctest.Wait()
				end(s, r) // a deadlock if it waited
				assert.Equal(t, ErrOver, <-result)
				synctest.Wait()
				assert.Zero(t, body.closes.Load(), "the body itself makes its Close wait")
				content <- []byte(text)
				synctest.Wait()
				assert.EqualValues(t, 1, body.closes.Load())
				r.Close()
				s.Seal(true)
				synctest.Wait()
				assert.EqualValues(t, 1, body.closes.Load())
			})
		})
	}
}

// A Read may look at its reader just before that is cut off, and come to the
// body just after.
func TestBodyIsNotUsedAfterItsClose(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var c closer
				s := newBody(kind.make([]byte(text), &c), 1000)
				l := lease(t, s, nil)
				r := open(t, l)
				read(t, r, 3)
				s.Seal(true)
				require.EqualValues(t, 1, c.closes.Load())
				assert.False(t, r.enter())
			})
		})
	}
}

func TestBodyThatNewRequestCanOpenAgainIsSentAsItIs(t *testing.T) {
	for _, body := range []io.Reader{bytes.NewBufferString(text), bytes.NewReader([]byte(text)), strings.NewReader(text)} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://host/", body)
		require.NoError(t, err)
		assert.Nil(t, For(req, true, true, 1<<10), "%T", body)
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
		assert.NotNil(t, For(req, true, true, 1<<10), "%T", body)
	}
}
