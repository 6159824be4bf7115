package migrating_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// The operation makes the request and says what its result means.
func Example_backoffBefore() {
	server := failing(503, 429)
	defer server.Close()

	intervals := backoff.NewExponentialBackOff()
	intervals.InitialInterval = 50 * time.Millisecond
	operation := func() (*http.Response, error) {
		resp, err := http.Get(server.URL)
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
	resp, err := backoff.Retry(context.Background(), operation,
		backoff.WithBackOff(intervals), backoff.WithMaxTries(4))
	server.show(resp, err)
	// Output: 200 OK after 3 requests
}

// What the operation decided is the default here.
func Example_backoffAfter() {
	server := failing(503, 429)
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(http.DefaultTransport, retryhttp.Policy{
		MaxAttempts: 4,
		MaxElapsed:  15 * time.Minute,
		Backoff:     retryhttp.Geometric(50*time.Millisecond, time.Minute, 1.5).Spread(0.5),
	})}
	resp, err := client.Get(server.URL)
	server.show(resp, err)
	// Output: 200 OK after 3 requests
}

// To read the answer is part of the operation, so backoff stays. RetryAfter reads
// the header for it, in all its forms.
func Example_backoffStays() {
	server := failing(503, 429)
	defer server.Close()

	operation := func() (greeting struct{ Text string }, err error) {
		resp, err := http.Get(server.URL)
		if err != nil {
			return greeting, err
		}
		defer resp.Body.Close()
		if asked, ok := retryhttp.RetryAfter(resp.Header); ok && asked <= time.Minute {
			return greeting, &backoff.RetryAfterError{Duration: asked}
		}
		if resp.StatusCode != 200 {
			return greeting, errors.New(resp.Status)
		}
		return greeting, json.NewDecoder(resp.Body).Decode(&greeting)
	}
	greeting, err := backoff.Retry(context.Background(), operation,
		backoff.WithBackOff(backoff.NewConstantBackOff(50*time.Millisecond)), backoff.WithMaxTries(4))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(greeting.Text, "after", server.requests.Load(), "requests")
	// Output: hello after 3 requests
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

func TestBackoffForgetsTheLastFailureWhenItIsCanceled(t *testing.T) {
	for name, kept := range map[string]bool{"backoff": false, "retryhttp": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(wait/2, cancel)
				_, err := get(t, ctx, peers[name](refusing(io.ErrUnexpectedEOF)))
				require.ErrorIs(t, err, context.Canceled)
				assert.Equal(t, kept, errors.Is(err, io.ErrUnexpectedEOF))
			})
		})
	}
}
