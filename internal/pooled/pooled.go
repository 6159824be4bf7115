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

// IdleConnsPerHost is the number of idle connections that a pool keeps for a host. With fewer, a
// client that sends more requests at once opens connections over and over. MaxIdleConns is enough
// for a few such hosts, and bounds what a client of many hosts keeps.
const (
	IdleConnsPerHost = 100
	MaxIdleConns     = 500
)

// Pools is two pools of connections. The attempt that follows an attempt timeout uses the other
// pool. Over HTTP/2, all requests of a pool share one connection to a host. Behind a TCP balancer,
// this connection may end at a replica that hangs and still answers pings.
type Pools struct{ First, Second *http.Transport }

// New returns Pools without connections.
func New() *Pools { return &Pools{Transport(), Transport()} }

// RoundTrip uses the first pool.
func (p *Pools) RoundTrip(req *http.Request) (*http.Response, error) { return p.First.RoundTrip(req) }

// CloseIdleConnections closes the idle connections of both pools.
func (p *Pools) CloseIdleConnections() {
	p.First.CloseIdleConnections()
	p.Second.CloseIdleConnections()
}

// Transport returns a new transport that pings. net/http sends every attempt on the same
// HTTP/2 connection while it considers the connection alive, and by default it does not check.
func Transport() *http.Transport {
	base := cleanhttp.DefaultPooledTransport()
	base.MaxIdleConnsPerHost, base.MaxIdleConns = IdleConnsPerHost, MaxIdleConns
	base.HTTP2 = &http.HTTP2Config{SendPingTimeout: PingAfter, PingTimeout: PingTimeout}
	return base
}
