package replay

import (
	"bytes"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
)

// Watch wraps the bodies of a request that uploads. It calls Hold with 1 when a body begins to need the
// attempt's context, and with -1 when a body needs it no more. The request's own body needs the context
// from the beginning until it is closed. Its end says less: net/http may have read the end, and still wait
// for the server to take the last bytes.
//
// A copy, which the base opens by GetBody, needs the context from its first Read until it is closed. A base
// may send a copy, and never look at the own body. Or it may look at a copy, as signers do, forget it, and
// send the own body. So once a body that was read is closed, the copies that are at their end need the context
// no more, nor does the own body, unless it is read afterwards.
func Watch(req *http.Request, context interface{ Hold(n int) }) {
	if !Uploads(req) {
		return
	}
	context.Hold(1)
	all := &uploads{context: context}
	all.own = &upload{ReadCloser: req.Body, all: all}
	req.Body = all.own
	getBody := req.GetBody
	if getBody == nil {
		return
	}
	req.GetBody = func() (io.ReadCloser, error) {
		body, err := getBody()
		if err != nil || body == nil {
			return nil, err
		}
		return &upload{ReadCloser: body, all: all}, nil
	}
}

// uploads are the bodies of a request.
type uploads struct {
	context interface{ Hold(n int) }
	own     *upload

	mu    sync.Mutex // guards the states
	ended []*upload  // the copies that are at their end
}

// upload is the own body or a copy.
type upload struct {
	io.ReadCloser
	all   *uploads
	state uploadState
}

type uploadState int

const (
	unread   uploadState = iota
	replaced             // an own body that is unread while another was sent
	inUse
	atEnd // a copy
	needless
)

func (u *upload) Read(p []byte) (int, error) {
	u.note(u.begin)
	n, err := u.ReadCloser.Read(p)
	if err == io.EOF {
		u.note(u.end)
	}
	return n, err
}

func (u *upload) Close() error {
	defer u.note(u.close)
	return u.ReadCloser.Close()
}

// note makes a change, which returns by how many more bodies need the context.
func (u *upload) note(change func() int) {
	u.all.mu.Lock()
	n := change()
	u.all.mu.Unlock()
	if n != 0 {
		u.all.context.Hold(n)
	}
}

func (u *upload) begin() (more int) {
	switch {
	case u.state > replaced:
		return 0
	case u.state == replaced || u != u.all.own:
		more = 1
	}
	u.state = inUse
	return more
}

func (u *upload) end() int {
	if u.state == inUse && u != u.all.own {
		u.state = atEnd
		u.all.ended = append(u.all.ended, u)
	}
	return 0
}

func (u *upload) close() (more int) {
	was := u.state
	u.state = needless
	switch {
	case was == unread && u == u.all.own:
		return -1
	case was == inUse:
		more = -1
	case was != atEnd:
		return 0
	}
	for _, one := range u.all.ended {
		one.state = needless
		more--
	}
	u.all.ended = nil
	if u.all.own.state == unread {
		u.all.own.state = replaced
		more--
	}
	return more
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
