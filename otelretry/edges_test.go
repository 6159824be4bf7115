package otelretry_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

// percentile95 is Prometheus's histogram_quantile(0.95, …) of a histogram whose values share a bucket.
func percentile95(t *testing.T, p metricdata.HistogramDataPoint[float64]) float64 {
	t.Helper()
	for i, n := range p.BucketCounts {
		if n > 0 {
			require.Equal(t, p.Count, n)
			return p.Bounds[i-1] + 0.95*(p.Bounds[i]-p.Bounds[i-1])
		}
	}
	return 0
}

// A Gate holds requests for 5 s, or for several times that. A wait has a little more, the time that it
// takes to send the next attempt.
func TestPercentilesOfWaitsAreNearTheWaits(t *testing.T) {
	for _, wait := range []time.Duration{
		time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second, 7 * time.Second, 10 * time.Second,
		15 * time.Second, 20 * time.Second, 30 * time.Second, 60 * time.Second,
		5050 * time.Millisecond, 10050 * time.Millisecond, 15050 * time.Millisecond,
	} {
		t.Run(fmt.Sprint(wait), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tel := newTelemetry()
				rt := otelretry.New(playing(503, 200), retryhttp.Policy{Backoff: retryhttp.Constant(wait)}, tel.options()...)
				_, err := send(t, t.Context(), rt, "GET", shop)
				require.NoError(t, err)
				delays := tel.metric(t, "retryhttp.client.call.retry_delay").Data.(metricdata.Histogram[float64]).DataPoints
				require.Len(t, delays, 1)
				assert.InEpsilon(t, wait.Seconds(), percentile95(t, delays[0]), 0.1)
			})
		})
	}
}
