package otelretry_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

const shop = "http://shop.example:80/"

// failingFor is a base that answers with 503 for d, and with 200 after that.
func failingFor(d time.Duration) roundTripperFunc {
	start := time.Now()
	return func(req *http.Request) (*http.Response, error) {
		time.Sleep(time.Millisecond)
		status := http.StatusOK
		if time.Since(start) < d {
			status = http.StatusServiceUnavailable
		}
		return &http.Response{StatusCode: status, Body: http.NoBody, Request: req}, nil
	}
}

// patient retries often enough to outlast an outage.
func patient() retryhttp.Policy {
	return retryhttp.Policy{
		MaxAttempts: -1,
		Backoff:     retryhttp.Constant(100 * time.Millisecond),
		Budget:      retryhttp.Unlimited{},
	}
}

// sendSteadily begins n requests, one each 10 ms, and returns what ends the wait for them.
func sendSteadily(t *testing.T, rt http.RoundTripper, n int) (wait func()) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for range n {
			wg.Go(func() {
				_, err := send(t, t.Context(), rt, "GET", shop)
				assert.NoError(t, err)
			})
			time.Sleep(10 * time.Millisecond)
		}
	})
	return wg.Wait
}

func TestTimeThatRequestsAreHeldIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		var mu sync.Mutex
		var requests, held int
		var sum time.Duration
		policy := patient()
		policy.OnDone = func(_ retryhttp.Attempt, o retryhttp.Outcome) {
			mu.Lock()
			defer mu.Unlock()
			requests++
			if o.Held > 0 {
				held++
				sum += o.Held
			}
		}
		sendSteadily(t, otelretry.New(failingFor(time.Second), policy, tel.options()...), 300)()

		require.Equal(t, 300, requests)
		require.Greater(t, held, 20)
		require.Less(t, held, 200)
		m := tel.metric(t, "retryhttp.client.call.held")
		assert.Equal(t, "s", m.Unit)
		points := m.Data.(metricdata.Histogram[float64]).DataPoints
		require.Len(t, points, 1)
		assert.EqualValues(t, held, points[0].Count, "of the requests that were held")
		assert.InDelta(t, sum.Seconds(), points[0].Sum, 1e-6)
		assert.Equal(t, call(t, "GET", shop), points[0].Attributes)
		delay := tel.metric(t, "retryhttp.client.call.retry_delay").Data.(metricdata.Histogram[float64]).DataPoints
		require.Len(t, delay, 1)
		assert.Equal(t, delay[0].Bounds, points[0].Bounds)
	})
}

// A first attempt that is held has no retry_delay.
func TestTimeThatAFirstAttemptIsHeldIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		base := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			header := http.Header{"Retry-After": {"2"}}
			return &http.Response{StatusCode: 429, Header: header, Body: http.NoBody, Request: req}, nil
		})
		policy := retryhttp.Policy{MaxAttempts: 1, Gate: &retryhttp.Gate{First: true}}
		rt := otelretry.New(base, policy, tel.options()...)
		for range 2 {
			_, err := send(t, t.Context(), rt, "GET", shop)
			require.NoError(t, err)
		}
		points := tel.metric(t, "retryhttp.client.call.held").Data.(metricdata.Histogram[float64]).DataPoints
		require.Len(t, points, 1)
		assert.EqualValues(t, 1, points[0].Count)
		assert.GreaterOrEqual(t, points[0].Sum, 2.0)
		assert.Empty(t, tel.metric(t, "retryhttp.client.call.retry_delay").Data)
	})
}
