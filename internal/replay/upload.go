package replay

import (
	"bytes"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// Watch wraps the bodies of a request that uploads. It calls Hold with true when the bodies begin to need the
// attempt's context, and with false when none needs it any more. The request's own body needs the context
// from the beginning until it is closed. Its end says less: net/http may have read the end, and still wait
// for the server to take the last bytes.
//
// A copy, which the base opens by GetBody, needs the context from its first Read until it is closed. A base
// may send a copy, and never look at the own body. Or it may look at a copy, as signers do, forget it, and
// send the own body. So once a body that was read is closed, the copies that are at their end need the context
// no more, nor does the own body until it is read.
func Watch(req *http.Request, context interface{ Hold(needs bool) }) {
	if !Uploads(req) {
		return
	}
	all := &uploads{context: context}
	own := &upload{ReadCloser: req.Body, all: all, holds: true}
	req.Body = own
	all.note(func() { all.bodies = []*upload{own} })
	getBody := req.GetBody
	if getBody == nil {
		return
	}
	req.GetBody = func() (io.ReadCloser, error) {
		body, err := getBody()
		if err != nil || body == nil {
			return nil, err
		}
		u := &upload{ReadCloser: body, all: all}
		all.note(func() { all.bodies = append(all.bodies, u) })
		return u, nil
	}
}

// uploads are the bodies of a request.
type uploads struct {
	context interface{ Hold(needs bool) }
	mu      sync.Mutex
	bodies  []*upload // the own body, and then the copies
}

// note makes a change, and declares whether a body needs the context now.
func (a *uploads) note(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
	a.context.Hold(slices.ContainsFunc(a.bodies, func(u *upload) bool { return u.holds }))
}

// upload is the own body or a copy.
type upload struct {
	io.ReadCloser
	all *uploads

	// guarded by all.mu
	read  bool
	ended bool // the end was met, or the body is closed
	holds bool // the context
}

// unwatched returns the body that Watch has wrapped, or else body.
func unwatched(body io.ReadCloser) io.ReadCloser {
	for u, ok := body.(*upload); ok; u, ok = body.(*upload) {
		body = u.ReadCloser
	}
	return body
}

func (u *upload) Read(p []byte) (int, error) {
	u.all.note(func() {
		u.read = true
		u.holds = u.holds || !u.ended
	})
	n, err := u.ReadCloser.Read(p)
	if err == io.EOF {
		u.all.note(func() { u.ended = true })
	}
	return n, err
}

func (u *upload) Close() error {
	defer u.all.note(u.close)
	return u.ReadCloser.Close()
}

func (u *upload) close() {
	sent := u.read && u.holds
	for i, other := range u.all.bodies {
		if sent && (i > 0 && other.ended || !other.read) {
			other.holds = false
		}
	}
	u.ended, u.holds = true, false
}

// Uploads reports whether req has a body that may still be sent when the response comes. A body in
// memory that fits into the initial window of HTTP/2 counts as sent together with its header.
// Watching such a body, too, would make a small request take a third longer: net/http sends the
// header separately unless the body has one of these types.
func Uploads(req *http.Request) bool {
	sentAtOnce := 0 < req.ContentLength && req.ContentLength < 64<<10
	return req.Body != nil && req.Body != http.NoBody && !(sentAtOnce && InMemory(req.Body))
}

// InMemory reports whether body is what io.NopCloser returns for a reader in memory. A Read of
// such a body never waits. net/http's isKnownInMemoryReader works in the same way.
func InMemory(body io.ReadCloser) bool {
	if reflect.TypeOf(body) != nopCloserWriterTo {
		return false
	}
	switch reflect.ValueOf(body).Field(0).Interface().(type) {
	case *bytes.Reader, *bytes.Buffer, *strings.Reader:
		return true
	}
	return false
}

// nopCloserWriterTo is the type that io.NopCloser returns for a reader with a WriteTo method. The
// readers in memory have this method.
var nopCloserWriterTo = reflect.TypeOf(io.NopCloser(new(bytes.Buffer)))
