package replay

import (
	"bytes"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
)

// Watch wraps the bodies of a request that uploads. It calls Hold with 1 when somebody begins to need the
// attempt's context, and with -1 when somebody needs it no more. The request's own body needs the context
// from the beginning until it is closed. Its end says less: net/http may have read the end, and still wait
// for the server to take the last bytes.
//
// A body that the base opens by GetBody needs the context from its first Read until it is closed. A base may
// send such a body, and never look at the own one. So the own body counts as sent once the other was read and
// is closed, unless the own body is read afterwards: a signer may have looked at the other. A signer may also
// forget to close what it has read, so the end of such a body counts, too. It does not if the own body was
// closed before. Then net/http sends the request again.
func Watch(req *http.Request, context interface{ Hold(n int) }) {
	if !Uploads(req) {
		return
	}
	context.Hold(1)
	own := &upload{ReadCloser: req.Body, context: context}
	req.Body = own
	getBody := req.GetBody
	if getBody == nil {
		return
	}
	req.GetBody = func() (io.ReadCloser, error) {
		body, err := getBody()
		if err != nil || body == nil {
			return nil, err
		}
		return &copied{ReadCloser: body, own: own, again: own.state.Load() == ended}, nil
	}
}

// upload is the request's own body.
type upload struct {
	io.ReadCloser
	context interface{ Hold(n int) }
	state   atomic.Int32 // one of the constants below
}

// The states of a body. An own body needs the context if it is unread or in use, and another if it is in use.
const (
	unread   = iota
	replaced // an own body that is unread, and another was closed
	inUse
	ended
)

func (u *upload) Read(p []byte) (int, error) {
	if u.state.Load() < inUse && !u.state.CompareAndSwap(unread, inUse) && u.state.CompareAndSwap(replaced, inUse) {
		u.context.Hold(1)
	}
	return u.ReadCloser.Read(p)
}

func (u *upload) Close() error {
	defer func() {
		if was := u.state.Swap(ended); was == unread || was == inUse {
			u.context.Hold(-1)
		}
	}()
	return u.ReadCloser.Close()
}

// copied is a body that GetBody has returned to the base.
type copied struct {
	io.ReadCloser
	own   *upload
	again bool // the own body was closed before
	state atomic.Int32
}

func (r *copied) Read(p []byte) (int, error) {
	if r.state.CompareAndSwap(unread, inUse) {
		r.own.context.Hold(1)
	}
	n, err := r.ReadCloser.Read(p)
	if err == io.EOF && !r.again {
		r.end()
	}
	return n, err
}

func (r *copied) Close() error {
	defer func() {
		wasRead := r.state.Load() != unread
		r.end()
		if wasRead && r.own.state.CompareAndSwap(unread, replaced) {
			r.own.context.Hold(-1)
		}
	}()
	return r.ReadCloser.Close()
}

func (r *copied) end() {
	if r.state.Swap(ended) == inUse {
		r.own.context.Hold(-1)
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
