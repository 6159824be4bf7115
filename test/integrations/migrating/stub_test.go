package migrating_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stub is a RoundTripper without a network, so that it works in a bubble, where
// waiting for an hour takes no time.
type stub struct {
	answer func(n int, req *http.Request) (*http.Response, error) // to request n, from 1

	mu   sync.Mutex
	at   []time.Time
	sent string // the last body
}

func (s *stub) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	var body []byte
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
		req.Body.Close()
	}
	s.mu.Lock()
	s.at, s.sent = append(s.at, time.Now()), string(body)
	n := len(s.at)
	s.mu.Unlock()
	return s.answer(n, req)
}

func (s *stub) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}

// answering is a stub that always gives the same answer. The header alternates names and values.
func answering(status int, header ...string) *stub {
	return &stub{answer: func(_ int, req *http.Request) (*http.Response, error) {
		return response(req, status, header...), nil
	}}
}

func response(req *http.Request, status int, header ...string) *http.Response {
	resp := &http.Response{
		StatusCode: status,
		Status:     http.StatusText(status),
		Header:     http.Header{},
		Body:       io.NopCloser(strings.NewReader("hello")),
		Request:    req,
	}
	for i := 0; i+1 < len(header); i += 2 {
		resp.Header.Set(header[i], header[i+1])
	}
	return resp
}

// refusing is a stub that always fails with err.
func refusing(err error) *stub {
	return &stub{answer: func(int, *http.Request) (*http.Response, error) { return nil, err }}
}

// newRequest makes a request for stubs, so its host need not exist.
func newRequest(t *testing.T, ctx context.Context, method string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://example.com/", nil)
	require.NoError(t, err)
	return req
}

// get sends a GET, and closes its response at the end of the test.
func get(t *testing.T, ctx context.Context, client doer) (*http.Response, error) {
	t.Helper()
	resp, err := client.Do(newRequest(t, ctx, http.MethodGet))
	if resp != nil {
		t.Cleanup(func() { resp.Body.Close() })
	}
	return resp, err
}

// span is the shortest and the longest wait before a retry.
type span struct{ least, most time.Duration }

// assertWaits asserts that the waits before the retries are drawn from spans, and from the whole
// of each span. All responses are 503s. A thousand draws miss the tenth at one end with a chance
// of 2e-46. It needs a bubble.
func assertWaits(t *testing.T, build func(http.RoundTripper) doer, spans ...span) {
	t.Helper()
	base := answering(http.StatusServiceUnavailable)
	client := build(base)
	seen := make([]span, len(spans))
	for i := range 1000 {
		base.at = nil
		_, _ = get(t, t.Context(), client)
		require.Len(t, base.at, len(spans)+1)
		for n := range spans {
			waited := base.at[n+1].Sub(base.at[n])
			if i == 0 {
				seen[n] = span{waited, waited}
			}
			seen[n] = span{min(seen[n].least, waited), max(seen[n].most, waited)}
		}
	}
	for n, want := range spans {
		tenth := (want.most - want.least) / 10
		assert.GreaterOrEqual(t, seen[n].least, want.least, "retry %d", n+1)
		assert.LessOrEqual(t, seen[n].least, want.least+tenth, "retry %d", n+1)
		assert.LessOrEqual(t, seen[n].most, want.most, "retry %d", n+1)
		assert.GreaterOrEqual(t, seen[n].most, want.most-tenth, "retry %d", n+1)
	}
}
