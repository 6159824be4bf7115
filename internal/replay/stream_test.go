package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func streamOf(content string, limit int64) (*Body, *stream) {
	s := New(plainBody{strings.NewReader(content), new(closer)}, limit)
	return s, s.origin.(*stream)
}

func TestStreamCanBeRepeatedUpToTheLimitAndNotBeyond(t *testing.T) {
	for _, c := range []struct {
		size, limit int64
		repeatable  bool
	}{
		{0, 0, true},
		{1, 0, false},
		{0, 1, true},
		{9, 10, true},
		{10, 10, true},
		{11, 10, false},
		{10_000, 10_000, true},
		{10_001, 10_000, false},
		{0, -1, true}, // nothing was sent that would have to be kept
		{1, -1, false},
		{10, -10, false},
	} {
		for _, chunk := range []int{1, 3, 20_000} {
			t.Run(fmt.Sprintf("%d of %d by %d", c.size, c.limit, chunk), func(t *testing.T) {
				content := make([]byte, c.size)
				rot(1).Read(content)
				s, st := streamOf(string(content), c.limit)
				l := lease(t, s, nil)
				r := open(t, l)
				assert.True(t, s.Repeatable(), "nothing was sent yet")

				var got []byte
				p := make([]byte, chunk)
				for {
					n, err := r.Read(p)
					got = append(got, p[:n]...)
					if int64(len(got)) > max(c.limit, 0) {
						assert.False(t, s.Repeatable())
						assert.Nil(t, st.record, "what is of no use is not kept")
					}
					if err != nil {
						require.Equal(t, io.EOF, err)
						break
					}
					assert.Equal(t, int64(len(got)) <= max(c.limit, 0), s.Repeatable())
				}
				assert.True(t, bytes.Equal(content, got), "the attempt reads on to the exact end")

				assert.Equal(t, c.repeatable, s.Repeatable())
				second, err := follow(l)
				if !c.repeatable {
					assert.Equal(t, ErrSpent, err)
					assert.Nil(t, second)
					_, err = l.Open()
					assert.Equal(t, ErrSpent, err)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, string(content), readAll(t, open(t, second)))
				assert.Equal(t, string(content), readAll(t, open(t, l)))
			})
		}
	}
}

// Whether a stream can be sent again depends on what was sent and not on how
// long it is.
func TestLongStreamCanBeRepeatedWhileLittleOfItWasSent(t *testing.T) {
	s, _ := streamOf(text, 10)
	var l *Lease
	for _, n := range []int{0, 1, 9, 10} {
		l = lease(t, s, l)
		assert.Equal(t, text[:n], read(t, open(t, l), n))
	}
	l = lease(t, s, l)
	assert.Equal(t, text, readAll(t, open(t, l)))
	assert.False(t, s.Repeatable())
}

func TestReaderLeftBehindByASpentStreamFails(t *testing.T) {
	s, _ := streamOf(text, 10)
	l := lease(t, s, nil)
	a, behind, unread := open(t, l), open(t, l), open(t, lease(t, s, nil))
	assert.Equal(t, text[:3], read(t, behind, 3))
	got := read(t, a, 11)
	failsWith(t, behind, ErrSpent)
	failsWith(t, unread, ErrSpent)
	assert.Equal(t, text, got+readAll(t, a))
	failsWith(t, behind, ErrSpent)
}

func TestSpentStreamKeepsNothingOfAReadLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		content, body := chanBody()
		s := New(body, 3)
		l := lease(t, s, nil)
		r := open(t, l)
		go func() {
			read(t, r, 9)
			r.Read(make([]byte, 100))
		}()
		content <- []byte(text[:9])
		synctest.Wait()
		l.Cut()
		content <- []byte(text[9:])
		synctest.Wait()
		assert.Nil(t, s.origin.(*stream).record)
		assert.False(t, s.Repeatable())
	})
}

