package otelretry_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

// Otherwise three servers that answer with each status there is would have the SDK fold the series of
// all others.
func TestServersCannotMakeSeriesByTheirStatuses(t *testing.T) {
	tel := newTelemetry()
	var statuses []int
	for status := 200; status < 1000; status++ {
		statuses = append(statuses, status)
	}
	once := retryhttp.Policy{MaxAttempts: 1}
	for i := range 3 {
		rt := otelretry.New(playing(statuses...), once, tel.options()...)
		for range statuses {
			_, err := rt.RoundTrip(request(t, fmt.Sprintf("http://host%d.example/", i)))
			require.NoError(t, err)
		}
	}
	points := tel.metric(t, "retryhttp.client.call.stops").Data.(metricdata.Sum[int64]).DataPoints
	assert.Less(t, len(points), 400)
	for _, p := range points {
		assert.False(t, p.Attributes.HasValue("otel.metric.overflow"))
	}
}

func request(t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	return req
}

func TestServersHaveTheNamesOfTheCaller(t *testing.T) {
	for name, want := range map[string][]attribute.KeyValue{
		"":          nil,
		"customers": {attribute.String("server.address", "customers")},
		"\xff":      {attribute.String("server.address", "\uFFFD")},
	} {
		t.Run(name, func(t *testing.T) {
			tel := newTelemetry()
			opts := append(tel.options(), otelretry.WithServer(func(*http.Request) string { return name }), otelretry.WithServer(nil))
			rt := otelretry.New(playing(200), atOnce, opts...)
			for i := range 3000 {
				_, err := rt.RoundTrip(request(t, fmt.Sprintf("http://host%d.example/", i)))
				require.NoError(t, err)
			}
			points := tel.metric(t, "retryhttp.client.call.stops").Data.(metricdata.Sum[int64]).DataPoints
			require.Len(t, points, 1)
			assert.EqualValues(t, 3000, points[0].Value)
			attrs := append([]attribute.KeyValue{attribute.String("http.request.method", "GET"), stop("final"), status(200)}, want...)
			assert.Equal(t, attribute.NewSet(attrs...), points[0].Attributes)
			tokens := tel.tokens(t)
			require.Len(t, tokens, 1)
			assert.Equal(t, attribute.NewSet(want...), tokens[0].Attributes)
		})
	}
}
