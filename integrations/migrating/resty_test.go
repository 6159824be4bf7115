package migrating_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"resty.dev/v3"

	"github.com/retryhttp/retryhttp"
)

// Conditions for statuses are added; without them only errors are retried.
func Example_restyBefore() {
	server := failing(429, 503)
	defer server.Close()

	client := resty.New().
		SetRetryCount(3).
		SetRetryWaitTime(50*time.Millisecond).
		SetRetryMaxWaitTime(time.Second).
		AddRetryConditions(resty.RetryConditionStatusTooManyRequests, resty.RetryConditionStatus5XX)
	defer client.Close()
	var greeting struct{ Text string }
	resp, err := client.R().SetResult(&greeting).Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(resp.Status(), greeting.Text, "after", server.requests.Load(), "requests")
	// Output: 200 OK hello after 3 requests
}

// resty stays, and sends its requests through what retries. Its own retries stay
// off: two loops multiply.
func Example_restyAfter() {
	server := failing(429, 503)
	defer server.Close()

	client := resty.New()
	client.SetTransport(retryhttp.New(client.Transport(), retryhttp.Policy{
		MaxAttempts: 4,
		Backoff:     retryhttp.EqualJitter(100*time.Millisecond, time.Second),
	}))
	defer client.Close()
	var greeting struct{ Text string }
	resp, err := client.R().SetResult(&greeting).Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(resp.Status(), greeting.Text, "after", server.requests.Load(), "requests")
	// Output: 200 OK hello after 3 requests
}

// restyOver is a resty client that sends what it sends through rt, and does not
// retry.
func restyOver(rt http.RoundTripper) *resty.Client {
	return resty.NewWithClient(&http.Client{Transport: rt}).SetResponseDoNotParse(true)
}

func TestRestysWaitsHaveTheirLike(t *testing.T) {
	spans := []span{{time.Second, 2 * time.Second}, {2 * time.Second, 4 * time.Second}, {2500 * time.Millisecond, 5 * time.Second}}
	synctest.Test(t, func(t *testing.T) {
		assertWaits(t, func(base http.RoundTripper) doer {
			return viaResty{restyOver(base).SetRetryCount(3).
				SetRetryWaitTime(time.Second).SetRetryMaxWaitTime(5 * time.Second).
				AddRetryConditions(resty.RetryConditionStatus5XX)}
		}, spans...)
		assertWaits(t, retrying(retryhttp.Policy{Backoff: retryhttp.EqualJitter(2*time.Second, 5*time.Second)}), spans...)
	})
}

func TestRestysRetriesMultiplyWithThoseBeneath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := answering(http.StatusServiceUnavailable)
		_, err := get(t, t.Context(), viaResty{newResty(retryhttp.New(base, retryhttp.Policy{Budget: retryhttp.Unlimited{}}))})
		require.NoError(t, err)
		assert.Equal(t, 16, base.count())
	})
}

func TestRestyMayKeepItsRetriesForOneRequest(t *testing.T) {
	once := func(p *retryhttp.Policy) { p.MaxAttempts = 1 }
	synctest.Test(t, func(t *testing.T) {
		base := answering(http.StatusOK)
		resp, err := restyOver(retryhttp.New(base, retryhttp.Policy{})).R().
			SetContext(retryhttp.WithPolicy(t.Context(), once)).
			SetResponseDoNotParse(false).
			SetRetryCount(3).
			AddRetryConditions(func(resp *resty.Response, _ error) bool { return resp.String() == "hello" }).
			Get("http://example.com/")
		require.NoError(t, err)
		assert.Equal(t, 4, resp.Request.Attempt)
		assert.Equal(t, 4, base.count())
	})
}

func TestRestysMiddlewareRunsForEachOfItsOwnAttemptsAlone(t *testing.T) {
	count := func(t *testing.T, client *resty.Client) int {
		runs := 0
		client.AddRequestMiddleware(func(*resty.Client, *resty.Request) error {
			runs++
			return nil
		})
		_, err := get(t, t.Context(), viaResty{client})
		require.NoError(t, err)
		return runs
	}
	synctest.Test(t, func(t *testing.T) {
		assert.Equal(t, 4, count(t, newResty(answering(http.StatusServiceUnavailable))))
		assert.Equal(t, 1, count(t, restyOver(retryhttp.New(answering(http.StatusServiceUnavailable), retryhttp.Policy{}))))
	})
}

func TestWhatRestyTellsOfTheAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := restyOver(retryhttp.New(answering(http.StatusServiceUnavailable), retryhttp.Policy{}))
		resp, err := client.R().Get("http://example.com/")
		require.NoError(t, err)
		assert.Equal(t, 1, resp.Request.Attempt)
		assert.Equal(t, 4, retryhttp.OutcomeOf(resp.RawResponse).Attempts)
	})
}

// What resty sets on an http.Transport, it cannot set on one that retries.
func TestRestysTransportHasToBeSetUpBeforeItIsWrapped(t *testing.T) {
	client := resty.New()
	_, err := client.HTTPTransport()
	require.NoError(t, err)
	client.SetTransport(retryhttp.New(client.Transport(), retryhttp.Policy{}))
	_, err = client.HTTPTransport()
	require.ErrorIs(t, err, resty.ErrNotHttpTransportType)
}

func TestAttemptsOfAPOSTWithAKeyThroughResty(t *testing.T) {
	attemptsOf := func(t *testing.T, client *resty.Client, base *stub) int {
		resp, err := client.R().SetHeader("Idempotency-Key", "1").Post("http://example.com/")
		require.NoError(t, err)
		resp.Body.Close()
		return base.count()
	}
	synctest.Test(t, func(t *testing.T) {
		base := answering(http.StatusServiceUnavailable)
		assert.Equal(t, 1, attemptsOf(t, newResty(base), base))
		base = answering(http.StatusServiceUnavailable)
		assert.Equal(t, 4, attemptsOf(t, restyOver(retryhttp.New(base, retryhttp.Policy{})), base))
	})
}
