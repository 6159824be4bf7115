package pooled_test

import (
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/pooled"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
)

// mute is a listener whose first connection reads everything and answers nothing.
type mute struct {
	net.Listener
	spoken bool
}

func (m *mute) Accept() (net.Conn, error) {
	c, err := m.Listener.Accept()
	if err != nil || m.spoken {
		return c, err
	}
	m.spoken = true
	go func() {
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}()
	return m.Listener.Accept()
}

// net/http sends all attempts on one HTTP/2 connection, so a dead one must be
// detected.
func TestTransportLeavesADeadHTTP2Connection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		srv := &http.Server{Protocols: new(http.Protocols), Handler: handler}
		srv.Protocols.SetUnencryptedHTTP2(true)
		go func() { _ = srv.Serve(&mute{Listener: n}) }()
		base := pooled.Transport()
		base.DialContext, base.Protocols = n.Dial, srv.Protocols
		rt := retryhttp.New(base, retryhttp.Policy{
			AttemptTimeout: time.Second, Backoff: retryhttp.Constant(time.Second),
			MaxAttempts: -1, MaxElapsed: time.Hour, Budget: retryhttp.Unlimited{},
		})
		req, err := http.NewRequest("GET", "http://server/", nil)
		require.NoError(t, err)
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.LessOrEqual(t, retryhttp.OutcomeOf(resp).Elapsed, pooled.PingAfter+pooled.PingTimeout+2*time.Second)
		assert.Equal(t, 2, n.Dials())
		rt.CloseIdleConnections()
		require.NoError(t, srv.Close())
		time.Sleep(time.Minute) // what net/http keeps for a closed stream
	})
}
