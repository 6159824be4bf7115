package otelretry_test

import (
	"net/http"
	"testing"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

// success is a base that answers at once.
var success = roundTripperFunc(func(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, nil
})

// The cost of a success, beside the cost of a success through otelhttp alone. Without a name, the
// providers are the global ones, which do nothing here.
func BenchmarkSuccess(b *testing.B) {
	measured, traced := newTelemetry(), newTelemetry()
	traced.tracers = trace.NewTracerProvider() // which exports nothing
	for _, bm := range []struct {
		name string
		rt   http.RoundTripper
	}{
		{"retryhttp", retryhttp.New(success, retryhttp.Policy{})},
		{"otelhttp", otelhttp.NewTransport(success)},
		{"otelretry", otelretry.New(success, retryhttp.Policy{})},
		{"otelhttp/measured", otelhttp.NewTransport(success, otelhttp.WithMeterProvider(measured.meters))},
		{"otelretry/measured", otelretry.New(success, retryhttp.Policy{}, otelretry.WithMeterProvider(measured.meters))},
		{"otelhttp/traced", otelhttp.NewTransport(success, otelhttp.WithTracerProvider(traced.tracers), otelhttp.WithMeterProvider(traced.meters))},
		{"otelretry/traced", otelretry.New(success, retryhttp.Policy{}, traced.options()...)},
	} {
		b.Run(bm.name, func(b *testing.B) {
			req := get(b)
			b.ReportAllocs()
			for b.Loop() {
				sendOn(b, bm.rt, req)
			}
		})
	}
}

func get(tb testing.TB) *http.Request {
	req, err := http.NewRequest(http.MethodGet, "http://host.example/", nil)
	if err != nil {
		tb.Fatal(err)
	}
	return req
}

func sendOn(tb testing.TB, rt http.RoundTripper, req *http.Request) {
	resp, err := rt.RoundTrip(req)
	if err != nil {
		tb.Fatal(err)
	}
	resp.Body.Close()
}
