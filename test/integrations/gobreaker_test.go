package integrations_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/sony/gobreaker/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// A breaker goes below the Transport, in a RoundTripper like breaker. What it refuses
// is Permanent, so that nobody waits for it in vain.
func Example_gobreaker() {
	server := failing(serviceUnavailable)
	defer server.Close()

	circuit := newBreaker(http.DefaultTransport, gobreaker.Settings{
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 2 },
	})
	client := &http.Client{Transport: retryhttp.New(circuit, retryhttp.Policy{})}
	resp, err := client.Get(server.URL)
	if err == nil {
		resp.Body.Close()
		return
	}
	fmt.Println("open:", errors.Is(err, gobreaker.ErrOpenState))
	fmt.Println("requests that reached the server:", len(server.got()))
	// Output:
	// open: true
	// requests that reached the server: 2
}

// breaker is a RoundTripper that goes below a Transport, where it sees every
// attempt.
type breaker struct {
	base    http.RoundTripper
	circuit *gobreaker.CircuitBreaker[*http.Response]
}

// A request that its caller canceled says nothing about the server. So IsExcluded excludes it; by
// default it counts as a failure.
func newBreaker(base http.RoundTripper, settings gobreaker.Settings) *breaker {
	settings.IsExcluded = func(err error) bool { return errors.Is(err, context.Canceled) }
	return &breaker{base, gobreaker.NewCircuitBreaker[*http.Response](settings)}
}

var errServer = errors.New("the server failed")

func (b *breaker) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.circuit.Execute(func() (*http.Response, error) {
		resp, err := b.base.RoundTrip(req)
		if err == nil && resp.StatusCode >= 500 {
			return resp, errServer // for the breaker to count
		}
		if err != nil && req.Context().Err() == context.Canceled {
			return nil, canceledBy(req.Context())
		}
		return resp, err
	})
	switch err {
	case errServer:
		return resp, nil
	case gobreaker.ErrOpenState, gobreaker.ErrTooManyRequests:
		if req.Body != nil {
			req.Body.Close() // a RoundTripper always does
		}
		return nil, retryhttp.Permanent(err)
	}
	return resp, err
}

// canceledBy distinguishes the AttemptTimeout, whose cause matches context.DeadlineExceeded, from
// the caller's cancel with any cause. The error of an http.Transport does not distinguish them:
// over HTTP/1 it is the cause, and over HTTP/2 always context.Canceled.
func canceledBy(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return context.Canceled
}

// trippingAfter opens after a number of failures in a row, and closes again after rest.
func trippingAfter(failures uint32, rest time.Duration) *breaker {
	return newBreaker(http.DefaultTransport, gobreaker.Settings{
		Timeout:     rest,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= failures },
	})
}

func through(b *breaker, policy retryhttp.Policy) *http.Client {
	policy.Backoff = retryhttp.Constant(0)
	return &http.Client{Transport: retryhttp.New(b, policy)}
}

func TestBreakerPassesTheLastResponseOn(t *testing.T) {
	server := failing(serviceUnavailable)
	defer server.Close()
	b := trippingAfter(100, time.Hour)
	resp, err := through(b, retryhttp.Policy{}).Get(server.URL)
	require.NoError(t, err)
	assert.Equal(t, "down\n", bodyOf(t, resp))
	assert.EqualValues(t, 4, b.circuit.Counts().TotalFailures)
	assert.Len(t, server.got(), 4)
}

func TestBreakerThatIsOpenIsNotWaitedFor(t *testing.T) {
	server := failing(answerOK)
	defer server.Close()
	b := trippingAfter(1, time.Hour)
	_, err := b.circuit.Execute(func() (*http.Response, error) { return nil, errServer })
	require.Error(t, err)

	body := &countedBody{}
	req, err := http.NewRequest(http.MethodPut, server.URL, body)
	require.NoError(t, err)
	req.GetBody = func() (io.ReadCloser, error) { return body, nil } // it is the breaker's to close
	_, err = through(b, retryhttp.Policy{}).Do(req)
	assert.ErrorIs(t, err, gobreaker.ErrOpenState)
	failure, ok := errors.AsType[*retryhttp.Error](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, 1, failure.Attempts)
	assert.Equal(t, retryhttp.StopFinal, failure.Stop)
	assert.EqualValues(t, 1, body.closed.Load())
	assert.Empty(t, server.got())
}

// A half-open breaker lets one request through and refuses the requests beside it.
func TestBreakerThatIsHalfOpenRefusesForGoodToo(t *testing.T) {
	hold, held := make(chan struct{}), make(chan struct{})
	server := failing(func(http.ResponseWriter, *http.Request) {
		close(held)
		<-hold
	})
	defer server.Close()
	b := trippingAfter(1, time.Nanosecond)
	_, err := b.circuit.Execute(func() (*http.Response, error) { return nil, errServer })
	require.Error(t, err)

	client := through(b, retryhttp.Policy{})
	done := make(chan error)
	go func() {
		resp, err := client.Get(server.URL)
		if err == nil {
			resp.Body.Close()
		}
		done <- err
	}()
	<-held
	_, err = client.Get(server.URL)
	assert.ErrorIs(t, err, gobreaker.ErrTooManyRequests)
	failure, ok := errors.AsType[*retryhttp.Error](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, 1, failure.Attempts)
	close(hold)
	assert.NoError(t, <-done)
	assert.Equal(t, gobreaker.StateClosed, b.circuit.State())
	assert.Len(t, server.got(), 1)
}
