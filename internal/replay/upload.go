package replay

import (
	"bytes"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
)

// Watch wraps the bodies of a request that uploads. It calls Hold with 1 when the bodies begin to need the
// attempt's context, and with -1 when none needs it any more. The request's own body needs the context
// from the beginning until it is closed. Its end says less: net/http may have read the end, and still wait
// for the server to take the last bytes.
//
// A copy, which the base opens by GetBody, needs the context from its first Read until it is closed. A base
// may send a copy, and never look at the own body. Or it may look at a copy, as signers do, forget it, and
// send the own body. So once a body that was read is closed, the copies that are at their end need the context
// no more, nor does the own body until it is read.
func Watch(req *http.Request, context interface{ Hold(n int) }) {
	if !Uploads(req) {
		return
	}
	all := &uploads{context: context}
	own := &upload{ReadCloser: req.Body, all: all}
	own.hold(true)
	all.bodies, req.Body = []*upload{own}, own
	getBody := req.GetBody
	if getBody == nil {
		return
	}
	req.GetBody = func() (io.ReadCloser, error) {
		body, err := getBody()
		if err != nil || body == nil {
			return nil, err
		}
		u := &upload{ReadCloser: body, all: all, isCopy: true}
		all.note(func() { all.bodies = append(all.bodies, u) })
		return u, nil
	}
}

// uploads are the bodies of a request.
type uploads struct {
	context interface{ Hold(n int) }
	mu      sync.Mutex
	bodies  []*upload
}

func (a *uploads) note(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

// upload is the own body or a copy.
type upload struct {
	io.ReadCloser
	all    *uploads
	isCopy bool

	// guarded by all.mu
	read  bool
	ended bool // the end was met, or the body is closed
	holds bool // the context
}

// hold declares whether u needs the context. The caller holds mu.
func (u *upload) hold(needs bool) {
	switch {
	case needs && !u.holds:
		u.all.context.Hold(1)
	case !needs && u.holds:
		u.all.context.Hold(-1)
	}
	u.holds = needs
}

func (u *upload) Read(p []byte) (int, error) {
	u.all.note(func() {
		u.read = true
		u.hold(u.holds || !u.ended)
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
	u.ended = true
	u.hold(false)
	for _, other := range u.all.bodies {
		if sent && (other.isCopy && other.ended || !other.read) {
			other.hold(false)
		}
	}
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
