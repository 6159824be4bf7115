// Package program is a module of somebody who uses the root alone.
package program

import (
	"net/http"

	"github.com/retryhttp/retryhttp"
)

// Client returns a client that retries through base.
func Client(base http.RoundTripper) *http.Client {
	return &http.Client{Transport: retryhttp.New(base, retryhttp.Policy{Backoff: retryhttp.Constant(0)})}
}
