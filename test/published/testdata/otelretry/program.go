// Program is a module of somebody who uses otelretry. Only a program knows the versions of its
// modules: the go command does not record them in the tests of other packages.
package main

import (
	"net/http"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

func main() { Client().CloseIdleConnections() }

// Client returns a client that retries at once, and that reports to OpenTelemetry.
func Client(opts ...otelretry.Option) *http.Client {
	return &http.Client{Transport: otelretry.New(nil, retryhttp.Policy{Backoff: retryhttp.Constant(0)}, opts...)}
}
