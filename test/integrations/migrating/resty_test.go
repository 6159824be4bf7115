package migrating_test

import (
	"fmt"
	"net/http"
	"strings"
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

// restyOver is a resty client that sends its requests through rt, and does not retry.
func restyOver(rt http.RoundTripper) *resty.Client {
	return resty.NewWithClient(&http.Client{Transport: rt}).SetResponseDoNotParse(true)
}

func TestRestysWaitsHaveTheirLike(t *testing.T) {
	spans := []span{
		{time.Second, 2 * time.Second},
		{2 * time.Second, 4 * time.Second},
		{2500 * time.Millisecond, 5 * time.Second},
	}
	synctest.Test(t, func(t *testing.T) {
		assertWaits(t, func(base http.RoundTripper) doer {
			return viaResty{restyOver(base).SetRetryCount(3).
				SetRetryWaitTime(time.Second).SetRetryMaxWaitTime(5 * time.Second).
				AddRetryConditions(resty.RetryConditionStatus5XX)}
		}, spans...)
		assertWaits(t, retrying(retryhttp.Policy{Backoff: retryhttp.EqualJitter(2*time.Second, 5*time.Second)}), spans...)
	})
}

func TestRestysRetriesMultiplyWithThoseBelow(t *testing.T) {
	for attempts, budget := range map[int]retryhttp.Budget{16: retryhttp.Unlimited{}, 10: nil} {
		synctest.Test(t, func(t *testing.T) {
			base := answering(http.StatusServiceUnavailable)
			rt := retryhttp.New(base, retryhttp.Policy{Budget: budget})
			_, err := get(t, t.Context(), viaResty{newResty(rt)})
			require.NoError(t, err)
			assert.Equal(t, attempts, base.count())
		})
	}
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

func TestRestysLoadBalancerIsAskedForEachOfItsOwnAttemptsAlone(t *testing.T) {
	hostsOf := func(t *testing.T, over func(http.RoundTripper) *resty.Client) []string {
		var hosts []string
		balancer, err := resty.NewRoundRobin("http://a.example", "http://b.example")
		require.NoError(t, err)
		client := over(&stub{answer: func(_ int, req *http.Request) (*http.Response, error) {
			hosts = append(hosts, req.URL.Host)
			return response(req, http.StatusServiceUnavailable), nil
		}})
		resp, err := client.SetLoadBalancer(balancer).R().Get("/")
		require.NoError(t, err)
		resp.Body.Close()
		return hosts
	}
	synctest.Test(t, func(t *testing.T) {
		const a, b = "a.example", "b.example"
		assert.Equal(t, []string{a, b, a, b}, hostsOf(t, newResty))
		assert.Equal(t, []string{a, a, a, a}, hostsOf(t, func(base http.RoundTripper) *resty.Client {
			return restyOver(retryhttp.New(base, retryhttp.Policy{}))
		}))
	})
}

func TestAMultipartFormOfRestysIsAStream(t *testing.T) {
	attemptsOf := func(t *testing.T, base *stub, client *resty.Client) int {
		resp, err := client.R().
			SetFileReader("file", "file.bin", strings.NewReader(strings.Repeat("x", 100<<10))).
			Put("http://example.com/")
		require.NoError(t, err)
		resp.Body.Close()
		assert.Greater(t, len(base.sent), 100<<10)
		return base.count()
	}
	synctest.Test(t, func(t *testing.T) {
		base := answering(http.StatusServiceUnavailable)
		assert.Equal(t, 4, attemptsOf(t, base, newResty(base)))

		base = answering(http.StatusServiceUnavailable)
		assert.Equal(t, 1, attemptsOf(t, base, restyOver(retryhttp.New(base, retryhttp.Policy{}))))

		base = answering(http.StatusServiceUnavailable)
		assert.Equal(t, 4, attemptsOf(t, base, restyOver(retryhttp.New(base, retryhttp.Policy{RecordBytes: 1 << 20}))))
	})
}

func TestAHookOfRestysThatChangesTheRequestLiesBelow(t *testing.T) {
	tokensOf := func(t *testing.T, over func(http.RoundTripper) *resty.Client) []string {
		var tokens []string
		client := over(&stub{answer: func(_ int, req *http.Request) (*http.Response, error) {
			tokens = append(tokens, req.Header.Get("Token"))
			return response(req, http.StatusServiceUnavailable), nil
		}})
		resp, err := client.R().SetHeader("Token", "old").Get("http://example.com/")
		require.NoError(t, err)
		resp.Body.Close()
		return tokens
	}
	synctest.Test(t, func(t *testing.T) {
		assert.Equal(t, []string{"old", "new", "new", "new"}, tokensOf(t, func(base http.RoundTripper) *resty.Client {
			return newResty(base).AddRetryHooks(func(resp *resty.Response, _ error) { resp.Request.SetHeader("Token", "new") })
		}))
		assert.Equal(t, []string{"old", "new", "new", "new"}, tokensOf(t, func(base http.RoundTripper) *resty.Client {
			below := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
				if retryhttp.AttemptOf(req.Context()).Number > 1 {
					req = req.Clone(req.Context())
					req.Header.Set("Token", "new")
				}
				return base.RoundTrip(req)
			})
			return restyOver(retryhttp.New(below, retryhttp.Policy{}))
		}))
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

// resty sets options of an http.Transport. It cannot set them on a Transport that retries.
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
