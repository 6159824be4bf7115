package retryhttp_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// net/http resends a request with an Idempotency-Key by itself, if it has a
// GetBody and a reused connection breaks. The caller's request has none: it must
// not be given one where the policy says that the request is not idempotent.
func TestNotIdempotentByPolicyIsNotResentByNetHTTP(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	var posts atomic.Int32
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { // answers, but hangs up on the first POST when it has read it
				defer conn.Close()
				in := bufio.NewReader(conn)
				for {
					req, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					io.Copy(io.Discard, req.Body)
					if req.Method == http.MethodPost && posts.Add(1) == 1 {
						return
					}
					io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			}()
		}
	}()

	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	rt := retryhttp.New(base, retryhttp.Policy{Idempotent: func(req *http.Request) bool {
		return retryhttp.Idempotent(&http.Request{Method: req.Method})
	}})
	url := "http://" + listener.Addr().String()
	get, err := http.NewRequest(http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := rt.RoundTrip(get) // so that the POST finds a connection to reuse
	require.NoError(t, err)
	resp.Body.Close()

	post, err := http.NewRequest(http.MethodPost, url, io.MultiReader(strings.NewReader("x"))) // a stream, as in a proxy
	require.NoError(t, err)
	post.ContentLength = 1
	post.Header.Set("Idempotency-Key", "17")
	resp, err = rt.RoundTrip(post)
	if err == nil {
		resp.Body.Close()
	}
	assert.Error(t, err)
	assert.EqualValues(t, 1, posts.Load(), "times the server has seen the POST")
}
