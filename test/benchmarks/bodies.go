package benchmarks

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// bodies is what a peer is asked to do with the bodies of responses, where it has a way.
type bodies struct {
	whole  bool              // send a GET again whose body breaks off
	bad    func([]byte) bool // with whole: also if bad says so; nil: no body is bad
	resume bool              // continue a download that breaks off
}

// bodyOptions are the options that the fields of bodies set. "" is none.
type bodyOptions struct{ whole, bad, resume string }

// allBodies are the options of a peer that has one function for all of them. It has to be
// written for the purpose, and calls bodies.refuses.
func allBodies(option string) bodyOptions {
	return bodyOptions{whole: option, bad: option, resume: option}
}

var errRefused = errors.New("the body broke off, or is bad")

// refuses reads the body of resp, puts it back, and reports whether the request has to be
// sent again for it.
func (b bodies) refuses(resp *http.Response) bool {
	if resp == nil || resp.StatusCode != http.StatusOK {
		return false
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), iotest.ErrReader(cmp.Or(err, io.EOF))))
	return err != nil || b.bad != nil && b.bad(body)
}

const (
	jsonSize     = 2 << 10
	downloadSize = 4 << 20
)

// breaking is a base in memory that serves content, by parts too. The first body breaks off
// in the middle.
type breaking struct {
	content string
	sent    int // bytes of all bodies
}

func (b *breaking) RoundTrip(req *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	answer.Header().Set("ETag", `"one"`)
	answer.Header().Set("Content-Type", "application/json")
	http.ServeContent(answer, req, "", time.Time{}, strings.NewReader(b.content))
	resp := answer.Result()
	resp.Request = req
	served := answer.Body.Len()
	if b.sent == 0 {
		served /= 2
		first := io.LimitReader(resp.Body, int64(served))
		resp.Body = io.NopCloser(io.MultiReader(first, iotest.ErrReader(io.ErrUnexpectedEOF)))
	}
	b.sent += served
	return resp, nil
}

// breaksOff reports whether the caller gets a body of size bytes that breaks off once.
func breaksOff(t *testing.T, p peer, b bodies, size int) (whole bool, sent int) {
	base := &breaking{content: `"` + strings.Repeat("a", size-2) + `"`}
	whole = arrives(t, p, b, base, base.content)
	return whole, base.sent
}

// arrives reports whether a GET has a 200 with this body, to its end.
func arrives(t *testing.T, p peer, b bodies, base http.RoundTripper, want string) bool {
	status, body, err := exchange(p.build(base, settings{attempts: 3, wait: backoff, bodies: b}), newGet(t))
	return err == nil && status == http.StatusOK && body == want
}

func shortBodyBreaksOff(t *testing.T, p peer) verdict {
	return withOption(p.bodies.whole, bodies{whole: true}, func(b bodies) bool {
		whole, _ := breaksOff(t, p, b, jsonSize)
		return whole
	})
}

func downloadBreaksOff(t *testing.T, p peer) verdict {
	var sent int
	v := withOption(p.bodies.resume, bodies{whole: true, resume: true}, func(b bodies) (whole bool) {
		whole, sent = breaksOff(t, p, b, downloadSize)
		return whole
	})
	if v.good() && sent > downloadSize {
		v.note = "from its start"
	}
	return v
}

func errorInA200(t *testing.T, p peer) verdict {
	const bad, good = `{"error":"SlowDown"}`, `{"data":1}`
	retried := func(b bodies) bool {
		n := 0
		return arrives(t, p, b, roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			if n++; n == 1 {
				return answer(req, http.StatusOK, io.NopCloser(strings.NewReader(bad))), nil
			}
			return answer(req, http.StatusOK, io.NopCloser(strings.NewReader(good))), nil
		}), good)
	}
	return withOption(p.bodies.bad, bodies{whole: true, bad: func(body []byte) bool { return string(body) == bad }}, retried)
}

// byDefault is the option of a peer that does the good thing if it is not configured.
const byDefault = "its default"

// withOption tries a good thing without an option and, if that fails, with it.
func withOption(option string, on bodies, does func(bodies) bool) verdict {
	switch {
	case does(bodies{}):
		return verdict{yes: true}
	case option == "" || !does(on):
		return verdict{}
	case option == byDefault:
		return verdict{yes: true}
	}
	return verdict{option: option}
}
