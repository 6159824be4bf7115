package otelretry

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Otherwise a request could leave a gauge above 0 that only requests with another method return to 0.
func TestRequestsToOneServerShareTheirGauges(t *testing.T) {
	sets := newLabelSets(nil)
	of := func(method, host, key string) *gauges {
		return sets.of(&http.Request{Method: method, URL: &url.URL{Scheme: "http", Host: host}}, key, true).gauges
	}
	get := of("GET", "shop", "eu")
	assert.Same(t, get, of("POST", "shop", "eu"))
	assert.Same(t, get, of("GET", "shop:80", "eu"))
	assert.NotSame(t, get, of("GET", "shop", "us"))
	assert.NotSame(t, get, of("GET", "bank", "eu"))
}

func TestLabelsAreKeptForABoundedNumberOfServers(t *testing.T) {
	sets := newLabelSets(nil)
	for i := range 2 * maxLabels {
		l := sets.of(&http.Request{URL: &url.URL{Scheme: "http", Host: fmt.Sprint("host", i)}}, "", false)
		assert.NotEmpty(t, l.gauge)
	}
	assert.Len(t, sets.sets, maxLabels)
	assert.Len(t, sets.gauges, maxLabels)
}

// The same server may be asked for with a key and without one.
func TestLabelsWithAnEmptyKeyAreLabelsWithAKey(t *testing.T) {
	sets := newLabelSets(nil)
	req := &http.Request{URL: &url.URL{Scheme: "http", Host: "shop"}}
	without, with := sets.of(req, "", false), sets.of(req, "", true)
	assert.NotSame(t, without, with)
	assert.Same(t, with, sets.of(req, "", true))
	assert.Same(t, with.gauges, sets.of(&http.Request{Method: "PUT", URL: req.URL}, "", true).gauges)
}

func TestStatusesAreRegistered(t *testing.T) {
	for status, want := range map[int]int{
		200: 200, 404: 404, 425: 425, 429: 429, 451: 451, 503: 503, 511: 511, // registered
		199: 100, 299: 200, 306: 300, 430: 400, 499: 400, 520: 500, 599: 500,
		0: 500, 99: 500, 600: 500, 999: 500,
	} {
		assert.Equal(t, want, knownStatus(status), status)
	}
}

// Otherwise one key, of anybody who sends requests, would end the export of all metrics.
func TestLabelsAreValidUTF8(t *testing.T) {
	sets := newLabelSets(nil)
	l := sets.of(&http.Request{URL: &url.URL{Scheme: "http", Host: "sh\xffop"}}, "e\xffu", true)
	gauge := metric.NewRecordConfig(l.gauge).Attributes()
	assert.Equal(t, attribute.NewSet(
		attribute.String("server.address", "sh\uFFFDop"), attribute.Int("server.port", 80),
		attribute.String("retryhttp.key", "e\uFFFDu"),
	), gauge)
}
