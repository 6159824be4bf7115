package otelretry_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

// In a program whose providers are the global ones, as is usual, the options are not
// needed.
func ExampleNew() {
	statuses := []int{503, 200}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(statuses[0])
		statuses = statuses[1:]
	}))
	defer server.Close()

	exporter := tracetest.NewInMemoryExporter()
	tracers := trace.NewTracerProvider(trace.WithSyncer(exporter))

	client := &http.Client{Transport: otelretry.New(nil, retryhttp.Policy{},
		otelretry.WithHTTP(otelhttp.WithTracerProvider(tracers)))}
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()

	for _, span := range exporter.GetSpans() {
		fmt.Println(span.Name)
		for _, attr := range span.Attributes {
			switch attr.Key {
			case "http.response.status_code", "http.request.resend_count":
				fmt.Printf("  %s: %d\n", attr.Key, attr.Value.AsInt64())
			}
		}
	}
	// Output:
	// HTTP GET
	//   http.response.status_code: 503
	// HTTP GET
	//   http.request.resend_count: 1
	//   http.response.status_code: 200
}
