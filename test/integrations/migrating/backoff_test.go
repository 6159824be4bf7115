package migrating_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// The operation makes the request and says what its result means.
func Example_backoffBefore() {
	server := failing(503, 429)
	defer server.Close()

	server.show(backoffBefore(http.DefaultClient, server.URL))
	// Output: 200 OK after 3 requests
}

func backoffBefore(client *http.Client, url string) (*http.Response, error) {
	intervals := backoff.NewExponentialBackOff()
	intervals.InitialInterval = 50 * time.Millisecond
	operation := func() (*http.Response, error) {
		resp, err := client.Get(url)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode < 400 {
			return resp, nil
		}
		resp.Body.Close()
		if resp.StatusCode < 500 && resp.StatusCode != 408 && resp.StatusCode != 429 {
			return nil, backoff.Permanent(errors.New(resp.Status))
		}
		if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
			return nil, backoff.RetryAfter(seconds)
		}
		return nil, errors.New(resp.Status)
	}
	return backoff.Retry(context.Background(), operation,
		backoff.WithBackOff(intervals), backoff.WithMaxTries(4))
}

// What to repeat is the default here. What is an error is still the caller's to say.
func Example_backoffAfter() {
	server := failing(503, 429)
	defer server.Close()

	get := backoffAfter(http.DefaultTransport)
	server.show(get(server.URL))
	// Output: 200 OK after 3 requests
}

func backoffAfter(base http.RoundTripper) func(url string) (*http.Response, error) {
	client := &http.Client{Transport: retryhttp.New(base, retryhttp.Policy{
		MaxAttempts:   4,
		MaxElapsed:    15 * time.Minute,
		MaxRetryAfter: 15 * time.Minute,
		Backoff:       retryhttp.Geometric(50*time.Millisecond, time.Minute, 1.5).Spread(0.5),
	})}
	get := func(url string) (*http.Response, error) {
		resp, err := client.Get(url)
		if err == nil && resp.StatusCode >= 400 {
			resp.Body.Close()
			return nil, errors.New(resp.Status)
		}
		return resp, err
	}
	return get
}

func TestWhatComesAfterBackoffDoesAsBefore(t *testing.T) {
	const none, tenMinutes, hour = "", "600", "3600"
	for _, of := range []struct {
		status     int
		retryAfter string
		requests   int
		waits      time.Duration // at least
	}{
		{404, none, 1, 0},
		{503, none, 4, 100 * time.Millisecond},
		{429, none, 4, 100 * time.Millisecond},
		{503, tenMinutes, 2, 10 * time.Minute}, // a second such wait would end after a quarter of an hour
		{503, hour, 1, 0},
	} {
		for name, send := range map[string]func(http.RoundTripper) (*http.Response, error){
			"before": func(base http.RoundTripper) (*http.Response, error) {
				return backoffBefore(&http.Client{Transport: base}, "http://example.com/")
			},
			"after": func(base http.RoundTripper) (*http.Response, error) {
				return backoffAfter(base)("http://example.com/")
			},
		} {
			t.Run(fmt.Sprint(of.status, " ", of.retryAfter, " ", name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					base := answering(of.status, "Retry-After", of.retryAfter)
					start := time.Now()
					_, err := send(base)
					require.Error(t, err)
					assert.Equal(t, of.requests, base.count())
					assert.GreaterOrEqual(t, time.Since(start), of.waits)
					assert.Equal(t, of.waits == 0, time.Since(start) == 0)
				})
			})
		}
	}
}

