package replicas_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/replicas"
)

var http1Only = []replicas.Protocol{replicas.HTTP1, replicas.HTTP1TLS}

// detoured is a client whose newest request must have taken a detour.
type detoured struct {
	*retryhttp.Transport
	t    *testing.T
	url  string
	last atomic.Pointer[retryhttp.Attempt]
	took atomic.Int64 // requests that took a detour
}

func newDetoured(t *testing.T, base http.RoundTripper, url string, p retryhttp.Policy) *detoured {
	c := &detoured{t: t, url: url}
	p.Backoff = retryhttp.Constant(0)
	p.OnDone = func(a retryhttp.Attempt, _ retryhttp.Outcome) {
		if c.last.Store(&a); a.Detour {
			c.took.Add(1)
		}
	}
	c.Transport = retryhttp.New(base, p)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func (c *detoured) request(method string, body io.Reader) *http.Request {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.url, body)
	require.NoError(c.t, err)
	return req
}

// send sends req, and returns the response and its body.
func (c *detoured) send(req *http.Request) (*http.Response, string) {
	c.t.Helper()
	resp, err := c.RoundTrip(req)
	require.NoError(c.t, err)
	require.True(c.t, c.last.Load().Detour, "the attempt took no detour")
	content, err := io.ReadAll(resp.Body)
	require.NoError(c.t, err)
	require.NoError(c.t, resp.Body.Close())
	require.Less(c.t, resp.StatusCode, 300)
	return resp, string(content)
}

// firstFails answers 503 to the first request, which takes the pool.
func firstFails(serve http.HandlerFunc) http.HandlerFunc {
	var n atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			broken(w, r)
			return
		}
		serve(w, r)
	}
}

// eachDetoured runs do over each protocol, with a service that serves by serve.
func eachDetoured(t *testing.T, of []replicas.Protocol, serve http.HandlerFunc, p retryhttp.Policy, do func(c *detoured)) {
	for _, protocol := range of {
		t.Run(protocol.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// A server waits for half a second before it closes a connection with an unread body.
				t.Cleanup(func() { time.Sleep(time.Second) })
				w := replicas.New(protocol, 1)
				t.Cleanup(w.Close)
				w.Replicas[0].Serve(firstFails(serve))
				transport := w.Transport()
				transport.ExpectContinueTimeout = time.Second
				do(newDetoured(t, transport, w.URL(), p))
			})
		})
	}
}

func echo(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }

func TestUploadTakesADetour(t *testing.T) {
	content := strings.Repeat("content ", 25<<10)
	eachDetoured(t, everyProtocol, func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		if err == nil && string(got) == content {
			_, _ = io.WriteString(w, "whole")
		}
	}, retryhttp.Policy{}, func(c *detoured) {
		_, got := c.send(c.request(http.MethodPut, strings.NewReader(content)))
		assert.Equal(t, "whole", got)
	})
}

