// Package script provides a RoundTripper for tests that plays a prepared
// sequence of results.
package script

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A Step answers one attempt. It owns the request's body, as a RoundTripper
// does. A Step is also a RoundTripper, which answers every attempt.
type Step func(*http.Request) (*http.Response, error)

func (s Step) RoundTrip(req *http.Request) (*http.Response, error) { return s(req) }

// Transport plays one Step for each attempt, and the last one for all that
// follow.
type Transport struct {
	Steps []Step

	mu       sync.Mutex
	requests []*http.Request
	times    []time.Time
}

func New(steps ...Step) *Transport { return &Transport{Steps: steps} }

func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	t.mu.Lock()
	step := t.Steps[min(len(t.requests), len(t.Steps)-1)]
	t.requests = append(t.requests, req)
	t.times = append(t.times, time.Now())
	t.mu.Unlock()
	return step(req)
}

func (t *Transport) Requests() []*http.Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.requests[:len(t.requests):len(t.requests)]
}

// Waits returns the times between the attempts.
func (t *Transport) Waits() []time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	var waits []time.Duration
	for i := 1; i < len(t.times); i++ {
		waits = append(waits, t.times[i].Sub(t.times[i-1]))
	}
	return waits
}

// Status reads the request's body to its end, closes it, and answers with code
// and with header, which alternates names and values.
func Status(code int, header ...string) Step {
	return func(req *http.Request) (*http.Response, error) {
		if err := consume(req); err != nil {
			return nil, err
		}
		return Response(req, code, header...), nil
	}
}

// Fail closes the request's body and returns err.
func Fail(err error) Step {
	return func(req *http.Request) (*http.Response, error) {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
}

// Respond answers with code and body, and leaves the request alone.
func Respond(code int, body io.ReadCloser) Step {
	return func(req *http.Request) (*http.Response, error) {
		resp := Response(req, code)
		resp.Body = body
		return resp, nil
	}
}

// Response makes a response with a body that names its status.
func Response(req *http.Request, code int, header ...string) *http.Response {
	h := make(http.Header)
	for i := 0; i < len(header); i += 2 {
		h.Add(header[i], header[i+1])
	}
	return &http.Response{
		StatusCode:    code,
		Header:        h,
		Body:          io.NopCloser(strings.NewReader(fmt.Sprintf("body of %d", code))),
		ContentLength: -1,
		Request:       req,
	}
}

func consume(req *http.Request) error {
	if req.Body == nil {
		return nil
	}
	defer req.Body.Close()
	_, err := io.Copy(io.Discard, req.Body)
	return err
}
