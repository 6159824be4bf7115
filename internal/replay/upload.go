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
// attempt's context, and with -1 when somebody needs it no more. The request's own body needs the
// context from the beginning, until the body is closed or read to its end. A body that the base opens by
// GetBody needs the context while it is read. When such a body has ended, the own body counts as sent,
// too: a base may send only what GetBody returns, and never look at the own body.
func Watch(req *http.Request, context interface{ Hold(n int) }) {
	if !Uploads(req) {
		return
	}
	context.Hold(1)
	own := &upload{ReadCloser: req.Body, context: context}
	own.own, req.Body = own, own
	getBody := req.GetBody
	if getBody == nil {
		return
	}
	req.GetBody = func() (io.ReadCloser, error) {
		body, err := getBody()
		if err != nil || body == nil {
			return nil, err
		}
		return &upload{ReadCloser: body, context: context, own: own}, nil
	}
}

// upload is a body of a request.
type upload struct {
	io.ReadCloser
	context interface{ Hold(n int) }
	own     *upload      // the request's own body
	sent    atomic.Bool  // the own body counts as sent
	state   atomic.Int32 // one of the constants below, which follow each other
}

const (
	unread = iota
	inUse
	ended
)

func (u *upload) Read(p []byte) (int, error) {
	if u.state.CompareAndSwap(unread, inUse) {
		u.context.Hold(1)
	}
	n, err := u.ReadCloser.Read(p)
	if err == io.EOF {
		u.end()
	}
	return n, err
}

func (u *upload) Close() error {
	defer u.end()
	return u.ReadCloser.Close()
}

func (u *upload) end() {
	was := u.state.Swap(ended)
	if (u == u.own || was == inUse) && !u.own.sent.Swap(true) {
		u.context.Hold(-1)
	}
	if was == inUse {
		u.context.Hold(-1)
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