// To read the answer is part of the operation, so backoff stays. RetryAfter reads
// the header for it, in all its forms.
func Example_backoffStays() {
	server := failing(503, 429)
	defer server.Close()

	greeting, err := greet(http.DefaultClient, server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(greeting.Text, "after", server.requests.Load(), "requests")
	// Output: hello after 3 requests
}

type greeting struct{ Text string }

func greet(client *http.Client, url string) (greeting, error) {
	operation := func() (greeting, error) {
		resp, err := client.Get(url)
		if err != nil {
			return greeting{}, err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return greeting{}, failureOf(resp)
		}
		var read greeting
		err = json.NewDecoder(resp.Body).Decode(&read)
		return read, err
	}
	return backoff.Retry(context.Background(), operation,
		backoff.WithBackOff(backoff.NewConstantBackOff(50*time.Millisecond)), backoff.WithMaxTries(4))
}

// failureOf returns the error that a response other than the greeting is for backoff. A wait of
// zero is left to the intervals, because backoff would repeat the request at once.
func failureOf(resp *http.Response) error {
	failure := errors.New(resp.Status)
	if resp.StatusCode < 500 && resp.StatusCode != 408 && resp.StatusCode != 429 {
		return backoff.Permanent(failure)
	}
	asked, _ := retryhttp.RetryAfter(resp.Header)
	if asked > time.Minute {
		return backoff.Permanent(failure)
	}
	if asked > 0 {
		return fmt.Errorf("%w, %w", failure, &backoff.RetryAfterError{Duration: asked})
	}
	return failure
}

func TestWhatTheOperationThatStaysRepeats(t *testing.T) {
	for _, of := range []struct {
		status     int
		retryAfter string
		requests   int
		waited     time.Duration
	}{
		{404, "", 1, 0},
		{404, "1", 1, 0},
		{204, "1", 1, 0},
		{408, "", 4, 150 * time.Millisecond},
		{429, "", 4, 150 * time.Millisecond},
		{503, "", 4, 150 * time.Millisecond},
		{503, "0", 4, 150 * time.Millisecond},
		{429, "1", 4, 3 * time.Second},
		{503, "60", 4, 3 * time.Minute},
		{503, "61", 1, 0},
	} {
		t.Run(fmt.Sprint(of.status, " ", of.retryAfter), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := answering(of.status, "Retry-After", of.retryAfter)
				start := time.Now()
				_, err := greet(&http.Client{Transport: base}, "http://example.com/")
				require.ErrorContains(t, err, http.StatusText(of.status))
				assert.Equal(t, of.requests, base.count())
				assert.Equal(t, of.waited, time.Since(start))
			})
		})
	}
}

func TestTheOperationThatStaysTakesAGreetingThatComesWithARetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &stub{answer: func(_ int, req *http.Request) (*http.Response, error) {
			resp := response(req, http.StatusOK, "Retry-After", "1")
			resp.Body = io.NopCloser(strings.NewReader(`{"text": "hello"}`))
			return resp, nil
		}}
		greeting, err := greet(&http.Client{Transport: base}, "http://example.com/")
		require.NoError(t, err)
		assert.Equal(t, "hello", greeting.Text)
		assert.Equal(t, 1, base.count())
	})
}

func TestBackoffsIntervalsHaveTheirLike(t *testing.T) {
	spans := []span{
		{250 * time.Millisecond, 750 * time.Millisecond}, {375 * time.Millisecond, 1125 * time.Millisecond},
		{500 * time.Millisecond, 1500 * time.Millisecond},
	}
	synctest.Test(t, func(t *testing.T) {
		assertWaits(t, func(base http.RoundTripper) doer {
			return doerFunc(func(req *http.Request) (*http.Response, error) {
				intervals := backoff.NewExponentialBackOff()
				intervals.MaxInterval = time.Second
				return backoff.Retry(req.Context(), func() (*http.Response, error) {
					_, _ = base.RoundTrip(req)
					return nil, io.ErrUnexpectedEOF
				}, backoff.WithBackOff(intervals), backoff.WithMaxTries(4))
			})
		}, spans...)
		policy := retryhttp.Policy{Backoff: retryhttp.Geometric(500*time.Millisecond, time.Second, 1.5).Spread(0.5)}
		assertWaits(t, retrying(policy), spans...)
	})
}

func TestBackoffGoesOnForAQuarterOfAnHourByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, tries := time.Now(), 0
		_, err := backoff.Retry(t.Context(), func() (any, error) {
			tries++
			return nil, io.ErrUnexpectedEOF
		}, backoff.WithBackOff(backoff.NewConstantBackOff(time.Minute)))
		require.Error(t, err)
		assert.Equal(t, 16, tries)
		assert.Equal(t, 15*time.Minute, time.Since(start))
	})
}

func TestTheLastFailureIsKeptAfterBackoffWhenItIsCanceled(t *testing.T) {
	for _, name := range []string{"backoff", "retryhttp"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(wait/2, cancel)
				_, err := get(t, ctx, peers[name](refusing(io.ErrUnexpectedEOF)))
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			})
		})
	}
}
