package retrytest

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// Transport is an http.RoundTripper that fails as told. It is made by [NewTransport], and is safe for
// concurrent use.
type Transport struct {
	script
	base http.RoundTripper
}

// NewTransport returns a Transport that gets the real answers from base. A nil base answers with status 200
// and an empty body. If a rule makes no sense, the test ends at once. When the test fails, its log has
// [Transport.Table]. A nil tb has no log, and a rule that makes no sense panics.
func NewTransport(tb testing.TB, base http.RoundTripper, rules ...Rule) *Transport {
	if tb != nil {
		tb.Helper()
	}
	t := &Transport{base: base}
	t.init(tb, false, rules)
	return t
}

// RoundTrip does what the first Rule that applies to req says. It closes the request body on each path.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	record, step := t.arrive(req)
	if step.answers() && step.status == 0 && t.base != nil {
		return t.real(req, record, step)
	}
	body := t.owned(req, record)
	defer body.Close()
	release := context.AfterFunc(req.Context(), func() { body.Close() }) // frees a Read
	defer release()
	if err := sleep(req.Context(), step.slow); err != nil {
		return nil, err
	}
	if !step.early && (step.fail == nil || !step.fail.unread) {
		if _, err := io.Copy(io.Discard, body); err != nil {
			if ctx := req.Context(); ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, err
		}
	}
	switch {
	case step.hang:
		<-req.Context().Done()
		return nil, context.Cause(req.Context())
	case step.fail != nil:
		return nil, step.fail.err(req)
	}
	return step.end(req, step.answer(req)), nil
}

// real gets the answer of the base.
func (t *Transport) real(req *http.Request, record *record, step Step) (*http.Response, error) {
	if err := sleep(req.Context(), step.slow); err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	if req.Body != nil && req.Body != http.NoBody {
		own := *req
		own.Body = &recorded{req.Body, &t.script, record}
		if open := req.GetBody; open != nil {
			own.GetBody = func() (io.ReadCloser, error) {
				body, err := open()
				if err != nil {
					return nil, err
				}
				return t.again(record, body), nil
			}
		}
		req = &own
	}
	resp, err := t.base.RoundTrip(req)
	if err != nil || resp == nil {
		return resp, err
	}
	return step.end(req, resp), nil
}

// CloseIdleConnections closes those of the base.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// owned returns the request's body, which is closed once, and recorded.
func (t *Transport) owned(req *http.Request, record *record) io.ReadCloser {
	if req.Body == nil {
		return http.NoBody
	}
	return &recorded{&closedOnce{ReadCloser: req.Body}, &t.script, record}
}

type closedOnce struct {
	io.ReadCloser
	once sync.Once
	err  error
}

func (c *closedOnce) Close() error {
	c.once.Do(func() { c.err = c.ReadCloser.Close() })
	return c.err
}

// answer makes the response of a Step with a status, and an empty 200 of a Step without one.
func (s Step) answer(req *http.Request) *http.Response {
	status := s.status
	if status == 0 {
		status = http.StatusOK
	}
	header := s.header.Clone()
	if header == nil {
		header = make(http.Header)
	}
	resp := &http.Response{
		Status: statusLine(status), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: http.NoBody, ContentLength: int64(len(s.body)), Request: req,
	}
	if s.body != "" && hasBody(req.Method, status) {
		resp.Body = io.NopCloser(strings.NewReader(s.body))
	}
	return resp
}

// sleep waits, or returns the cause of the context's end.
func sleep(ctx context.Context, wait time.Duration) error {
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
