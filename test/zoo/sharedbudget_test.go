package zoo

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
	"github.com/retryhttp/retryhttp/redisbudget"
)

// The gauge of the budget's tokens shows the balance that a fleet shares.
func TestBalanceOfAFleetIsMeasured(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	engine := miniredis.RunT(t)
	engineClient := redis.NewClient(&redis.Options{Addr: engine.Addr()})
	defer engineClient.Close()
	bucket := &redisbudget.Bucket{Client: engineClient, Burst: 33, Ratio: -1, Interval: 10 * time.Millisecond}
	defer func() { require.NoError(t, bucket.Close()) }()

	reader := metric.NewManualReader()
	transport := otelretry.New(nil, retryhttp.Policy{Budget: bucket},
		otelretry.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	assert.Eventually(t, func() bool {
		resp, err := client.Get(server.URL)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return gauge(t, reader, "retryhttp.client.budget.tokens") == 33
	}, 10*time.Second, 10*time.Millisecond)
}

func gauge(t *testing.T, reader metric.Reader, name string) float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if points, ok := m.Data.(metricdata.Gauge[float64]); ok && m.Name == name {
				return points.DataPoints[0].Value
			}
		}
	}
	return -1
}
