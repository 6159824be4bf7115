// Package program is a module of somebody who uses otelretry.
package program

import (
	"net/http"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

// Client returns a client that retries at once, and that reports to OpenTelemetry.
func Client(opts ...otelretry.Option) *http.Client {
	return &http.Client{Transport: otelretry.New(nil, retryhttp.Policy{Backoff: retryhttp.Constant(0)}, opts...)}
}
