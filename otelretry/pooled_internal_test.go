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
	want := &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}
	assert.Equal(t, want, base.(*http.Transport).HTTP2)
}