func TestStreamIsNeverReadAheadOfWhatAReaderAskedFor(t *testing.T) {
	var asked []int
	content := strings.NewReader(text)
	s := New(plainBody{readerFunc(func(p []byte) (int, error) {
		asked = append(asked, len(p))
		return content.Read(p)
	}), new(closer)}, 1000)
	first := lease(t, s, nil)
	r := open(t, first)
	assert.Empty(t, asked)
	read(t, r, 5)
	read(t, r, 3)
	assert.Equal(t, []int{5, 3}, asked)

	second := open(t, lease(t, s, first))
	p := make([]byte, 20)
	n, err := second.Read(p)
	require.NoError(t, err)
	assert.Equal(t, text[:8], string(p[:n]), "what is on record is given at once")
	assert.Equal(t, []int{5, 3}, asked, "the body may have nothing more to give yet")
	read(t, second, 2)
	assert.Equal(t, []int{5, 3, 2}, asked)
	s.Seal(true)
	assert.Equal(t, []int{5, 3, 2}, asked)
}

// The old attempt's Read cannot be taken back: the new attempt is promised a
// body whose next bytes are still on their way into the old one's buffer.
func TestBytesOfAReadUnderWayReachTheAttemptThatFollows(t *testing.T) {
	for _, limit := range []int64{1000, int64(len(text)), 14, 10, 9, 5} {
		for _, cutBefore := range []bool{false, true} { // by its timeout, before the retry is certain
			for _, bytesBefore := range []bool{false, true} { // of the new attempt
				if bytesBefore && !cutBefore && limit < 14 {
					continue // the old attempt, which is not over, takes its bytes past the limit
				}
				t.Run(fmt.Sprintf("limit %d, cut %t, bytes %t", limit, cutBefore, bytesBefore), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						content, body := chanBody()
						s := New(body, limit)
						old := lease(t, s, nil)
						r := open(t, old)
						first := make(chan error, 1)
						go func() {
							assert.Equal(t, text[:5], read(t, r, 5))
							_, err := r.Read(make([]byte, 100))
							first <- err
						}()
						content <- []byte(text[:5])
						synctest.Wait() // the second Read is under way
						if cutBefore {
							old.Cut()
						}
						if bytesBefore {
							content <- []byte(text[5:14])
							synctest.Wait()
						}
						l := lease(t, s, old)
						second := make(chan string, 1)
						go func() {
							p, _ := io.ReadAll(open(t, l))
							second <- string(p)
						}()
						synctest.Wait()
						if !bytesBefore {
							content <- []byte(text[5:14])
						}
						if cutBefore || !bytesBefore {
							assert.Equal(t, ErrOver, <-first)
						}
						content <- []byte(text[14:])
						close(content)
						assert.Equal(t, text, <-second)
						assert.Equal(t, limit >= int64(len(text)), s.Repeatable())
					})
				})
			}
		}
	}
}

// A Read that was left behind must not write to the buffer of its caller, which may use it again.
func TestReadLeftBehindDoesNotWriteToItsCallersBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		content, body := chanBody()
		s := New(body, 1000)
		l := lease(t, s, nil)
		r := open(t, l)
		p := []byte("mine, from now on")
		done := make(chan error, 1)
		go func() {
			_, err := r.Read(p)
			done <- err
		}()
		synctest.Wait()
		l.Cut()
		assert.Equal(t, ErrOver, <-done)
		content <- []byte("late")
		synctest.Wait()
		assert.Equal(t, "mine, from now on", string(p))
		assert.Equal(t, "late", read(t, open(t, lease(t, s, l)), 4))
	})
}

// The bytes of a Read that was ended are not lost, neither to a reader that tries again nor to
// others.
func TestReadThatItsContextEndedLeavesItsBytesOnRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		content, body := chanBody()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s := newIn(ctx, body, 1000)
		r := open(t, lease(t, s, nil))
		failsWith(t, r, context.DeadlineExceeded)
		content <- []byte("late")
		synctest.Wait()
		assert.Equal(t, "late", read(t, r, 4))
		assert.Equal(t, "late", read(t, open(t, lease(t, s, nil)), 4))
	})
}

