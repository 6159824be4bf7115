package otelretry

import (
	"errors"
	"io"
	"net/http"

	"github.com/retryhttp/retryhttp"
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
	over    bool // the body was given up
}

// Read makes the gauges show the state after a resumption: fewer tokens, and a request that is
// no longer held. A resumption that is given up while it is held makes no attempt, and ends in
// an error.
func (b *resumable) Read(p []byte) (int, error) {
	b.op.waits.beginRead()
	defer b.op.waits.end() // even if a hook of the Policy panics
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.giveUp(err)
	}
	if b.op.resumed || err != nil && err != io.EOF {
		b.op.resumed = false
		req := &b.op.request
		b.metrics.recordShared(req, b.metrics.labelsOf(req))
	}
	return n, err
}

// giveUp counts a body that is not continued, once. Any other error of a body is not retryhttp's.
func (b *resumable) giveUp(err error) {
	reason := reasonOf(err)
	if b.over || reason == "" {
		return
	}
	b.over = true
	req := &b.op.request
	b.metrics.givenUp.Add(req.Context(), 1, b.metrics.labelsOf(req).with(reasonKey.String(reason))...)
}

// reasonOf returns why a body that broke off was not continued, or "" if err does not say so.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, retryhttp.ErrChanged):
		return "changed"
	case errors.Is(err, retryhttp.ErrNotResumable):
		return "not-resumable"
	}
	if failed, ok := errors.AsType[*retryhttp.Error](err); ok {
		return string(failed.Stop)
	}
	return ""
}

// ClosableAs returns retryhttp's body: b may be closed while it is read if that body may be.
// Another retryhttp.Transport above this one finds the method by its name.
func (b *resumable) ClosableAs() io.ReadCloser { return b.ReadCloser }
