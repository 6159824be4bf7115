package main

import (
	"fmt"
	"net/http"
	"os"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

type healthy struct{}

func (healthy) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
}

// An alert finds the series by this label, whose name is the exporter's.
func TestSeriesOfTheOverflowHaveTheLabelOfTheAlert(t *testing.T) {
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	require.NoError(t, err)
	meters := metric.NewMeterProvider(metric.WithReader(exporter), metric.WithCardinalityLimit(3))
	client := &http.Client{Transport: otelretry.New(healthy{}, retryhttp.Policy{}, otelretry.WithMeterProvider(meters))}
	for i := range 5 {
		resp, err := client.Get(fmt.Sprintf("http://host%d.example/", i))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	families, err := registry.Gather()
	require.NoError(t, err)
	overflowed := make(map[string]bool)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "otel_metric_overflow" && label.GetValue() == "true" {
					overflowed[family.GetName()] = true
				}
			}
		}
	}
	assert.True(t, overflowed["retryhttp_client_call_stops_total"])
	assert.True(t, overflowed["http_client_request_duration_seconds"])
	alerts, err := os.ReadFile("prometheus/alerts.yml")
	require.NoError(t, err)
	assert.Contains(t, string(alerts), `otel_metric_overflow="true"`)
}
