package replicas_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/replicas"
)

// A net.Dialer that races two addresses may report the one that came too late, at any time. The race
// detector watches.
func TestDialThatLosesItsRaceIsReportedAtAnyTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := replicas.New(replicas.HTTP1, 1)
		t.Cleanup(w.Close)
		w.Replicas[0].Serve(firstFails(well))
		transport := w.Transport()
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			if trace := httptrace.ContextClientTrace(ctx); trace != nil && trace.ConnectDone != nil {
				go trace.ConnectDone(network, "[::1]:80", nil)
				go trace.ConnectDone(network, "127.0.0.1:80", nil)
			}
			return w.Dial(ctx, network, address)
		}
		c := newDetoured(t, transport, w.URL(), retryhttp.Policy{})
		_, got := c.send(c.request(http.MethodGet, nil))
		assert.Equal(t, "hello", got)
	})
}
