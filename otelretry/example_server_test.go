package otelretry_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

// A sender of webhooks sends to thousands of hosts, which its customers choose. WithServer gives them
// one name. The View does the same for the metric of otelhttp, which counts attempts. It also drops
// statuses that are not registered, of which the hosts could send hundreds.
func ExampleWithServer() {
	few := func(kv attribute.KeyValue) bool {
		switch kv.Key {
		case "server.address", "server.port":
			return false
		case "http.response.status_code":
			return http.StatusText(int(kv.Value.AsInt64())) != ""
		}
		return true
	}
	reader := metric.NewManualReader()
	meters := metric.NewMeterProvider(metric.WithReader(reader), metric.WithView(
		metric.NewView(metric.Instrument{Name: "http.client.*"}, metric.Stream{AttributeFilter: few})))

	client := &http.Client{Transport: otelretry.New(nil, retryhttp.Policy{},
		otelretry.WithMeterProvider(meters),
		otelretry.WithServer(func(*http.Request) string { return "customers" }))}
	for _, status := range []int{200, 471, 472} {
		customer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		resp, err := client.Get(customer.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		customer.Close()
	}

	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		fmt.Println(err)
		return
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				if m.Name == "retryhttp.client.call.stops" {
					fmt.Println("requests:")
					for _, p := range data.DataPoints {
						address, _ := p.Attributes.Value("server.address")
						status, _ := p.Attributes.Value("http.response.status_code")
						fmt.Println(" ", address.AsString(), status.AsInt64(), p.Value)
					}
				}
			case metricdata.Histogram[float64]:
				if m.Name == "http.client.request.duration" {
					fmt.Println("series of attempts:", len(data.DataPoints))
				}
			}
		}
	}
	// Unordered output:
	// requests:
	//   customers 200 1
	//   customers 400 2
	// series of attempts: 2
}
