package sockets_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/replay"
	"github.com/retryhttp/retryhttp/internal/test/loopback"
)

const emptyOK = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

// net/http itself resends a request that has an Idempotency-Key and a GetBody if a
// reused connection breaks. The caller's request has no GetBody. If the policy
// says that it is not idempotent, no attempt may have one.
func TestResendByNetHTTPOfWhatPolicyCallsNotIdempotent(t *testing.T) {
	var posts atomic.Int32
	listener := loopback.Listen(t, func(c net.Conn) { // hangs up on the first POST when it has read it
		in := bufio.NewReader(c)
		for req := loopback.ReadRequest(in); req != nil; req = loopback.ReadRequest(in) {
			if req.Method == http.MethodPost && posts.Add(1) == 1 {
				return
			}
			loopback.Say(emptyOK)(c)
		}
	})

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

// The server reads the request, and then is gone.
func TestResendByNetHTTPOfAnEmptyKeyIsNotUnprocessed(t *testing.T) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprint("stream=", stream), func(t *testing.T) {
			var posts, dials atomic.Int32
			addr := dyingServer(t, func() { posts.Add(1) })
			base := &http.Transport{DialContext: func(ctx context.Context, n, a string) (net.Conn, error) {
				if dials.Add(1) > 1 {
					return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
				}
				return net.Dial(n, a)
			}}
			defer base.CloseIdleConnections()
			var classes []retryhttp.Class
			classify := func(a retryhttp.Attempt) retryhttp.Class {
				c := retryhttp.Classify(a)
				t.Log(a.Err, c)
				classes = append(classes, c)
				return c
			}
			p := retryhttp.Policy{RetryUnprocessed: true, Backoff: retryhttp.Constant(0), Classify: classify}
			rt := retryhttp.New(base, p)
			req, _ := http.NewRequest("GET", "http://"+addr, nil)
			resp, err := rt.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			var body io.Reader = strings.NewReader("x")
			if stream {
				body = io.NopCloser(body)
			}
			req, _ = http.NewRequest("POST", "http://"+addr, body)
			req.Header["Idempotency-Key"] = []string{""}
			assert.False(t, retryhttp.Idempotent(req))
			classes = nil
			_, err = rt.RoundTrip(req)
			assert.Error(t, err)
			assert.EqualValues(t, 1, posts.Load(), "the server has processed it")
			assert.NotContains(t, classes, retryhttp.Unprocessed)
			if stream {
				assert.EqualValues(t, 1, dials.Load(), "sent again by net/http")
			}
		})
	}
}

// dyingServer answers one request, reads the second, acts on it and dies. It stops
// listening before it breaks the connection.
func dyingServer(t *testing.T, act func()) (addr string) {
	t.Helper()
	self := make(chan net.Listener, 1)
	l := loopback.Listen(t, func(c net.Conn) {
		in := bufio.NewReader(c)
		if loopback.ReadRequest(in) == nil {
			return
		}
		loopback.Say(emptyOK)(c)
		if loopback.ReadRequest(in) == nil {
			return
		}
		act()
		_ = (<-self).Close()
	})
	self <- l
	return l.Addr().String()
}

// The server has read a POST with a key, acted on it, and died. net/http resends
// it, and the caller gets the error of that refused dial.
func TestResendByNetHTTPThenDialRefusedIsNotUnprocessed(t *testing.T) {
	var payments atomic.Int32
	addr := dyingServer(t, func() { payments.Add(1) })
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	var classes []retryhttp.Class
	rt := retryhttp.New(base, retryhttp.Policy{
		RetryUnprocessed: true, MaxAttempts: 2, Backoff: retryhttp.Constant(0),
		// as the package documentation advises for a reverse proxy
		Idempotent: func(r *http.Request) bool { return r.Method == "GET" },
		Classify: func(a retryhttp.Attempt) retryhttp.Class {
			classes = append(classes, retryhttp.Classify(a))
			return classes[len(classes)-1]
		},
	})
	send := func() error {
		req, _ := http.NewRequest("POST", "http://"+addr+"/pay", bytes.NewReader([]byte("pay")))
		req.Header.Set("Idempotency-Key", "k")
		resp, err := rt.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	require.NoError(t, send())
	err := send()
	e := errorOf(t, err)
	require.EqualValues(t, 1, payments.Load(), "the payment did take effect")
	assert.NotEqual(t, retryhttp.Unprocessed, classes[1], "%v", err)
	assert.Equal(t, 1, e.Attempts, "not repeated")
}

// With the default policy, the outcome of the same request is ambiguous.
func TestResendByNetHTTPThenDialRefusedIsAmbiguous(t *testing.T) {
	addr := dyingServer(t, func() {})
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	rt := retryhttp.New(base, retryhttp.Policy{Backoff: retryhttp.Constant(0), OnRetry: func(retryhttp.Attempt) {
		l2, err := net.Listen("tcp", addr) // the server is up again
		if !assert.NoError(t, err) {
			return
		}
		t.Cleanup(func() { _ = l2.Close() })
		go http.Serve(l2, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(409) }))
	}})
	send := func() (*http.Response, error) {
		req, _ := http.NewRequest("POST", "http://"+addr+"/pay", bytes.NewReader([]byte("pay")))
		req.Header.Set("Idempotency-Key", "k")
		resp, err := rt.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		return resp, err
	}
	_, err := send()
	require.NoError(t, err)
	resp, err := send()
	require.NoError(t, err)
	assert.Equal(t, 409, resp.StatusCode)
	assert.True(t, retryhttp.OutcomeOf(resp).Ambiguous, "%+v", retryhttp.OutcomeOf(resp))
}

// Neither net/http nor the Transport resends a stream that was sent in part. The
// error names the broken connection, not the missing body.
func TestResendByNetHTTPOfAStreamIsRefusedWithItsCause(t *testing.T) {
	listener := loopback.Listen(t, func(c net.Conn) {
		in := bufio.NewReader(c)
		if loopback.ReadRequest(in) == nil {
			return
		}
		loopback.Say(emptyOK)(c)
		_, _ = in.Peek(1000) // of the next request
		_ = c.(*net.TCPConn).SetLinger(0)
	})
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	rt := retryhttp.New(base, retryhttp.Policy{RecordBytes: 100})
	for range 2 {
		req, err := http.NewRequest("POST", "http://"+listener.Addr().String(),
			io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20))))
		require.NoError(t, err)
		req.Header.Set("Idempotency-Key", "17")
		resp, err := rt.RoundTrip(req)
		if err == nil {
			require.NoError(t, resp.Body.Close())
			continue
		}
		assert.Equal(t, retryhttp.StopBody, errorOf(t, err).Stop)
		assert.NotErrorIs(t, err, replay.ErrSpent)
		return
	}
	t.Fatal("the second request went through")
}
