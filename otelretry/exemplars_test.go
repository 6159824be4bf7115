package otelretry_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/retryhttp/retryhttp/otelretry"
)

// exemplar returns the span that the metric of attempts names.
func (tel *telemetry) exemplar(t *testing.T) (spanID [8]byte) {
	t.Helper()
	points := tel.metric(t, "retryhttp.client.call.attempts").Data.(metricdata.Histogram[int64]).DataPoints
	require.Len(t, points, 1)
	require.Len(t, points[0].Exemplars, 1)
	copy(spanID[:], points[0].Exemplars[0].SpanID)
	return spanID
}

func TestExemplarsNameTheCallersSpan(t *testing.T) {
	tel := newTelemetry()
	caller := tel.inSpan(t, func(ctx context.Context) {
		_, err := send(t, ctx, otelretry.New(playing(503, 200), atOnce, tel.options()...), "GET", shop)
		require.NoError(t, err)
	})
	assert.EqualValues(t, caller.SpanContext.SpanID(), tel.exemplar(t))
}

func TestExemplarsNameTheFirstAttemptWithoutACallersSpan(t *testing.T) {
	tel := newTelemetry()
	_, err := send(t, t.Context(), otelretry.New(playing(503, 200), atOnce, tel.options()...), "GET", shop)
	require.NoError(t, err)
	assert.EqualValues(t, tel.named("HTTP GET")[0].SpanContext.SpanID(), tel.exemplar(t))
}