func TestDownloadIsResumedOverADetour(t *testing.T) {
	content := strings.Repeat("content ", 25<<10)
	eachDetoured(t, everyProtocol, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"one"`)
		if r.Header.Get("Range") != "" {
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = io.WriteString(w, content[:len(content)/2])
		panic(http.ErrAbortHandler)
	}, retryhttp.Policy{Resume: true}, func(c *detoured) {
		_, got := c.send(c.request(http.MethodGet, nil))
		assert.True(t, content == got)
	})
}

// The first request of the pool sends its header, and then nothing.
func TestHedgeThatPeeksTakesADetour(t *testing.T) {
	for _, protocol := range everyProtocol {
		synctest.Test(t, func(t *testing.T) {
			w := replicas.New(protocol, 1)
			t.Cleanup(w.Close)
			var n atomic.Int64
			w.Replicas[0].Serve(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				if n.Add(1) == 1 {
					_ = http.NewResponseController(w).Flush()
					replicas.Hang(w, r)
				}
				_, _ = io.WriteString(w, "data: 1\n\ndata: 2\n\n")
			})
			c := newDetoured(t, w.Transport(), w.URL(), retryhttp.Policy{
				PeekBytes: 4096, Hedge: &retryhttp.Hedge{Share: 1, After: 50 * time.Millisecond},
			})
			_, got := c.send(c.request(http.MethodGet, nil))
			assert.Equal(t, "data: 1\n\ndata: 2\n\n", got, protocol)
			assert.True(t, c.last.Load().Hedge, protocol)
			assert.Contains(t, string(c.last.Load().Peek), "data: 1\n\n", protocol)
		})
	}
}

func TestUpgradeTakesADetour(t *testing.T) {
	var upgrades atomic.Int64
	eachDetoured(t, http1Only, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			return
		}
		if upgrades.Add(1)%2 == 1 {
			broken(w, r)
			return
		}
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(conn, buffered)
	}, retryhttp.Policy{AttemptTimeout: time.Second}, func(c *detoured) {
		c.send(c.request(http.MethodGet, nil))
		req := c.request(http.MethodGet, nil)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		resp, err := c.RoundTrip(req)
		require.NoError(c.t, err)
		require.Equal(c.t, http.StatusSwitchingProtocols, resp.StatusCode)
		assert.True(c.t, c.last.Load().Detour)
		time.Sleep(time.Hour) // a retired or idle detour would be closed by then
		stream := resp.Body.(io.ReadWriteCloser)
		for _, line := range []string{"one", "two"} {
			_, err = io.WriteString(stream, line)
			require.NoError(c.t, err)
			got := make([]byte, len(line))
			_, err = io.ReadFull(stream, got)
			require.NoError(c.t, err)
			assert.Equal(c.t, line, string(got))
		}
		require.NoError(c.t, stream.Close())
	})
}

// A detour to a host of HTTP/2 cannot be upgraded.
func TestUpgradeOfAHostThatPrefersHTTP2StaysOnThePool(t *testing.T) {
	var others, upgrades atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			if others.Add(1) == 1 {
				broken(w, r)
			}
			return
		}
		if upgrades.Add(1) == 1 {
			broken(w, r)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	for _, troubled := range []bool{false, true} {
		upgrades.Store(0)
		c := newDetoured(t, srv.Client().Transport.(*http.Transport).Clone(), srv.URL, retryhttp.Policy{MaxAttempts: 3})
		if troubled { // a detour is there, and it speaks HTTP/2
			resp, _ := c.send(c.request(http.MethodGet, nil))
			require.Equal(t, 2, resp.ProtoMajor)
		}
		req := c.request(http.MethodGet, nil)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "websocket")
		resp, err := c.RoundTrip(req)
		require.NoError(t, err)
		assert.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode, troubled)
		assert.False(t, c.last.Load().Detour, troubled)
		require.NoError(t, resp.Body.Close())
	}
}

// A response may come before the body of the request was read for the first time.
func TestBodyIsSentAfterAnEarlyResponse(t *testing.T) {
	eachDetoured(t, everyProtocol[1:2], func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		echo(w, r)
	}, retryhttp.Policy{}, func(c *detoured) {
		req := c.request(http.MethodPut, strings.NewReader("content"))
		req.Header.Set("Expect", "100-continue")
		_, got := c.send(req)
		assert.Equal(c.t, "content", got)
	})
}

func TestExpectContinueTakesADetour(t *testing.T) {
	eachDetoured(t, everyProtocol, echo, retryhttp.Policy{}, func(c *detoured) {
		var continued atomic.Int64
		req := c.request(http.MethodPut, strings.NewReader("content"))
		req.Header.Set("Expect", "100-continue")
		begin := time.Now()
		_, got := c.send(req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
			Got100Continue: func() { continued.Add(1) },
		})))
		assert.Equal(c.t, "content", got)
		assert.EqualValues(c.t, 1, continued.Load())
		assert.Less(c.t, time.Since(begin), time.Second)
	})
}

func TestTrailersTakeADetour(t *testing.T) {
	eachDetoured(t, everyProtocol, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Sum")
		echo(w, r)
		w.Header().Set("Sum", r.Trailer.Get("Sum")+" again")
	}, retryhttp.Policy{}, func(c *detoured) {
		req := c.request(http.MethodPut, strings.NewReader("content"))
		req.ContentLength, req.Trailer = -1, http.Header{"Sum": {"5"}}
		resp, got := c.send(req)
		assert.Equal(c.t, "content", got)
		assert.Equal(c.t, "5 again", resp.Trailer.Get("Sum"))
	})
}

func TestGzipTakesADetour(t *testing.T) {
	eachDetoured(t, everyProtocol, func(w http.ResponseWriter, r *http.Request) {
		var compressed bytes.Buffer
		z := gzip.NewWriter(&compressed)
		_, _ = io.WriteString(z, r.Header.Get("Accept-Encoding"))
		_ = z.Close()
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(compressed.Bytes())
	}, retryhttp.Policy{}, func(c *detoured) {
		resp, got := c.send(c.request(http.MethodGet, nil))
		assert.Equal(c.t, "gzip", got)
		assert.True(c.t, resp.Uncompressed)
	})
}

func TestCookiesAndRedirectsTakeADetour(t *testing.T) {
	eachDetoured(t, everyProtocol, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.SetCookie(w, &http.Cookie{Name: "n", Value: "1"})
			http.Redirect(w, r, "/next", http.StatusFound)
			return
		}
		cookie, err := r.Cookie("n")
		if err == nil {
			_, _ = io.WriteString(w, cookie.Value)
		}
	}, retryhttp.Policy{}, func(c *detoured) {
		jar, err := cookiejar.New(nil)
		require.NoError(c.t, err)
		resp, err := (&http.Client{Transport: c.Transport, Jar: jar}).Do(c.request(http.MethodGet, nil))
		require.NoError(c.t, err)
		content, err := io.ReadAll(resp.Body)
		require.NoError(c.t, err)
		require.NoError(c.t, resp.Body.Close())
		assert.Equal(c.t, "1", string(content))
		assert.Equal(c.t, "/next", resp.Request.URL.Path)
		assert.Positive(c.t, c.took.Load())
	})
}
