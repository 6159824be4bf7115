package otelretry

import (
	"net/http"
	"time"

	"github.com/hashicorp/go-cleanhttp"
)

// pools is a nil base. It is a copy of retryhttp's own nil base, which another module cannot ask
// for: the attempt that follows an attempt timeout uses the other pool. Over HTTP/2, all requests
// of a pool share one connection to a host, and this connection may lead to a replica that hangs.
type pools struct{ first, second *http.Transport }

func newPools() *pools { return &pools{newPool(), newPool()} }

// newPool returns a pool that pings over HTTP/2, and that keeps connections for busy hosts.
func newPool() *http.Transport {
	pool := cleanhttp.DefaultPooledTransport()
	pool.MaxIdleConnsPerHost, pool.MaxIdleConns = 100, 500
	pool.HTTP2 = &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}
	return pool
}

func (p *pools) RoundTrip(req *http.Request) (*http.Response, error) {
	if attemptOf(req.Context()).op.otherPool.Load() {
		return p.second.RoundTrip(req)
	}
	return p.first.RoundTrip(req)
}

func (p *pools) CloseIdleConnections() {
	p.first.CloseIdleConnections()
	p.second.CloseIdleConnections()
}

// choosePool chooses the pool of a, which follows op's previous attempt. A hedge uses the pool
// of the attempt beside it.
func (op *operation) choosePool(a *attempt) {
	if a.hedge {
		return
	}
	if op.late.Swap(false) && !op.returned {
		op.otherPool.Store(!op.otherPool.Load())
	}
}

// noteTimeLimit records for the next attempt that a time limit has ended a. The operation cannot
// look later, because it must not keep a's context, which keeps the response.
func (a *attempt) noteTimeLimit() {
	if !a.hedge && a.timeLimit() != nil {
		a.op.late.Store(true)
	}
}
