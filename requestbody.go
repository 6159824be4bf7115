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

// bodies gives every attempt of one request its own body. It is nil for a request whose body is
// sent as it is. Such a request has no body, has a GetBody that http.NewRequest made, or cannot
// be retried.
type bodies struct {
	source   *replay.Source   // for a body without a GetBody
	reopener *replay.Reopener // for a GetBody that http.NewRequest did not make

	trailer http.Header // the trailer that the caller announced
	limit   int64       // how many bytes of a stream are kept
	hidden  bool        // GetBody is removed from every attempt
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

// bodiesOf decides how the attempts of req, which has a body, send it. idempotent is the answer of
// Policy.Idempotent.
func bodiesOf(req *http.Request, p *Policy, idempotent bool) *bodies {
	inMemory := madeByNewRequest(req.GetBody)
	keyed := req.GetBody != nil && keyedForNetHTTP(req.Header) // without a GetBody, a key makes no difference
	if inMemory && !keyed {
		return nil
	}
	retries := p.MaxAttempts != 1 && (idempotent || p.RetryUnprocessed)
	// net/http would send the request again unseen. It decides by GetBody, and by the key, the
	// method or the end of the connection.
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

// release declares that there will be no further attempt. If the last attempt failed, nothing
// reads its body any more.
func (b *bodies) release(failed bool) {
	switch {
	case b == nil:
	case b.source != nil:
		b.source.Seal(failed)
	case b.reopener != nil:
		b.reopener.Seal(failed)
	}
}

// open gives next, a copy of the caller's request req, the body for the attempt that follows
// previous. For the first attempt, previous is the zero reading. open may wait up to patience for
// a Read of the previous attempt.
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

// openBeside gives next a body for an attempt that runs beside elder's attempt. It calls a
// GetBody that http.NewRequest did not make only if no attempt has a body open.
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
	r := replay.NewReopener(req.GetBody) // the Reopener makes it possible to cut the reading
	r.Length = req.ContentLength
	return reopened(next, r.Begin(body, nil)), nil
}

// ownTrailer gives next its own Trailer, and returns a function that fills the Trailer at the end
// of the body. A body may set the values of req.Trailer when it is read to its end. An earlier
// attempt may do so while the new attempt looks at the keys of the Trailer.
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

// read makes next read the source through lease.
func (b *bodies) read(next *http.Request, lease *replay.Lease, length int64) (reading, error) {
	// A base that finds a GetBody relies on it at any time. A stream may outgrow the bytes that
	// are kept, unless its length is known.
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

// reopened makes next read the body that was opened.
func reopened(next *http.Request, opened *replay.Reopening) reading {
	next.Body, next.GetBody = opened.Body(), opened.Open
	return reading{reopening: opened}
}

// madeByNewRequest reports whether http.NewRequest made getBody for a body in memory. The readers
// that such a GetBody returns have their own positions and never fail. madeByNewRequest compares
// code pointers, because all closures of one function literal have the same code pointer.
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

func hasBody(req *http.Request) bool {
	return req.Body != nil && req.Body != http.NoBody
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}
