package retrytest

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/retryhttp/retryhttp/internal/test/memnet"
)

// Serve returns a Transport whose requests a handler answers, whatever their host. A net/http server serves
// them in memory, without a socket: in a testing/synctest bubble, time passes for both sides. Bytes that the handler
// flushes arrive at once, so a stream comes event by event. Both end with the test, which has to close
// its responses, as with any Transport.
//
// Several handlers are replicas behind a balancer of connections: each new connection goes to the next of
// them, in turn. A Handler that fails as told may be one.
//
// URLs begin with http. The Transport speaks HTTP/1. To have it speak HTTP/2, which sends all requests of a
// host on one connection, set its Protocols before the first request:
//
//	base := retrytest.Serve(t, well, broken)
//	base.Protocols = new(http.Protocols)
//	base.Protocols.SetUnencryptedHTTP2(true)
func Serve(tb testing.TB, handlers ...http.Handler) *http.Transport {
	tb.Helper()
	if len(handlers) == 0 {
		tb.Fatal("retrytest: Serve needs a handler")
	}
	base := new(http.Transport)
	replicas := make([]*memnet.Network, len(handlers))
	for i, handler := range handlers {
		replicas[i] = memnet.New()
		server := &http.Server{Handler: handler, Protocols: new(http.Protocols)}
		server.Protocols.SetHTTP1(true)
		server.Protocols.SetUnencryptedHTTP2(true)
		tb.Cleanup(replicas[i].Run(server, base))
	}
	var dials atomic.Uint64
	base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		next := (dials.Add(1) - 1) % uint64(len(replicas))
		return replicas[next].Dial(ctx, network, address)
	}
	return base
}
