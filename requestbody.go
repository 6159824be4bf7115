package retryhttp

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/retryhttp/retryhttp/internal/replay"
)

// bodies gives every attempt of one request a body of its own. It is nil for a
// request whose body is sent as it is: it has none, or http.NewRequest made its
// GetBody, or no retry can follow.
type bodies struct {
	source   *replay.Source   // of a body without a GetBody
	reopener *replay.Reopener // of a GetBody that http.NewRequest did not make

	trailer http.Header // as the caller announced it
	limit   int64       // how much of a stream is kept
	hidden  bool        // no attempt has a GetBody
}

// reading is one attempt's right to read the body, from the source or from the
// reopener. The zero value is for a body that is sent as it is.
type reading struct {
	lease     *replay.Lease
	reopening *replay.Reopening
}

// cut ends the attempt's reading.
func (r reading) cut() {
	r.lease.Cut()
	r.reopening.Cut()
}

// bodiesOf decides how the attempts of req, which has a body, send it.
func bodiesOf(req *http.Request, p *Policy) *bodies {
	inMemory := madeByNewRequest(req.GetBody)
	keyed := req.GetBody != nil && keyedForNetHTTP(req.Header) // else it makes no difference
	if inMemory && !keyed {
		return nil
	}
	idempotent := p.Idempotent(req)
	retries := p.MaxAttempts != 1 && (idempotent || p.RetryUnprocessed)
	// net/http goes by GetBody, and by the key, the method or the connection's end,
	// and would send the request again unseen.
	hidden := !idempotent && (keyed || req.GetBody == nil)
	asItIs := inMemory || !retries && (p.AttemptTimeout <= 0 || req.GetBody != nil)
	if asItIs && !(hidden && req.GetBody != nil) {
		return nil
	}
	b := &bodies{hidden: hidden, limit: p.MaxBodyBytes}
	if !retries {
		b.limit = -1
	}
	if asItIs {
		return b
	}
	b.trailer = req.Trailer.Clone()
	late := req.Header.Get("Expect") != ""
	if req.GetBody == nil {
		b.source = replay.New(req.Body, b.limit)
		b.source.Late = late
		b.source.Length = req.ContentLength
	} else {
		b.reopener = replay.NewReopener(req.GetBody)
		b.reopener.Late = late
		b.reopener.Length = req.ContentLength
	}
	return b
}

// repeatable reports whether the body of req can be sent again.
func (b *bodies) repeatable(req *http.Request) bool {
	switch {
	case b != nil && b.source != nil:
		return b.source.Repeatable()
	case b != nil && b.reopener != nil:
		return true
	}
	return !hasBody(req) || madeByNewRequest(req.GetBody)
}

// release says that there will be no further attempt. If the last one failed,
// nothing reads its body any more.
func (b *bodies) release(failed bool) {
	switch {
	case b == nil:
	case b.source != nil:
		b.source.Seal(failed)
	case b.reopener != nil:
		b.reopener.Seal(failed)
	}
}

// open gives next, a copy of the caller's request req, the body for the attempt that
// follows on previous; it is the zero reading for the first attempt. It may wait for a
// Read of the previous attempt, for as long as patience.
func (b *bodies) open(req, next *http.Request, first bool, previous reading, patience time.Duration) (reading, error) {
	var opened reading
	var err error
	switch {
	case b != nil && b.source != nil:
		opened, err = b.lend(req, next, previous)
	case b != nil && b.reopener != nil:
		opened, err = b.reopen(req, next, previous, patience)
	case !first:
		next.Body, err = req.GetBody()
	}
	if b != nil && b.hidden {
		next.GetBody = nil
	}
	return opened, err
}

// readableBeside reports whether two attempts of req may read its body at once.
func (b *bodies) readableBeside(req *http.Request) bool {
	if b != nil && b.source != nil {
		return b.source.RandomAccess()
	}
	return !hasBody(req) || req.GetBody != nil
}

// openBeside gives next a body for an attempt beside elder's. A GetBody that
// http.NewRequest did not make is called only if nobody has a body open.
func (b *bodies) openBeside(req, next *http.Request, elder reading) (reading, error) {
	switch {
	case b != nil && b.source != nil:
		lease, err := b.source.Beside(req.Context(), elder.lease, b.ownTrailer(req, next))
		if err != nil {
			return reading{}, err
		}
		return b.read(next, lease, req.ContentLength)
	case b != nil && b.reopener != nil:
		opened, err := b.reopener.Beside(elder.reopening, b.ownTrailer(req, next))
		if err != nil {
			return reading{}, err
		}
		return reopened(next, opened), nil
	}
	body, err := req.GetBody()
	if err != nil {
		return reading{}, err
	}
	r := replay.NewReopener(req.GetBody) // so that the reading can be cut
	r.Length = req.ContentLength
	return reopened(next, r.Begin(body, nil)), nil
}

