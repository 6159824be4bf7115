//go:build !race

package otelretry_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

// The attributes of metrics are kept, so a success allocates its operation, its attempt and its
// body. They take the place of what otelhttp and retryhttp allocate otherwise.
func TestCostOfASuccessIsOneObjectMoreThanOtelhttps(t *testing.T) {
	tel := newTelemetry()
	alone := otelhttp.NewTransport(success, otelhttp.WithMeterProvider(tel.meters))
	rt := otelretry.New(success, retryhttp.Policy{}, otelretry.WithMeterProvider(tel.meters))
	req := get(t)
	otelhttps := testing.AllocsPerRun(200, func() { sendOn(t, alone, req) })
	own := testing.AllocsPerRun(200, func() { sendOn(t, rt, req) })
	assert.LessOrEqual(t, own, otelhttps+1)
}
