package migrating_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	failsafego "github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// HandleIf adds to what the builder for HTTP handles.
func Example_failsafehttpBefore() {
	server := failing(408, 503)
	defer server.Close()

	retries := failsafehttp.NewRetryPolicyBuilder().
		HandleIf(func(resp *http.Response, _ error) bool {
			return resp != nil && resp.StatusCode == http.StatusRequestTimeout
		}).
		WithMaxRetries(3).
		WithBackoff(50*time.Millisecond, time.Second).
		WithJitterFactor(0.25).
		ReturnLastFailure().
		Build()
	client := &http.Client{Transport: failsafehttp.NewRoundTripper(nil, retries)}
	server.show(client.Get(server.URL))
	// Output: 200 OK after 3 requests
}

// A 408 is retried by default, and the last response is always returned.
func Example_failsafehttpAfter() {
	server := failing(408, 503)
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(http.DefaultTransport, retryhttp.Policy{
		MaxAttempts: 4,
		Backoff:     retryhttp.Exponential(50*time.Millisecond, time.Second).Spread(0.25),
	})}
	server.show(client.Get(server.URL))
	// Output: 200 OK after 3 requests
}

// What else failsafe-go does stays below, where it sees every attempt. An open
// breaker is not asked again.
func Example_failsafehttpBreaker() {
	server := failing(503, 503)
	defer server.Close()

	breaker := circuitbreaker.NewBuilder[*http.Response]().
		HandleIf(func(resp *http.Response, err error) bool {
			return err != nil || resp.StatusCode >= 500
		}).
		WithFailureThreshold(2).
		Build()
	client := &http.Client{Transport: retryhttp.New(closing{failsafehttp.NewRoundTripper(nil, breaker)}, retryhttp.Policy{
		Classify: func(a retryhttp.Attempt) retryhttp.Class {
			if errors.Is(a.Err, circuitbreaker.ErrOpen) {
				return retryhttp.Final
			}
			return retryhttp.Classify(a)
		},
	})}
	resp, err := client.Get(server.URL)
	if failure, ok := errors.AsType[*retryhttp.Error](err); ok {
		fmt.Println(failure.Err, "at attempt", failure.Attempts)
		return
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	// Output: circuit breaker open at attempt 3
}

// closing closes request bodies, which failsafehttp does not.
type closing struct{ http.RoundTripper }

func (c closing) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
	}
	return c.RoundTripper.RoundTrip(req)
}

type failsafeBuilder = retrypolicy.Builder[*http.Response]

// failsafe builds clients that make four attempts.
func failsafe(edit func(failsafeBuilder) failsafeBuilder) func(http.RoundTripper) doer {
	return func(base http.RoundTripper) doer {
		retries := edit(failsafehttp.NewRetryPolicyBuilder().WithMaxRetries(3)).Build()
		return &http.Client{Transport: failsafehttp.NewRoundTripper(base, retries)}
	}
}

func TestFailsafesDelaysHaveTheirLike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spread := []span{
			{750 * time.Millisecond, 1250 * time.Millisecond}, {1500 * time.Millisecond, 2500 * time.Millisecond},
			{2250 * time.Millisecond, 3750 * time.Millisecond},
		}
		assertWaits(t, failsafe(func(b failsafeBuilder) failsafeBuilder {
			return b.WithBackoff(time.Second, 3*time.Second).WithJitterFactor(0.25)
		}), spread...)
		backoff := retryhttp.Exponential(time.Second, 3*time.Second).Spread(0.25)
		assertWaits(t, retrying(retryhttp.Policy{Backoff: backoff}), spread...)

		random := []span{{time.Second, 3 * time.Second}, {time.Second, 3 * time.Second}, {time.Second, 3 * time.Second}}
		assertWaits(t, failsafe(func(b failsafeBuilder) failsafeBuilder {
			return b.WithRandomDelay(time.Second, 3*time.Second)
		}), random...)
		backoff = retryhttp.Constant(time.Second).PlusJitter(2 * time.Second)
		assertWaits(t, retrying(retryhttp.Policy{Backoff: backoff}), random...)
	})
}

func TestFailsafeMakesThreeAttemptsWithoutAWaitByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := answering(http.StatusServiceUnavailable)
		start := time.Now()
		_, err := failsafehttp.NewRoundTripper(base, failsafehttp.NewRetryPolicyBuilder().Build()).
			RoundTrip(newRequest(t, t.Context(), http.MethodGet))
		require.ErrorIs(t, err, retrypolicy.ErrExceeded)
		assert.Equal(t, 3, base.count())
		assert.Zero(t, time.Since(start))
	})
}

func TestFailsafeCutsTheLastDelayToTheMaxDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		theirs, ours := answering(http.StatusServiceUnavailable), answering(http.StatusServiceUnavailable)
		_, err := get(t, t.Context(), failsafe(func(b failsafeBuilder) failsafeBuilder {
			return b.WithDelay(wait).WithMaxDuration(wait / 2)
		})(theirs))
		require.Error(t, err)
		assert.Equal(t, wait/2, theirs.at[1].Sub(theirs.at[0]))

		policy := retryhttp.Policy{Backoff: retryhttp.Constant(wait), MaxElapsed: wait / 2}
		_, err = get(t, t.Context(), retrying(policy)(ours))
		require.NoError(t, err)
		assert.Equal(t, 1, ours.count())
	})
}

// failures is a stub that answers n times with 503, and then with 200.
func failures(n int) *stub {
	return &stub{answer: func(at int, req *http.Request) (*http.Response, error) {
		if at <= n {
			return response(req, http.StatusServiceUnavailable), nil
		}
		return response(req, http.StatusOK), nil
	}}
}

