package otelretry

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Otherwise a request could leave a gauge above 0 that only requests with another method return to 0.
func TestRequestsToOneServerShareTheirGauges(t *testing.T) {
	sets := newLabelSets()
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
	sets := newLabelSets()
	for i := range 2 * maxLabels {
		l := sets.of(&http.Request{URL: &url.URL{Scheme: "http", Host: fmt.Sprint("host", i)}}, "", false)
		assert.NotEmpty(t, l.gauge)
	}
	assert.Len(t, sets.sets, maxLabels)
	assert.Len(t, sets.gauges, maxLabels)
}
