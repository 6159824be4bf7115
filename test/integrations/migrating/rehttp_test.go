package migrating_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/PuerkitoBio/rehttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// The rule is put together of what is to hold for each retry.
func Example_rehttpBefore() {
	server := failing(502, 503)
	defer server.Close()

	client := &http.Client{Transport: rehttp.NewTransport(nil,
		rehttp.RetryAll(
			rehttp.RetryMaxRetries(3),
			rehttp.RetryHTTPMethods("GET", "HEAD", "PUT", "DELETE"),
			rehttp.RetryAny(rehttp.RetryTemporaryErr(), rehttp.RetryStatuses(502, 503, 504)),
		),
		rehttp.ExpJitterDelay(50*time.Millisecond, time.Second),
	)}
	server.show(client.Get(server.URL))
	// Output: 200 OK after 3 requests
}

// Which methods to retry is the default. The function Classify knows which errors
// to retry, and these statuses are among those that it retries.
func Example_rehttpAfter() {
	server := failing(502, 503)
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(http.DefaultTransport, retryhttp.Policy{
		MaxAttempts: 4,
		Backoff:     retryhttp.FullJitter(50*time.Millisecond, time.Second),
		Classify: func(a retryhttp.Attempt) retryhttp.Class {
			if a.Err != nil || slices.Contains([]int{502, 503, 504}, a.Response.StatusCode) {
				return retryhttp.Classify(a)
			}
			return retryhttp.Final
		},
	})}
	server.show(client.Get(server.URL))
	// Output: 200 OK after 3 requests
}

func TestRehttpsDelaysHaveTheirLike(t *testing.T) {
	const base, limit = time.Second, 3 * time.Second
	spans := []span{{0, time.Second}, {0, 2 * time.Second}, {0, limit}}
	synctest.Test(t, func(t *testing.T) {
		assertWaits(t, func(rt http.RoundTripper) doer {
			rule := rehttp.RetryAll(rehttp.RetryMaxRetries(3), rehttp.RetryStatuses(503))
			return &http.Client{Transport: rehttp.NewTransport(rt, rule, rehttp.ExpJitterDelay(base, limit))}
		}, spans...)
		assertWaits(t, retrying(retryhttp.Policy{Backoff: retryhttp.FullJitter(base, limit)}), spans...)
	})
}

func TestRehttpTakesMethodsInAnyCase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		request := newRequest(t, t.Context(), "get")

		theirs := answering(http.StatusServiceUnavailable)
		rule := rehttp.RetryAll(rehttp.RetryMaxRetries(3), rehttp.RetryHTTPMethods("GET"))
		_, err := rehttp.NewTransport(theirs, rule, rehttp.ConstDelay(0)).RoundTrip(request)
		assert.NoError(t, err)
		assert.Equal(t, 4, theirs.count())

		ours := answering(http.StatusServiceUnavailable)
		_, err = retryhttp.New(ours, retryhttp.Policy{}).RoundTrip(request)
		assert.NoError(t, err)
		assert.Equal(t, 1, ours.count())
	})
}

func TestARequestWithABodyMayBeKeptFromRetries(t *testing.T) {
	policy := retryhttp.Policy{Idempotent: func(req *http.Request) bool {
		return retryhttp.Idempotent(req) && req.Body == nil
	}}
	synctest.Test(t, func(t *testing.T) {
		base := answering(http.StatusServiceUnavailable)
		client := retrying(policy)(base)
		req, err := http.NewRequest(http.MethodPut, "http://example.com/", strings.NewReader("hello"))
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		resp.Body.Close()
		assert.Equal(t, 1, base.count())
	})
}
