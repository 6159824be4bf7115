package migrating_test

import (
	"bytes"
	"context"
	"errors"
	"log"
	"log/slog"
	"math"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
)

// A 409 is retried besides what the default policy retries.
func Example_retryablehttpBefore() {
	server := failing(409, 503)
	defer server.Close()

	client := retryablehttp.NewClient()
	client.RetryMax = 3
	client.RetryWaitMin = 50 * time.Millisecond
	client.RetryWaitMax = time.Second
	client.Logger = nil
	client.CheckRetry = func(ctx context.Context, resp *http.Response, err error) (bool, error) {
		if resp != nil && resp.StatusCode == http.StatusConflict {
			return true, nil
		}
		return retryablehttp.DefaultRetryPolicy(ctx, resp, err)
	}
	resp, err := client.Get(server.URL)
	server.show(resp, err)
	// Output: 200 OK after 3 requests
}

// MaxAttempts counts the first attempt too.
func Example_retryablehttpAfter() {
	server := failing(409, 503)
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		MaxAttempts: 4,
		Backoff:     retryhttp.Exponential(50*time.Millisecond, time.Second),
		Classify: func(a retryhttp.Attempt) retryhttp.Class {
			if a.Response != nil && a.Response.StatusCode == http.StatusConflict {
				return retryhttp.Retryable
			}
			return retryhttp.Classify(a)
		},
	})}
	resp, err := client.Get(server.URL)
	server.show(resp, err)
	// Output: 200 OK after 3 requests
}

func TestRetryablehttpsBackoffsHaveTheirLike(t *testing.T) {
	const shortest, longest = 800 * time.Millisecond, 1200 * time.Millisecond
	with := func(backoff retryablehttp.Backoff) func(http.RoundTripper) doer {
		return func(base http.RoundTripper) doer {
			client := newRetryable(base)
			client.RetryWaitMin, client.RetryWaitMax, client.Backoff = shortest, longest, backoff
			return viaRetryable{client}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		exponential := []span{{shortest, shortest}, {longest, longest}, {longest, longest}}
		assertWaits(t, with(retryablehttp.DefaultBackoff), exponential...)
		assertWaits(t, retrying(retryhttp.Policy{Backoff: retryhttp.Exponential(shortest, longest)}), exponential...)

		linear := []span{{shortest, longest}, {2 * shortest, 2 * longest}, {3 * shortest, 3 * longest}}
		assertWaits(t, with(retryablehttp.LinearJitterBackoff), linear...)
		assertWaits(t, with(retryablehttp.RateLimitLinearJitterBackoff), linear...)
		backoff := retryhttp.Linear(time.Second, math.MaxInt64).Spread(0.2)
		assertWaits(t, retrying(retryhttp.Policy{Backoff: backoff}), linear...)
	})
}

func TestWhichLinearBackoffHeedsARetryAfter(t *testing.T) {
	with := func(backoff retryablehttp.Backoff) func(http.RoundTripper) doer {
		return func(base http.RoundTripper) doer {
			client := newRetryable(base)
			client.Backoff = backoff
			return viaRetryable{client}
		}
	}
	linear := retryhttp.Linear(wait, time.Hour)
	for name, of := range map[string]struct {
		build func(http.RoundTripper) doer
		heeds bool
	}{
		"LinearJitterBackoff":          {with(retryablehttp.LinearJitterBackoff), false},
		"RateLimitLinearJitterBackoff": {with(retryablehttp.RateLimitLinearJitterBackoff), true},
		"Linear":                       {retrying(retryhttp.Policy{Backoff: linear}), true},
		"Linear, MaxRetryAfter: -1":    {retrying(retryhttp.Policy{Backoff: linear, MaxRetryAfter: -1}), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := answering(http.StatusServiceUnavailable, "Retry-After", "10")
				_, _ = get(t, t.Context(), of.build(base))
				require.Len(t, base.at, attempts)
				waited := base.at[1].Sub(base.at[0])
				if of.heeds {
					assert.GreaterOrEqual(t, waited, 10*time.Second)
					return
				}
				assert.Equal(t, wait, waited)
			})
		})
	}
}

var errUnavailable = errors.New("unavailable")

// failing503 lies above a Transport, and turns a last 503 into an error.
type failing503 struct {
	base  http.RoundTripper
	tries int
}

func (f *failing503) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := f.base.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusServiceUnavailable {
		f.tries = retryhttp.OutcomeOf(resp).Attempts
		resp.Body.Close()
		return nil, errUnavailable
	}
	return resp, err
}

func TestWhatAnErrorHandlerDidIsDoneAbove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		client := newRetryable(answering(http.StatusServiceUnavailable))
		client.ErrorHandler = func(resp *http.Response, _ error, numTries int) (*http.Response, error) {
			tries = numTries
			resp.Body.Close()
			return nil, errUnavailable
		}
		_, err := get(t, t.Context(), viaRetryable{client})
		require.ErrorIs(t, err, errUnavailable)
		assert.Equal(t, attempts, tries)

		above := &failing503{base: retryhttp.New(answering(http.StatusServiceUnavailable), retryhttp.Policy{})}
		_, err = get(t, t.Context(), &http.Client{Transport: above})
		require.ErrorIs(t, err, errUnavailable)
		assert.Equal(t, attempts, above.tries)
	})
}

func TestRetryablehttpReturnsTheLastResponseIfTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newRetryable(answering(http.StatusServiceUnavailable))
		client.ErrorHandler = retryablehttp.PassthroughErrorHandler
		resp, err := get(t, t.Context(), viaRetryable{client})
		require.NoError(t, err)
		assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	})
}

func TestRetryablehttpClosesAllIdleConnectionsWhenItGivesUp(t *testing.T) {
	for name, want := range map[string]int{"go-retryablehttp": 2, "retryhttp": 4} { // ours: the pool's, and three detours
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(http.StatusServiceUnavailable)
				}))
				defer stop()
				client := peers[name](base)
				_, _ = get(t, t.Context(), client)
				_, _ = get(t, t.Context(), client)
				assert.Equal(t, want, network.Dials())
			})
		})
	}
}

func TestRetryablehttpLogsEveryRequestWithItsQuery(t *testing.T) {
	assert.NotNil(t, retryablehttp.NewClient().Logger)

	synctest.Test(t, func(t *testing.T) {
		req := newRequest(t, t.Context(), http.MethodGet)
		req.URL.RawQuery = "token=secret"

		var theirs, ours bytes.Buffer
		client := newRetryable(answering(http.StatusOK))
		client.Logger = log.New(&theirs, "", 0)
		_, err := viaRetryable{client}.Do(req)
		require.NoError(t, err)
		assert.Contains(t, theirs.String(), "token=secret")

		policy := retryhttp.Policy{Logger: slog.New(slog.NewTextHandler(&ours, nil))}
		_, err = retrying(policy)(answering(http.StatusOK)).Do(req)
		require.NoError(t, err)
		assert.Empty(t, ours.String())
		_, err = retrying(policy)(answering(http.StatusServiceUnavailable)).Do(req)
		require.NoError(t, err)
		assert.Contains(t, ours.String(), "example.com")
		assert.NotContains(t, ours.String(), "secret")
	})
}
