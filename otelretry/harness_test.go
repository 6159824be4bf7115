package otelretry_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

// telemetry keeps in memory what a Transport reports.
type telemetry struct {
	spans   *tracetest.InMemoryExporter
	tracers *trace.TracerProvider
	reader  *metric.ManualReader
	meters  *metric.MeterProvider
}

func newTelemetry() *telemetry {
	tel := &telemetry{spans: tracetest.NewInMemoryExporter(), reader: metric.NewManualReader()}
	tel.tracers = trace.NewTracerProvider(trace.WithSyncer(tel.spans))
	tel.meters = metric.NewMeterProvider(metric.WithReader(tel.reader))
	return tel
}

// options send telemetry to tel; more is for otelhttp.
func (tel *telemetry) options(more ...otelhttp.Option) []otelretry.Option {
	return []otelretry.Option{
		otelretry.WithMeterProvider(tel.meters),
		otelretry.WithHTTP(otelhttp.WithTracerProvider(tel.tracers), otelhttp.WithPropagators(propagation.TraceContext{})),
		otelretry.WithHTTP(more...),
	}
}

// inSpan calls f within a span that is called "caller", and ends it.
func (tel *telemetry) inSpan(t *testing.T, f func(ctx context.Context)) tracetest.SpanStub {
	t.Helper()
	ctx, span := tel.tracers.Tracer("test").Start(t.Context(), "caller")
	f(ctx)
	span.End()
	return tel.named("caller")[0]
}

// named returns the spans of that name, in the order in which they ended.
func (tel *telemetry) named(name string) []tracetest.SpanStub {
	var found []tracetest.SpanStub
	for _, s := range tel.spans.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// resends returns the http.request.resend_count of each span, -1 where there is none.
func resends(spans []tracetest.SpanStub) []int64 {
	var counts []int64
	for _, s := range spans {
		count := int64(-1)
		for _, attr := range s.Attributes {
			if attr.Key == "http.request.resend_count" {
				count = attr.Value.AsInt64()
			}
		}
		counts = append(counts, count)
	}
	return counts
}

func (tel *telemetry) metric(t *testing.T, name string) metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, tel.reader.Collect(t.Context(), &all))
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name == name {
				require.Equal(t, otelretry.ScopeName, scope.Scope.Name)
				require.Equal(t, semconv.SchemaURL, scope.Scope.SchemaURL)
				return m
			}
		}
	}
	return metricdata.Metrics{}
}

// answering starts a server that answers with statuses, one each, and then with the last of them.
// traceparents returns the traceparent of each request.
func answering(t *testing.T, statuses ...int) (url string, traceparents func() []string) {
	t.Helper()
	var n atomic.Int32
	seen := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Get("Traceparent")
		w.WriteHeader(statuses[min(int(n.Add(1)), len(statuses))-1])
		_, _ = w.Write([]byte("answer"))
	}))
	t.Cleanup(server.Close)
	return server.URL, func() []string {
		var got []string
		for len(seen) > 0 {
			got = append(got, <-seen)
		}
		return got
	}
}

// send sends a request and closes the response.
func send(t *testing.T, ctx context.Context, rt http.RoundTripper, method, url string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: rt}).Do(req)
	if err == nil {
		require.NoError(t, resp.Body.Close())
	}
	return resp, err
}

// atOnce retries without waiting.
var atOnce = retryhttp.Policy{Backoff: retryhttp.Constant(0)}
