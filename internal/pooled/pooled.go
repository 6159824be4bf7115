// Package pooled has the base for who brings none.
package pooled

import (
	"net/http"
	"time"

	"github.com/hashicorp/go-cleanhttp"
)

// As Kubernetes has them: seldom enough for servers that take pings ill.
const (
	PingAfter   = 30 * time.Second
	PingTimeout = 15 * time.Second
)

// Transport returns a new one. net/http sends every attempt on the same HTTP/2
// connection for as long as it takes it for alive; by itself it never asks.
func Transport() *http.Transport {
	base := cleanhttp.DefaultPooledTransport()
	base.HTTP2 = &http.HTTP2Config{SendPingTimeout: PingAfter, PingTimeout: PingTimeout}
	return base
}
