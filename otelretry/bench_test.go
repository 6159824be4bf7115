package otelretry_test

import (
	"net/http"
	"testing"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

// The cost of a success, beside the cost of a success through otelhttp alone.
func BenchmarkSuccess(b *testing.B) {
	base := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, nil
	})
	for _, bm := range []struct {
		name string
		rt   http.RoundTripper
	}{
		{"retryhttp", retryhttp.New(base, retryhttp.Policy{})},
		{"otelhttp", otelhttp.NewTransport(base)},
		{"otelretry", otelretry.New(base, retryhttp.Policy{})},
	} {
		b.Run(bm.name, func(b *testing.B) {
			req, err := http.NewRequest(http.MethodGet, "http://host.example/", nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				resp, err := bm.rt.RoundTrip(req)
				if err != nil {
					b.Fatal(err)
				}
				resp.Body.Close()
			}
		})
	}
}
