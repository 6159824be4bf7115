package otelretry

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

func TestWhoBringsNoBaseGetsAPooledOneThatPings(t *testing.T) {
	base := New(nil, retryhttp.Policy{}).base
	require.IsType(t, &http.Transport{}, base)
	require.NotSame(t, http.DefaultTransport, base)
	assert.Equal(t, &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}, base.(*http.Transport).HTTP2)
}
