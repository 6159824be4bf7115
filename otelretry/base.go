package otelretry

import (
	"net/http"
	"time"

	"github.com/hashicorp/go-cleanhttp"
)

// pooled returns a nil base: a pool of connections that pings over HTTP/2. It is retryhttp's
// own nil base, which another module cannot ask for. A test compares the two.
func pooled() *http.Transport {
	base := cleanhttp.DefaultPooledTransport()
	base.HTTP2 = &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}
	return base
}