// ownTrailer gives next a Trailer of its own, and returns what fills it at the end of
// the body. A body may set the values of req.Trailer when it is read to its end, which
// an earlier attempt may be doing while the new one looks at its keys.
func (b *bodies) ownTrailer(req, next *http.Request) (atEOF func()) {
	if len(b.trailer) == 0 {
		return nil
	}
	trailer := b.trailer.Clone()
	next.Trailer = trailer
	return func() { maps.Copy(trailer, req.Trailer) }
}

func (b *bodies) lend(req, next *http.Request, previous reading) (reading, error) {
	lease, err := b.source.Lease(req.Context(), previous.lease, b.ownTrailer(req, next))
	if err != nil {
		return reading{}, err
	}
	return b.read(next, lease, req.ContentLength)
}

// read has next read the source through lease.
func (b *bodies) read(next *http.Request, lease *replay.Lease, length int64) (reading, error) {
	// A base that finds a GetBody counts on it, at any time. A stream may outgrow
	// what is kept, unless its length is known.
	if !b.source.Recorded() || 0 < length && length <= b.limit {
		next.GetBody = lease.Open
	}
	body, err := lease.Open()
	next.Body = body
	return reading{lease: lease}, err
}

func (b *bodies) reopen(req, next *http.Request, previous reading, patience time.Duration) (reading, error) {
	atEOF := b.ownTrailer(req, next)
	var opened *replay.Reopening
	var err error
	if previous.reopening == nil {
		opened = b.reopener.Begin(req.Body, atEOF)
	} else {
		opened, err = b.reopener.Reopen(req.Context(), previous.reopening, patience, atEOF)
	}
	if err != nil {
		return reading{}, err
	}
	return reopened(next, opened), nil
}

// reopened has next read what was opened.
func reopened(next *http.Request, opened *replay.Reopening) reading {
	next.Body, next.GetBody = opened.Body(), opened.Open
	return reading{reopening: opened}
}

// madeByNewRequest reports whether getBody is what http.NewRequest makes for a
// body in memory. The readers that it returns have positions of their own and
// never fail. It compares code pointers, for the closures of one function
// literal share one.
func madeByNewRequest(getBody func() (io.ReadCloser, error)) bool {
	if getBody == nil {
		return false
	}
	code, made := reflect.ValueOf(getBody).Pointer(), inMemory()
	return code == made[0] || code == made[1] || code == made[2]
}

var inMemory = sync.OnceValue(func() (code [3]uintptr) {
	for i, body := range []io.Reader{bytes.NewBufferString("x"), bytes.NewReader([]byte("x")), strings.NewReader("x")} {
		req, _ := http.NewRequest(http.MethodPut, "", body)
		code[i] = reflect.ValueOf(req.GetBody).Pointer()
	}
	return code
})

// sentAtOnce reports whether req's body is as good as sent with its header: it is
// in memory, and fits into the window that HTTP/2 begins with. To watch it, too,
// would take a third of the time of a small request more, for net/http sends the
// header by itself unless it finds one of these types.
func sentAtOnce(req *http.Request) bool {
	return 0 < req.ContentLength && req.ContentLength < 64<<10 && isInMemory(req.Body)
}

// isInMemory reports whether body is what io.NopCloser makes of a body in memory,
// whose Read never waits. net/http's isKnownInMemoryReader looks the same way.
func isInMemory(body io.ReadCloser) bool {
	if reflect.TypeOf(body) != nopCloserWriterTo {
		return false
	}
	switch reflect.ValueOf(body).Field(0).Interface().(type) {
	case *bytes.Reader, *bytes.Buffer, *strings.Reader:
		return true
	}
	return false
}

// nopCloserWriterTo is what io.NopCloser makes of what has WriteTo, as these have.
var nopCloserWriterTo = reflect.TypeOf(io.NopCloser(new(bytes.Buffer)))

func hasBody(req *http.Request) bool {
	return req.Body != nil && req.Body != http.NoBody
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}
