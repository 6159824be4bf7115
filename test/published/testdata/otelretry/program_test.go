package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/retryhttp/retryhttp/otelretry"
)

func TestEachAttemptHasASpan(t *testing.T) {
	attempts := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if attempts++; attempts < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	spans := tracetest.NewInMemoryExporter()
	tracers := trace.NewTracerProvider(trace.WithSyncer(spans))
	resp, err := Client(otelretry.WithHTTP(otelhttp.WithTracerProvider(tracers))).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	if n := len(spans.GetSpans()); n != 3 {
		t.Errorf("%d spans", n)
	}
}

func TestTheScopeHasTheVersionOfTheModule(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	reader := metric.NewManualReader()
	meters := metric.NewMeterProvider(metric.WithReader(reader))
	resp, err := Client(otelretry.WithMeterProvider(meters)).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	required, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	var versions []string
	for _, m := range all.ScopeMetrics {
		if m.Scope.Name == otelretry.ScopeName {
			versions = append(versions, m.Scope.Version)
		}
	}
	if len(versions) != 1 || !strings.Contains(string(required), otelretry.ScopeName+" v"+versions[0]+"\n") {
		t.Errorf("the versions %q, but go.mod is\n%s", versions, required)
	}
}

// otelhttp hides that a body is net/http's own. The root learns it from otelretry through a
// method that it finds by its name, and then it can free a connection whose response stalls.
func TestARetryFreesTheConnectionOfAResponseThatStalls(t *testing.T) {
	freed := make(chan struct{})
	attempts := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if attempts++; attempts > 1 {
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(freed)
	}))
	defer server.Close()
	resp, err := Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	select {
	case <-freed:
	case <-time.After(20 * time.Second):
		t.Error("the connection is still held")
		server.CloseClientConnections()
	}
}
