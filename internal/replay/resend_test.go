package replay

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A resend within one attempt (net/http's HTTP/2): the first reader is closed in
// a Read, the second waits for the body.
func TestResendWithinTheAttemptGoesOnPastTheLimit(t *testing.T) {
	for _, limit := range []int64{-1, 4, 100} {
		gate := make(chan struct{})
		first := true
		s := New(plainBody{readerFunc(func(p []byte) (int, error) {
			if first {
				first = false
				<-gate
				return copy(p, text), nil
			}
			return 0, io.EOF
		}), new(closer)}, limit)
		l := lease(t, s, nil)
		a := open(t, l)
		started := make(chan struct{})
		go func() { close(started); a.Read(make([]byte, 100)) }()
		<-started
		time.Sleep(20 * time.Millisecond)
		a.Close()
		b := open(t, l)
		go func() { time.Sleep(20 * time.Millisecond); close(gate) }()
		got, err := io.ReadAll(b)
		assert.NoError(t, err, "limit %d", limit)
		assert.Equal(t, text, string(got), "limit %d", limit)
	}
}

func TestPanicOfReadDoesNotTruncateTheNextAttempt(t *testing.T) {
	for _, k := range []string{"stream", "seeker"} {
		t.Run(k, func(t *testing.T) {
			under := bytes.NewReader([]byte(text))
			n := 0
			rd := func(p []byte) (int, error) {
				n++
				if n == 1 {
					io.ReadFull(under, make([]byte, 5))
					panic("once")
				}
				return under.Read(p)
			}
			var s *Body
			if k == "stream" {
				s = New(plainBody{readerFunc(rd), new(closer)}, 1000)
			} else {
				h := &hookedSeeker{Reader: under, read: rd}
				s = New(seekBody{h, new(closer)}, 0)
			}
			l := lease(t, s, nil)
			require.Panics(t, func() { io.ReadAll(open(t, l)) })
			l2, err := l.Next(new(http.Request), 0)
			if err != nil {
				return
			}
			got, err := io.ReadAll(open(t, l2))
			if err == nil {
				assert.Equal(t, text, string(got))
			}
		})
	}
}

// net/http opens a body for a resend, finds no connection, and forgets it. A base
// that sends what GetBody returns never looks at the first.
func TestABodyThatAResendForgotIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, sealedFirst := range []bool{true, false} {
			var closes closer
			s := New(plainBody{bytes.NewReader([]byte(text)), &closes}, 100)
			l := lease(t, s, nil)
			first := open(t, l)
			forgotten := open(t, l)
			newest := open(t, l)
			if sealedFirst {
				s.Seal(false)
			}
			got, err := io.ReadAll(newest)
			require.NoError(t, err)
			assert.Equal(t, text, string(got))
			require.NoError(t, newest.Close())
			s.Seal(false)
			assert.EqualValues(t, 1, closes.closes.Load())
			for _, r := range []*Reader{first, forgotten} {
				_, err = r.Read(make([]byte, 1))
				assert.Equal(t, ErrOver, err)
			}
		}
	})
}

// A base that signs reads what GetBody returns to its end, and may not close it.
func TestABodyThatWasReadToItsEndIsClosed(t *testing.T) {
	for name, body := range map[string]func(*closer) io.ReadCloser{
		"stream":  func(c *closer) io.ReadCloser { return plainBody{bytes.NewReader([]byte(text)), c} },
		"section": func(c *closer) io.ReadCloser { return fileBody{bytes.NewReader([]byte(text)), c} },
		"seeker":  func(c *closer) io.ReadCloser { return seekBody{bytes.NewReader([]byte(text)), c} },
	} {
		for _, sealedFirst := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, sealed first: %v", name, sealedFirst), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var closes closer
					s := newBody(body(&closes), 100)
					r := open(t, lease(t, s, nil))
					if sealedFirst {
						s.Seal(false)
					}
					_, err := io.CopyN(io.Discard, r, int64(len(text)))
					require.NoError(t, err)
					_, err = r.Read(make([]byte, 1))
					require.Equal(t, io.EOF, err)
					assert.Equal(t, sealedFirst, closes.closes.Load() == 1, "a further attempt may need it")
					s.Seal(false)
					assert.EqualValues(t, 1, closes.closes.Load())
					require.NoError(t, r.Close())
					assert.EqualValues(t, 1, closes.closes.Load())
				})
			})
		}
	}
}

// A base may open several, and use one that is neither the first nor the newest,
// although it has answered.
func TestABodyIsNotClosedUnderAReaderInUse(t *testing.T) {
	var closes closer
	s := New(plainBody{bytes.NewReader([]byte(text)), &closes}, 100)
	l := lease(t, s, nil)
	first := open(t, l)
	used := open(t, l)
	newest := open(t, l)
	s.Seal(false)
	_, err := used.Read(make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, first.Close())
	require.NoError(t, newest.Close())
	got := read(t, used, len(text)-1)
	assert.Equal(t, text[1:], got)
	assert.Zero(t, closes.closes.Load())
	require.NoError(t, used.Close())
	assert.EqualValues(t, 1, closes.closes.Load())
}

// A base may have signed with another reader, and begin to send after the response.
func TestBodyThatIsReadLateIsNotClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // Close takes no time here
		var closes closer
		s := New(plainBody{bytes.NewReader([]byte(text)), &closes}, 100)
		s.late = true
		l := lease(t, s, nil)
		first, signed := open(t, l), open(t, l)
		readAll(t, signed)
		require.NoError(t, signed.Close())
		s.Seal(false)
		assert.Equal(t, text, readAll(t, first))
		assert.EqualValues(t, 1, closes.closes.Load())

		var opened closer
		get := func() (io.ReadCloser, error) { return plainBody{bytes.NewReader([]byte(text)), new(closer)}, nil }
		req := &http.Request{Body: plainBody{bytes.NewReader([]byte(text)), &opened}, GetBody: get}
		req.Header = http.Header{"Expect": {"100-continue"}}
		r := Of(req, 0)
		o := r.First(new(http.Request))
		body := o.newest
		clone, err := o.Open()
		require.NoError(t, err)
		readAll(t, clone)
		require.NoError(t, clone.Close())
		r.Seal(false)
		assert.Zero(t, opened.closes.Load())
		assert.Equal(t, text, readAll(t, body))
		assert.EqualValues(t, 1, opened.closes.Load())
	})
}
