package otelretry

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

func TestWhoBringsNoBaseGetsTwoPoolsThatPing(t *testing.T) {
	base := New(nil, retryhttp.Policy{}).base
	require.IsType(t, &pools{}, base)
	want := &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}
	for _, pool := range []*http.Transport{base.(*pools).first, base.(*pools).second} {
		require.NotSame(t, http.DefaultTransport, pool)
		assert.Equal(t, want, pool.HTTP2)
		assert.Equal(t, 100, pool.MaxIdleConnsPerHost)
	}
}

// dial returns a connection to a server that gives an answer to each request. If the answer is
// empty, the server is silent.
func dial(answer string) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			requests := bufio.NewReader(server)
			for {
				if _, err := http.ReadRequest(requests); err != nil {
					return
				}
				_, _ = io.WriteString(server, answer)
			}
		}()
		return client, nil
	}
}

func TestTheAttemptAfterATimeoutUsesTheOtherPool(t *testing.T) {
	const (
		silent = ""
		busy   = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
		ok     = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
		half   = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha"
	)
	for name, tt := range map[string]struct {
		first, second string
		status        int // 0: an error
	}{
		"the first pool hangs":       {silent, ok, 200},
		"a body hangs":               {half, ok, 200},
		"both hang":                  {silent, silent, 0},
		"another failure stays":      {busy, ok, 503},
		"a failure after the switch": {silent, busy, 503},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := New(nil, retryhttp.Policy{AttemptTimeout: time.Second, Backoff: retryhttp.Constant(0), BufferBytes: 10})
				rt.base.(*pools).first.DialContext = dial(tt.first)
				rt.base.(*pools).second.DialContext = dial(tt.second)
				defer rt.CloseIdleConnections()
				req, err := http.NewRequest(http.MethodGet, "http://host.example/", nil)
				require.NoError(t, err)
				resp, err := rt.RoundTrip(req)
				if tt.status == 0 {
					require.Error(t, err)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, tt.status, resp.StatusCode)
				require.NoError(t, resp.Body.Close())
			})
		})
	}
}
