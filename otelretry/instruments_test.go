package otelretry_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

// brokenMeters make no instruments.
type brokenMeters struct{ noop.MeterProvider }

type brokenMeter struct{ noop.Meter }

var errNoInstrument = errors.New("no instrument")

func (brokenMeters) Meter(string, ...metric.MeterOption) metric.Meter { return brokenMeter{} }

func (brokenMeter) Int64Histogram(string, ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	return nil, errNoInstrument
}

func (brokenMeter) Float64Histogram(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return nil, errNoInstrument
}

func (brokenMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return nil, errNoInstrument
}

func (brokenMeter) Int64UpDownCounter(string, ...metric.Int64UpDownCounterOption) (metric.Int64UpDownCounter, error) {
	return nil, errNoInstrument
}

func (brokenMeter) Int64Gauge(string, ...metric.Int64GaugeOption) (metric.Int64Gauge, error) {
	return nil, errNoInstrument
}

func (brokenMeter) Float64Gauge(string, ...metric.Float64GaugeOption) (metric.Float64Gauge, error) {
	return nil, errNoInstrument
}

func TestRequestsNeedNoInstruments(t *testing.T) {
	reported := 0
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) { reported++ }))
	defer otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
	otelhttp.NewTransport(playing(200), otelhttp.WithMeterProvider(brokenMeters{}))
	byOtelhttp := reported
	reported = 0
	policy := atOnce
	policy.Hedge = new(retryhttp.Hedge)
	rt := otelretry.New(playing(503, 200), policy, otelretry.WithMeterProvider(brokenMeters{}))
	_, err := send(t, t.Context(), rt, "GET", shop)
	require.NoError(t, err)
	assert.Greater(t, reported, byOtelhttp)
}