func TestOfWhichAttemptsOnFailureAndOnRetryTell(t *testing.T) {
	for name, of := range map[string]struct{ failed, onFailure, onRetry int }{
		"a success at last": {3, 3, 3},
		"no success":        {4, 4, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := 0
				_, _ = get(t, t.Context(), failsafe(func(b failsafeBuilder) failsafeBuilder {
					return b.OnFailure(func(failsafego.ExecutionEvent[*http.Response]) { told++ })
				})(failures(of.failed)))
				assert.Equal(t, of.onFailure, told)

				told = 0
				_, _ = get(t, t.Context(), retrying(retryhttp.Policy{
					OnRetry: func(retryhttp.Attempt) { told++ },
				})(failures(of.failed)))
				assert.Equal(t, of.onRetry, told)
			})
		})
	}
}

// failsafe has an event for each of them.
func TestStopDoesNotTellASuccessFromWhatWasAborted(t *testing.T) {
	for name, of := range map[string]struct {
		status int
		event  string
	}{
		"success": {http.StatusOK, "success"},
		"aborted": {http.StatusNotFound, "abort"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var events []string
				tell := func(event string) func(failsafego.ExecutionEvent[*http.Response]) {
					return func(failsafego.ExecutionEvent[*http.Response]) { events = append(events, event) }
				}
				notFound := func(resp *http.Response, _ error) bool { return resp.StatusCode == http.StatusNotFound }
				_, err := get(t, t.Context(), failsafe(func(b failsafeBuilder) failsafeBuilder {
					return b.HandleIf(notFound).AbortIf(notFound).OnSuccess(tell("success")).OnAbort(tell("abort"))
				})(answering(of.status)))
				require.NoError(t, err)
				assert.Equal(t, []string{of.event}, events)

				var stops []retryhttp.Stop
				_, err = get(t, t.Context(), retrying(retryhttp.Policy{
					OnDone: func(_ retryhttp.Attempt, o retryhttp.Outcome) { stops = append(stops, o.Stop) },
				})(answering(of.status)))
				require.NoError(t, err)
				assert.Equal(t, []retryhttp.Stop{retryhttp.StopFinal}, stops)
			})
		})
	}
}

func TestHowOnRetriesExceededIsToldByStop(t *testing.T) {
	for name, of := range map[string]struct {
		edit func(failsafeBuilder) failsafeBuilder
		here retryhttp.Policy
		stop retryhttp.Stop
	}{
		"the attempts": {
			func(b failsafeBuilder) failsafeBuilder { return b.WithDelay(wait) },
			retryhttp.Policy{}, retryhttp.StopAttempts,
		},
		"the duration": {
			func(b failsafeBuilder) failsafeBuilder { return b.WithDelay(wait).WithMaxDuration(wait / 2) },
			retryhttp.Policy{Backoff: retryhttp.Constant(wait), MaxElapsed: wait / 2}, retryhttp.StopDeadline,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				exceeded := 0
				_, err := get(t, t.Context(), failsafe(func(b failsafeBuilder) failsafeBuilder {
					return of.edit(b).OnRetriesExceeded(func(failsafego.ExecutionEvent[*http.Response]) { exceeded++ })
				})(answering(http.StatusServiceUnavailable)))
				require.ErrorIs(t, err, retrypolicy.ErrExceeded)
				assert.Equal(t, 1, exceeded)

				resp, err := get(t, t.Context(), retrying(of.here)(answering(http.StatusServiceUnavailable)))
				require.NoError(t, err)
				assert.Equal(t, of.stop, retryhttp.OutcomeOf(resp).Stop)
			})
		})
	}
}

func TestHowManyAttemptsMinusOneMeans(t *testing.T) {
	const many = 100
	for name, build := range map[string]func(http.RoundTripper) doer{
		"failsafehttp, WithMaxRetries":  failsafe(func(b failsafeBuilder) failsafeBuilder { return b.WithMaxRetries(-1) }),
		"failsafehttp, WithMaxAttempts": failsafe(func(b failsafeBuilder) failsafeBuilder { return b.WithMaxAttempts(-1) }),
		"retryhttp, MaxAttempts":        retrying(retryhttp.Policy{MaxAttempts: -1}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := failures(many)
				resp, err := get(t, t.Context(), build(base))
				require.NoError(t, err)
				assert.Equal(t, http.StatusOK, resp.StatusCode)
				assert.Equal(t, many+1, base.count())
			})
		})
	}
}

func TestWhatLiesAboveFailsafehttpClosesBodies(t *testing.T) {
	var opened, closed atomic.Int64
	open := func() (io.ReadCloser, error) {
		opened.Add(1)
		return &countedBody{strings.NewReader("upload"), &closed}, nil
	}
	breaker := circuitbreaker.NewBuilder[*http.Response]().WithFailureThreshold(100).Build()
	base := closing{failsafehttp.NewRoundTripper(answering(http.StatusServiceUnavailable), breaker)}
	req := newRequest(t, t.Context(), http.MethodPut)
	req.GetBody = open
	req.Body, _ = open()
	resp, err := retryhttp.New(base, retryhttp.Policy{Backoff: retryhttp.Constant(0)}).RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.EqualValues(t, 4, opened.Load())
	assert.EqualValues(t, 4, closed.Load())
}

type countedBody struct {
	io.Reader
	closed *atomic.Int64
}

func (b *countedBody) Close() error {
	b.closed.Add(1)
	return nil
}
