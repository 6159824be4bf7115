// Package pooled provides the default base.
package pooled

import (
	"net/http"
	"time"

	"github.com/hashicorp/go-cleanhttp"
)

// Kubernetes uses these values. Pings are rare enough for servers that object to pings.
const (
	PingAfter   = 30 * time.Second
	PingTimeout = 15 * time.Second
)

// Transport returns a new transport that pings. net/http sends every attempt on the same
// HTTP/2 connection while it considers the connection alive, and by default it does not check.
func Transport() *http.Transport {
	base := cleanhttp.DefaultPooledTransport()
	base.HTTP2 = &http.HTTP2Config{SendPingTimeout: PingAfter, PingTimeout: PingTimeout}
	return base
}