func TestEndMetByAReadUnderWayReachesTheAttemptThatFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		content, body := chanBody()
		s := New(body, 1000)
		old := lease(t, s, nil)
		go open(t, old).Read(make([]byte, 8))
		synctest.Wait()
		announceTrailer(s)
		l := lease(t, s, old)
		result := make(chan error, 1)
		go func() {
			_, err := open(t, l).Read(make([]byte, 8))
			result <- err
		}()
		synctest.Wait()
		close(content)
		assert.Equal(t, io.EOF, <-result)
		assert.True(t, toldOfEnd(l))
	})
}

// A reader that had no turn goes on from the bytes that the other reader has brought.
func TestReadersWaitingForAStreamGetItsBytesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		content, body := chanBody()
		s := New(body, 1000)
		l := lease(t, s, nil)
		results := make(chan string, 3)
		for range cap(results) {
			r := open(t, l)
			go func() {
				p, _ := io.ReadAll(r)
				results <- string(p)
			}()
		}
		for _, b := range []byte(text) {
			synctest.Wait()
			content <- []byte{b}
		}
		close(content)
		for range cap(results) {
			assert.Equal(t, text, <-results)
		}
	})
}

// The record of a body that failed is worth as much as any other, and its end
// is the failure: a second Read of the body might well say io.EOF.
func TestStreamThatFailedFailsForEveryAttemptAtTheSameByte(t *testing.T) {
	broken := errors.New("the connection is gone")
	s := New(plainBody{io.MultiReader(
		strings.NewReader(text[:12]), &onceReader{err: broken}, strings.NewReader(text[12:])), new(closer)}, 1000)
	l := lease(t, s, nil)
	for range 3 {
		r := open(t, l)
		got, err := io.ReadAll(r)
		assert.Equal(t, text[:12], string(got))
		assert.Equal(t, &ReadError{broken}, err)
		failsWith(t, r, &ReadError{broken})
	}
}

// As many bytes as were announced may be there, and the body may still not be what its owner meant.
func TestStreamThatFailsAtItsAnnouncedLengthFails(t *testing.T) {
	broken := errors.New("the checksum is wrong")
	s := New(plainBody{io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken)), new(closer)}, 1000)
	s.length = int64(len(text))
	got, err := io.ReadAll(open(t, lease(t, s, nil)))
	assert.Equal(t, text, string(got))
	assert.Equal(t, &ReadError{broken}, err)
}

// onceReader fails once and is then at its end.
type onceReader struct{ err error }

func (o *onceReader) Read([]byte) (int, error) {
	err := o.err
	o.err = io.EOF
	return 0, err
}

func TestStreamIsNotReadAgainAfterItsEnd(t *testing.T) {
	reads := 0
	s := New(plainBody{readerFunc(func([]byte) (int, error) {
		if reads++; reads > 1 {
			return 0, errors.New("read after its end")
		}
		return 0, io.EOF
	}), new(closer)}, 1000)
	l := lease(t, s, nil)
	for range 3 {
		r := open(t, l)
		failsWith(t, r, io.EOF)
		failsWith(t, r, io.EOF)
	}
}

// Both are allowed to an io.Reader.
func TestStreamMayEndWithItsLastBytesAndMayGiveNothing(t *testing.T) {
	empty := true
	hesitant := iotest.DataErrReader(strings.NewReader(text))
	s := New(plainBody{readerFunc(func(p []byte) (int, error) {
		if empty = !empty; !empty {
			return 0, nil
		}
		return hesitant.Read(p[:1])
	}), new(closer)}, int64(len(text)))
	var l *Lease
	for range 2 {
		l = lease(t, s, l)
		assert.Equal(t, text, readAll(t, open(t, l)))
	}
}

func TestStreamWithImpossibleCountsFails(t *testing.T) {
	for name, count := range map[string]int{"negative": -1, "larger than the buffer": 9} {
		for _, limit := range []int64{0, 1000} {
			t.Run(fmt.Sprintf("%s, limit %d", name, limit), func(t *testing.T) {
				s := New(plainBody{readerFunc(func([]byte) (int, error) { return count, nil }), new(closer)}, limit)
				for range 2 {
					failsWith(t, open(t, lease(t, s, nil)), errInvalidRead)
				}
			})
		}
	}
}
