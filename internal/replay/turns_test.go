package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// turnTakers are the bodies whose readers wait for each other.
var turnTakers = map[string]func(read readerFunc) io.ReadCloser{
	"rewinder": func(read readerFunc) io.ReadCloser {
		return seekBody{&hookedSeeker{Reader: bytes.NewReader([]byte(text)), read: read}, new(closer)}
	},
	"stream": func(read readerFunc) io.ReadCloser { return plainBody{read, new(closer)} },
}

// A body may take any time. A Read returns when nobody needs its bytes, whether it is in the
// body's own Read or waits for it.
func TestReadOfABodyThatStallsGivesUp(t *testing.T) {
	broken := errors.New("the body is broken")
	for kind, body := range turnTakers {
		for _, c := range []struct {
			name string
			end  func(s *Body, r *Reader, cancel context.CancelFunc)
			want error
			wait time.Duration
		}{
			{"when its lease is replaced", func(s *Body, r *Reader, _ context.CancelFunc) {
				leaseInstead(r.lease)
			}, ErrOver, 0},
			{"when its lease is cut", func(_ *Body, r *Reader, _ context.CancelFunc) { r.lease.Cut() }, ErrOver, 0},
			{"when the source is sealed", func(s *Body, _ *Reader, _ context.CancelFunc) { s.Seal(true) }, ErrOver, 0},
			{"when it is closed", func(_ *Body, r *Reader, _ context.CancelFunc) { r.Close() }, ErrOver, 0},
			{"when its context is cancelled", func(_ *Body, _ *Reader, cancel context.CancelFunc) {
				cancel()
			}, context.Canceled, 0},
			{"at its deadline", func(*Body, *Reader, context.CancelFunc) {}, context.DeadlineExceeded, time.Minute},
		} {
			for _, waits := range []bool{false, true} { // for another one's Read
				t.Run(fmt.Sprintf("%s/%s/waits %t", kind, c.name, waits), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						stall := make(chan struct{})
						reads := 0
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						defer cancel()
						s := newIn(ctx, body(func([]byte) (int, error) {
							reads++
							<-stall
							return 0, broken
						}), 1000)
						r := open(t, lease(t, s, nil))
						if waits {
							go open(t, lease(t, s, nil)).Read(make([]byte, 8))
							synctest.Wait()
						}
						result := make(chan error, 1)
						go func() {
							n, err := r.Read(make([]byte, 8))
							assert.Zero(t, n)
							result <- err
						}()
						synctest.Wait()
						assert.Empty(t, result, "nothing has happened yet")
						start := time.Now()
						c.end(s, r, cancel)
						assert.Equal(t, c.want, <-result)
						assert.Equal(t, c.wait, time.Since(start))
						close(stall)
						synctest.Wait()
						assert.Equal(t, 1, reads, "the body is read by one at a time, and by none that gave up")
						s.Seal(true)
						synctest.Wait()
						assert.Empty(t, s.opened, "no call is under way")
					})
				})
			}
		}
	}
}

func TestReaderGetsItsTurnWhenTheReadBeforeItReturns(t *testing.T) {
	for kind, body := range turnTakers {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				content := bytes.NewReader([]byte(text))
				b := body(func(p []byte) (int, error) {
					time.Sleep(time.Second)
					return content.Read(p)
				})
				if seeker, ok := b.(seekBody); ok {
					seeker.ReadSeeker.(*hookedSeeker).Reader = content
				}
				s := New(b, 1000)
				old := lease(t, s, nil)
				a := open(t, old)
				go a.Read(make([]byte, 9))
				synctest.Wait()
				r := open(t, lease(t, s, old)) // the previous attempt's read is still under way
				start := time.Now()
				assert.Equal(t, text[:9], read(t, r, 9))
				assert.GreaterOrEqual(t, time.Since(start), time.Second)
				assert.Equal(t, text[9:], readAll(t, r))
			})
		})
	}
}

// A Read may have brought bytes or failed, and its reader may be gone. The next Read has its turn.
func TestTurnIsGivenBackByEveryRead(t *testing.T) {
	broken := errors.New("the body is broken")
	for kind, body := range turnTakers {
		for _, err := range []error{nil, broken, io.EOF} {
			t.Run(fmt.Sprintf("%s/%v", kind, err), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := New(body(func([]byte) (int, error) { return 0, err }), 1000)
					l := lease(t, s, nil)
					for range 3 {
						_, got := open(t, l).Read(make([]byte, 8)) // a deadlock without a turn
						assert.ErrorIs(t, got, err)
					}
				})
			})
		}
	}
}

func TestCountOfAReadMustFitItsBuffer(t *testing.T) {
	for _, c := range []struct {
		n, length int
		ok        bool
	}{{0, 0, true}, {0, 8, true}, {8, 8, true}, {9, 8, false}, {-1, 8, false}, {1, 0, false}} {
		n, err := checked(c.n, io.EOF, c.length)
		if c.ok {
			assert.Equal(t, c.n, n)
			assert.Equal(t, io.EOF, err)
		} else {
			assert.Zero(t, n)
			assert.Equal(t, errInvalidRead, err)
		}
	}
}
