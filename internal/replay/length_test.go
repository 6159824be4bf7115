package replay

import (
	"bytes"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// net/http looks for the end of a body again after the bytes it has announced, when the
// server may have answered.
func TestEndOfTheAnnouncedLengthIsMetAfterTheAttempt(t *testing.T) {
	for name, c := range map[string]struct {
		length int64
		sent   int
		want   error
	}{
		"all was sent":        {int64(len(text)), len(text), io.EOF},
		"a byte is missing":   {int64(len(text)), len(text) - 1, ErrOver},
		"more than announced": {int64(len(text)) - 1, len(text), ErrOver},
		"unknown length":      {-1, len(text), ErrOver},
		"no length":           {0, 0, ErrOver},
	} {
		for _, kind := range kinds {
			if kind.name == "section" {
				continue // it knows its end
			}
			t.Run(name+", "+kind.name, func(t *testing.T) {
				s := newSource(kind.make([]byte(text), new(closer)), 100)
				s.length = c.length
				l := lease(t, s, nil)
				r := open(t, l)
				read(t, r, c.sent)
				l.Cut()
				failsWith(t, r, c.want)
				failsWith(t, r, c.want)
			})
		}
		t.Run(name+", GetBody", func(t *testing.T) {
			r, o := begin(plainBody{bytes.NewReader([]byte(text)), new(closer)}, nil)
			r.length = c.length
			read(t, o.Body(), c.sent)
			o.Cut()
			failsWith(t, o.Body(), c.want)
			failsWith(t, o.Body(), c.want)
		})
	}
}

// The Read that looks for the end may wait for the body while its attempt ends.
func TestEndOfTheAnnouncedLengthIsMetByAReadUnderWay(t *testing.T) {
	for kind, body := range turnTakers {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				content := bytes.NewReader([]byte(text))
				s := New(body(func(p []byte) (int, error) {
					if content.Len() == 0 {
						time.Sleep(time.Minute)
					}
					return content.Read(p)
				}), 100)
				s.length = int64(len(text))
				l := lease(t, s, nil)
				r := open(t, l)
				if seeker, ok := s.body.(seekBody); ok {
					seeker.ReadSeeker.(*hookedSeeker).Reader = content
				}
				read(t, r, len(text))
				time.AfterFunc(time.Second, l.Cut)
				start := time.Now()
				failsWith(t, r, io.EOF)
				assert.Equal(t, time.Second, time.Since(start))
				time.Sleep(time.Minute) // for the Read of the body
			})
		})
	}
}
