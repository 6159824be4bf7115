package retrytest

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
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
	t.init(tb, false, base != nil, rules)
	return t
}

// RoundTrip does what the first Rule that applies to req says. It closes the request body on each path. A
// request whose context has ended does not arrive.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := unsendable(req); err != nil {
		closeBody(req)
		return nil, err
	}
	record, step := t.arrive(req)
	if step.answers() && step.status == 0 && t.base != nil {
		return t.real(req, record, step)
	}
	defer closeBody(req)
	if err := sleep(req.Context(), step.slow); err != nil {
		return nil, err
	}
	if !step.early && (step.fail == nil || !step.fail.unread) {
		if err := t.upload(req, record); err != nil {
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
		closeBody(req)
		return nil, err
	}
	if req.Body != nil && req.Body != http.NoBody {
		own := *req
		own.Body = t.recorded(req.Body, record)
		if open := req.GetBody; open != nil {
			own.GetBody = func() (io.ReadCloser, error) {
				body, err := open()
				if err != nil {
					return nil, err
				}
				return t.recorded(body, record), nil
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

// CloseIdleConnections closes the base's idle connections, if it has a method of this name.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// unsendable is why net/http does not send req, or nil.
func unsendable(req *http.Request) error {
	if req.URL == nil {
		return errors.New("retrytest: the request has no URL")
	}
	return context.Cause(req.Context())
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}

// upload reads the request body. As with net/http, the end of the context does not wait for a Read.
func (t *Transport) upload(req *http.Request, record *record) error {
	if req.Body == nil {
		return nil
	}
	ctx, read := req.Context(), make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, t.recorded(req.Body, record))
		read <- err
	}()
	var err error
	select {
	case err = <-read:
	case <-ctx.Done():
	}
	return cmp.Or(context.Cause(ctx), err)
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
		Header: header, Body: http.NoBody, Request: req,
	}
	if hasBody(http.MethodGet, status) {
		resp.ContentLength = int64(len(s.body))
		header.Set("Content-Length", strconv.Itoa(len(s.body)))
	}
	if s.body != "" && hasBody(req.Method, status) {
		resp.Body = io.NopCloser(s.reader())
	}
	return resp
}

// reader reads the body of a Step.
func (s Step) reader() io.Reader {
	if s.events == nil {
		return strings.NewReader(s.body)
	}
	events := make([]io.Reader, len(s.events))
	for i, event := range s.events {
		events[i] = strings.NewReader(event)
	}
	return io.MultiReader(events...) // a Read of it reads from one of them
}

// sleep waits, or returns the cause of the context's end.
func sleep(ctx context.Context, wait time.Duration) error {
	if wait <= 0 {
		return nil
	}
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
