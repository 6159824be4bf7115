package retryhttp_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// numbers is a base that answers 503, but for the last of its answers, and notes
// the number that each attempt has.
type numbers struct {
	failures int
	requests []*http.Request
	seen     []int
}

func (b *numbers) RoundTrip(req *http.Request) (*http.Response, error) {
	type key struct{}
	b.requests = append(b.requests, req)
	b.seen = append(b.seen, retryhttp.AttemptNumber(context.WithValue(req.Context(), key{}, "beneath")))
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	resp := &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}
	if len(b.seen) <= b.failures {
		resp.StatusCode = 503
		resp.Body = io.NopCloser(strings.NewReader("busy"))
	}
	return resp, nil
}

func TestEachAttemptKnowsItsNumber(t *testing.T) {
	plain := func(method string, body io.Reader) func() *http.Request {
		return func() *http.Request {
			req, err := http.NewRequest(method, "http://host.example/", body)
			require.NoError(t, err)
			return req
		}
	}
	for name, tc := range map[string]struct {
		request func() *http.Request
		policy  retryhttp.Policy
	}{
		"no body":             {request: plain("GET", nil)},
		"a body with GetBody": {request: plain("PUT", strings.NewReader("upload"))},
		"a stream":            {request: plain("PUT", io.MultiReader(strings.NewReader("upload")))},
		"an added key":        {plain("POST", nil), retryhttp.Policy{IdempotencyKey: retryhttp.RandomKey}},
		"a timeout":           {plain("GET", nil), retryhttp.Policy{AttemptTimeout: time.Minute}},
		"a marked body":       {plain("POST", strings.NewReader("order")), retryhttp.Policy{RetryUnprocessed: true, Classify: unprocessed}},
	} {
		t.Run(name, func(t *testing.T) {
			base := &numbers{failures: 2}
			var retried []int
			tc.policy.Backoff = retryhttp.Constant(0)
			tc.policy.OnRetry = func(a retryhttp.Attempt) {
				assert.Equal(t, a.Number, retryhttp.AttemptNumber(a.Request.Context()))
				retried = append(retried, a.Number)
			}
			resp, err := retryhttp.New(base, tc.policy).RoundTrip(tc.request())
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, []int{1, 2, 3}, base.seen)
			assert.Equal(t, []int{1, 2}, retried)
			assert.Equal(t, 1, retryhttp.AttemptNumber(resp.Request.Context()), "of a request made with the response's context")
		})
	}
}

func unprocessed(a retryhttp.Attempt) retryhttp.Class {
	if a.Response.StatusCode == 503 {
		return retryhttp.Unprocessed
	}
	return retryhttp.Classify(a)
}

// What a base got is its own for as long as it likes.
func TestAnAttemptKeepsItsRequestAndItsNumber(t *testing.T) {
	base := &numbers{failures: 2}
	resp, err := retryhttp.New(base, noWait).RoundTrip(getURL(t, "http://host.example"))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	for i, req := range base.requests {
		assert.Equal(t, i+1, retryhttp.AttemptNumber(req.Context()))
		for _, other := range base.requests[:i] {
			assert.NotSame(t, other, req)
		}
	}
}

func TestAttemptsAreNumberedThroughTransportsOnTopOfEachOther(t *testing.T) {
	for name, classify := range map[string]func(retryhttp.Attempt) retryhttp.Class{
		"the inner one retries": nil,
		"the outer one retries": func(retryhttp.Attempt) retryhttp.Class { return retryhttp.Final },
		"first the outer one": func(a retryhttp.Attempt) retryhttp.Class {
			if retryhttp.AttemptNumber(a.Request.Context()) == 1 {
				return retryhttp.Final
			}
			return retryhttp.Classify(a)
		},
	} {
		t.Run(name, func(t *testing.T) {
			base := &numbers{failures: 2}
			inner := noWait
			inner.Classify = classify
			resp, err := retryhttp.New(retryhttp.New(base, inner), noWait).RoundTrip(getURL(t, "http://host.example"))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, []int{1, 2, 3}, base.seen)
		})
	}
}

func TestAContextFromElsewhereHasTheNumberOne(t *testing.T) {
	assert.Equal(t, 1, retryhttp.AttemptNumber(t.Context()))
}
