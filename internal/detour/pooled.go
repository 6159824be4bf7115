package detour

import (
	"net/http"
	"time"

	"github.com/hashicorp/go-cleanhttp"
)

// Pooled returns a new http.Transport that pings. net/http sends every request on the same HTTP/2
// connection while it considers the connection alive, and by default it does not check. Kubernetes
// pings as often. Pings are rare enough for servers that object to pings.
//
// With fewer than 100 idle connections, a client that sends more requests at once opens connections
// over and over. 500 are enough for a few such hosts, and bound what a client of many hosts keeps.
func Pooled() *http.Transport {
	t := cleanhttp.DefaultPooledTransport()
	t.MaxIdleConnsPerHost, t.MaxIdleConns = 100, 500
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}
	return t
}
