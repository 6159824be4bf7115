package otelretry

import (
	"io"
	"net/http"
)

// mayResume reports whether retryhttp may have wrapped resp's body to resume it. Such a body
// is not the original body, and belongs to a response that Policy.Resume covers.
func mayResume(req *http.Request, resp *http.Response) bool {
	if req.Method != http.MethodGet && req.Method != "" || resp.Body == nil || isConn(resp.Body) {
		return false
	}
	_, asItCame := resp.Body.(*body)
	return !asItCame && (resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent)
}

// resumable is a response's body that one of its Reads may resume. No hook of the Policy is
// called when the resumption has ended.
type resumable struct {
	io.ReadCloser
	op      *operation
	metrics *metrics
}

// Read makes the gauges show the state after a resumption: fewer tokens, and a request that is
// no longer held. A resumption that is given up while it is held makes no attempt, and ends in
// an error.
func (b *resumable) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.op.resumed || err != nil && err != io.EOF {
		b.op.resumed = false
		req := &b.op.request
		b.metrics.recordShared(req, serverOf(req))
	}
	return n, err
}

// ClosableAs returns retryhttp's body: b may be closed while it is read if that body may be.
// Another retryhttp.Transport above this one finds the method by its name.
func (b *resumable) ClosableAs() io.ReadCloser { return b.ReadCloser }
