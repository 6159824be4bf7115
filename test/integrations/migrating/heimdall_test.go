package migrating_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gojek/heimdall/v7"
	"github.com/gojek/heimdall/v7/httpclient"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// Without WithHTTPTimeout there is one of 30 seconds.
func Example_heimdallBefore() {
	server := failing(500, 503)
	defer server.Close()

	backoff := heimdall.NewExponentialBackoff(50*time.Millisecond, time.Second, 2, 20*time.Millisecond)
	client := httpclient.NewClient(
		httpclient.WithHTTPTimeout(5*time.Second),
		httpclient.WithRetryCount(3),
		httpclient.WithRetrier(heimdall.NewRetrier(backoff)),
	)
	resp, err := client.Get(server.URL, http.Header{"Accept": {"application/json"}})
	server.show(resp, err)
	// Output: 200 OK after 3 requests
}

// The timeout was that of an attempt, and so it is here.
func Example_heimdallAfter() {
	server := failing(500, 503)
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		MaxAttempts:    4,
		AttemptTimeout: 5 * time.Second,
		Backoff:        retryhttp.Exponential(50*time.Millisecond, time.Second).PlusJitter(20 * time.Millisecond),
	})}
	req, err := http.NewRequest(http.MethodGet, server.URL, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	server.show(resp, err)
	// Output: 200 OK after 3 requests
}

func TestHeimdallsBackoffsHaveTheirLike(t *testing.T) {
	with := func(backoff heimdall.Backoff) func(http.RoundTripper) doer {
		return func(base http.RoundTripper) doer {
			return httpclient.NewClient(
				httpclient.WithHTTPClient(&http.Client{Transport: base}),
				httpclient.WithRetryCount(3),
				httpclient.WithRetrier(heimdall.NewRetrier(backoff)),
			)
		}
	}
	const jitter = time.Second
	synctest.Test(t, func(t *testing.T) {
		spans := []span{
			{time.Second, 2 * time.Second},
			{3 * time.Second, 4 * time.Second},
			{5 * time.Second, 6 * time.Second},
		}
		assertWaits(t, with(heimdall.NewExponentialBackoff(time.Second, 5*time.Second, 3, jitter)), spans...)
		backoff := retryhttp.Geometric(time.Second, 5*time.Second, 3).PlusJitter(jitter)
		assertWaits(t, retrying(retryhttp.Policy{Backoff: backoff}), spans...)

		same := []span{{time.Second, 2 * time.Second}, {time.Second, 2 * time.Second}, {time.Second, 2 * time.Second}}
		assertWaits(t, with(heimdall.NewConstantBackoff(time.Second, jitter)), same...)
		assertWaits(t, retrying(retryhttp.Policy{Backoff: retryhttp.Constant(time.Second).PlusJitter(jitter)}), same...)
	})
}

func TestHeimdallReturnsAResponseTogetherWithAnEarlierError(t *testing.T) {
	for name, isError := range map[string]bool{"heimdall": true, "retryhttp": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				resp, err := get(t, t.Context(), peers[name](&stub{answer: func(n int, req *http.Request) (*http.Response, error) {
					if n == 1 {
						return nil, io.ErrUnexpectedEOF
					}
					return response(req, http.StatusServiceUnavailable), nil
				}}))
				require.NotNil(t, resp)
				assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
				assert.Equal(t, isError, err != nil)
			})
		})
	}
}

func TestHeimdallsErrorIsOnlyAText(t *testing.T) {
	for name, unwraps := range map[string]bool{"heimdall": false, "retryhttp": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, err := get(t, t.Context(), peers[name](refusing(io.ErrUnexpectedEOF)))
				assert.Equal(t, unwraps, errors.Is(err, io.ErrUnexpectedEOF))
			})
		})
	}
}

// A function that takes a heimdall.Doer takes an http.Client.
var _ heimdall.Doer = (*http.Client)(nil)
