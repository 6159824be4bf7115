package retrytest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
)

func statusLine(code int) string {
	if text := http.StatusText(code); text != "" {
		return fmt.Sprintf("%d %s", code, text)
	}
	return fmt.Sprint(code)
}

// hasBody reports whether a response to the method may have a body (RFC 9110, section 6.4.1).
func hasBody(method string, status int) bool {
	return method != http.MethodHead && status != http.StatusNoContent && status != http.StatusNotModified
}

// end gives the body of resp, which answers req, the ending of s.
func (s Step) end(req *http.Request, resp *http.Response) *http.Response {
	if s.unsized {
		resp.ContentLength = -1
		resp.Header.Del("Content-Length")
	}
	real := s.status == 0
	upgrade := resp.StatusCode == http.StatusSwitchingProtocols // its body is also written to
	if real && s.ending == whole || upgrade || resp.Body == nil || !hasBody(req.Method, resp.StatusCode) {
		return resp
	}
	resp.Body = &ended{
		ReadCloser: resp.Body, ctx: req.Context(), left: s.after, ending: s.ending, closed: make(chan struct{}),
	}
	return resp
}

// ended is a response body that ends with the request's context, as net/http's does. It may be cut, or
// stall, unless it ends first.
type ended struct {
	io.ReadCloser
	ctx    context.Context
	left   int64
	ending ending
	err    error // of each further Read
	once   sync.Once
	closed chan struct{}
}

func (e *ended) Read(p []byte) (int, error) {
	select {
	case <-e.closed:
		return 0, http.ErrBodyReadAfterClose
	default:
	}
	if e.err != nil || len(p) == 0 {
		return 0, e.err
	}
	if e.ctx.Err() != nil {
		e.err = context.Cause(e.ctx)
		return 0, e.err
	}
	var n int
	n, e.err = e.read(p)
	return n, e.err
}

func (e *ended) read(p []byte) (int, error) {
	if e.ending == whole {
		return e.ReadCloser.Read(p)
	}
	if e.left > 0 {
		n, err := e.ReadCloser.Read(p[:min(int64(len(p)), e.left)])
		e.left -= int64(n)
		return n, err
	}
	if _, err := io.ReadFull(e.ReadCloser, make([]byte, 1)); err != nil {
		return 0, err // the body is no longer than that
	}
	if e.ending == cut {
		return 0, io.ErrUnexpectedEOF
	}
	select {
	case <-e.closed:
		return 0, http.ErrBodyReadAfterClose
	case <-e.ctx.Done():
		return 0, context.Cause(e.ctx)
	}
}

func (e *ended) Close() error {
	e.once.Do(func() { close(e.closed) })
	return e.ReadCloser.Close()
}
