package sockets_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/loopback"
)

var noWait = retryhttp.Policy{Backoff: retryhttp.Constant(0), Budget: retryhttp.Unlimited{}}

func get(t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	return req
}

func errorOf(t *testing.T, err error) *retryhttp.Error {
	t.Helper()
	var e *retryhttp.Error
	require.ErrorAs(t, err, &e)
	return e
}

func TestConnectionThatBreaks(t *testing.T) {
	cases := []struct {
		name  string
		first func(net.Conn)
	}{
		{"closed without an answer", loopback.Say("")},
		{"reset without an answer", loopback.Reset("")},
		{"closed in the header", loopback.Say("HTTP/1.1 200 OK\r\nContent-Le")},
		{"reset in the header", loopback.Reset("HTTP/1.1 200 OK\r\nContent-Le")},
		{"an interim response and nothing", loopback.Say("HTTP/1.1 103 Early Hints\r\n\r\n")},
		{"an error whose body is reset", loopback.Reset("HTTP/1.1 503 Unavailable\r\nContent-Length: 100\r\n\r\nhalf of it")},
		{"an error whose body ends too soon", loopback.Say("HTTP/1.1 503 Unavailable\r\nContent-Length: 100\r\n\r\nhalf of it")},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			url := loopback.ServeRaw(t, tc.first, loopback.Say(okResponse))
			p := retryhttp.Policy{Backoff: retryhttp.Constant(time.Millisecond)}
			client := &http.Client{Transport: retryhttp.New(nil, p)}
			resp, err := client.Get(url)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, "ok", string(body))
			assert.Equal(t, 2, retryhttp.OutcomeOf(resp).Attempts)
		})
	}
}

func TestConnectionResetInTheMiddleOfASuccessIsTheCallers(t *testing.T) {
	broken := loopback.Reset("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of it")
	url := loopback.ServeRaw(t, broken, loopback.Say(okResponse))
	resp, err := retryhttp.New(nil, retryhttp.Policy{}).RoundTrip(get(t, url))
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, 1, retryhttp.OutcomeOf(resp).Attempts)
	_, err = io.ReadAll(resp.Body)
	assert.Error(t, err)
}

func TestDrainOfErrorBodiesThatDoNotEnd(t *testing.T) {
	t.Parallel()
	const header = "HTTP/1.1 503 Unavailable\r\nContent-Type: text/plain\r\n\r\n"
	cases := []struct {
		name  string
		first func(net.Conn)
	}{
		{"endless", func(c net.Conn) {
			_, err := io.WriteString(c, header)
			for err == nil {
				_, err = c.Write(make([]byte, 64<<10))
			}
		}},
		{"stalled", func(c net.Conn) {
			_, _ = io.WriteString(c, header+"x")
			_, _ = c.Read(make([]byte, 1)) // until the client closes the connection
		}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			url := loopback.ServeRaw(t, tc.first, loopback.Say(okResponse))
			p := retryhttp.Policy{Backoff: retryhttp.Constant(time.Millisecond)}
			resp, err := retryhttp.New(nil, p).RoundTrip(get(t, url))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, 200, resp.StatusCode)
		})
	}
}

func TestAttemptTimeoutOverASocket(t *testing.T) {
	t.Parallel()
	url := loopback.ServeRaw(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }, loopback.Say(okResponse))
	p := retryhttp.Policy{AttemptTimeout: time.Second, Backoff: retryhttp.Constant(0)}
	resp, err := retryhttp.New(nil, p).RoundTrip(get(t, url))
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, "ok", string(body))
	assert.Equal(t, 2, retryhttp.OutcomeOf(resp).Attempts)
}

// wireServer answers 503, 503, 200 and so on, and keeps each request's header as it came over the
// wire.
func wireServer(t *testing.T) (url string, heads func() []string) {
	t.Helper()
	var mu sync.Mutex
	var got []string
	requests := 0
	l := loopback.Listen(t, func(c net.Conn) {
		var head bytes.Buffer
		loopback.ReadRequest(bufio.NewReader(io.TeeReader(c, &head)))
		before, _, _ := strings.Cut(head.String(), "\r\n\r\n")
		mu.Lock()
		defer mu.Unlock()
		got = append(got, before)
		status := "503 Service Unavailable"
		if requests++; requests%3 == 0 {
			status = "200 OK"
		}
		_, _ = fmt.Fprintf(c, "HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status)
	})
	return "http://" + l.Addr().String(), func() []string {
		mu.Lock()
		defer mu.Unlock()
		defer func() { got = nil }()
		return got
	}
}

func TestHeadersOnTheWireAreTheRequests(t *testing.T) {
	kinds := map[string]func(*http.Request){
		"none": func(*http.Request) {},
		"with GetBody": func(r *http.Request) {
			r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("content")), nil }
			r.Body, _ = r.GetBody()
			r.ContentLength = 7
		},
		"stream of known length": func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader("content")), 7
		},
		"stream of unknown length": func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader("content")), -1
		},
		"with a trailer": func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader("content")), -1
			r.Trailer = http.Header{"Sum": {"1"}}
		},
		"Expect: 100-continue": func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader("content")), 7
			r.Header.Set("Expect", "100-continue")
		},
	}
	url, heads := wireServer(t)
	base := &http.Transport{}
	for _, method := range []string{"", "GET", "HEAD", "PUT", "DELETE", "OPTIONS"} {
		for name, setBody := range kinds {
			t.Run(method+" "+name, func(t *testing.T) {
				request := func() *http.Request {
					req, err := http.NewRequest(method, url+"/path?query", nil)
					require.NoError(t, err)
					req.Header = http.Header{"X-Own": {"1", "2"}, "lower": {"x"}, "User-Agent": nil}
					setBody(req)
					return req
				}
				for range 3 {
					resp, err := base.RoundTrip(request())
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
				}
				bare := heads()
				resp, err := retryhttp.New(base, retryhttp.Policy{
					Backoff: retryhttp.Constant(0), Budget: retryhttp.Unlimited{}, IdempotencyKey: retryhttp.RandomKey,
				}).RoundTrip(request())
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, bare, heads())
			})
		}
	}
}

func TestRedirectsAsBare(t *testing.T) {
	var log []string
	var mu sync.Mutex
	server := loopback.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		log = append(log, fmt.Sprint(r.Method, r.URL.Path, len(b), r.Header.Get("Referer") != "", r.Header.Get("Cookie")))
		mu.Unlock()
		switch r.URL.Path {
		case "/a":
			http.SetCookie(w, &http.Cookie{Name: "c", Value: "1"})
			http.Redirect(w, r, "/b", http.StatusTemporaryRedirect)
		case "/b":
			http.Redirect(w, r, "/c", http.StatusPermanentRedirect)
		}
	})
	for kind, mk := range bodies.Kinds(t) {
		var logs [2][]string
		var st [2]int
		ours := retryhttp.New(nil, retryhttp.Policy{AttemptTimeout: time.Second})
		for i, rt := range []http.RoundTripper{&http.Transport{}, ours} {
			log = nil
			req := mk([]byte("content"))
			req.URL, _ = url.Parse(server + "/a")
			req.Host = ""
			resp, err := (&http.Client{Transport: rt, Timeout: 5 * time.Second}).Do(req)
			require.NoError(t, err)
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			logs[i], st[i] = log, resp.StatusCode
			assert.Equal(t, retryhttp.Outcome{Attempts: 1, Stop: retryhttp.StopFinal}, retryhttp.OutcomeOf(resp))
		}
		assert.Equal(t, logs[0], logs[1], kind)
		assert.Equal(t, st[0], st[1], kind)
	}
}

func TestUpgradeAfterARetry(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Minute} {
		var attempts atomic.Int32
		url := loopback.Serve(t, func(w http.ResponseWriter, r *http.Request) {
			if attempts.Add(1) == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "echo")
			w.WriteHeader(http.StatusSwitchingProtocols)
			c, rw, err := http.NewResponseController(w).Hijack()
			if !assert.NoError(t, err) {
				return
			}
			defer c.Close()
			_, _ = io.Copy(c, rw)
		})
		req := get(t, url)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		p := retryhttp.Policy{AttemptTimeout: timeout, Backoff: retryhttp.Constant(0)}
		resp, err := retryhttp.New(nil, p).RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
		rwc, ok := resp.Body.(io.ReadWriteCloser)
		require.True(t, ok)
		_, err = io.WriteString(rwc, "hello")
		require.NoError(t, err)
		echo := make([]byte, 5)
		_, err = io.ReadFull(rwc, echo)
		require.NoError(t, err)
		assert.Equal(t, "hello", string(echo))
		require.NoError(t, rwc.Close())
	}
}

func TestUpgradeCanBeHalfClosed(t *testing.T) {
	server := loopback.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: sum\r\n\r\n")
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		all, err := io.ReadAll(rw)
		fmt.Fprintf(c, "%d %v", len(all), err)
	})
	base := &http.Transport{}
	for name, rt := range map[string]http.RoundTripper{
		"bare":                      base,
		"retry":                     retryhttp.New(base, retryhttp.Policy{}),
		"retry with AttemptTimeout": retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Minute}),
	} {
		req, _ := http.NewRequest("GET", server, nil)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "sum")
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		io.WriteString(resp.Body.(io.Writer), "hello")
		cw, ok := resp.Body.(interface{ CloseWrite() error })
		if assert.True(t, ok, name) {
			assert.NoError(t, cw.CloseWrite())
			got, _ := io.ReadAll(resp.Body)
			assert.Equal(t, "5 <nil>", string(got))
		}
	}
}

// The user half-closes a connection that was upgraded through a ReverseProxy.
func TestUpgradeThroughAReverseProxyCanBeHalfClosed(t *testing.T) {
	backend := loopback.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		c, rw, _ := http.NewResponseController(w).Hijack()
		defer c.Close()
		fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: sum\r\n\r\n")
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		all, err := io.ReadAll(rw)
		fmt.Fprintf(c, "%d %v", len(all), err)
	})
	u, _ := url.Parse(backend)
	for name, rt := range map[string]http.RoundTripper{
		"bare":  &http.Transport{},
		"retry": retryhttp.New(nil, retryhttp.Policy{AttemptTimeout: time.Minute}),
	} {
		relay := &httputil.ReverseProxy{Transport: rt, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }}
		proxy := loopback.Serve(t, relay.ServeHTTP)
		c, err := net.Dial("tcp", strings.TrimPrefix(proxy, "http://"))
		require.NoError(t, err)
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: sum\r\n\r\n")
		br := bufio.NewReader(c)
		resp, err := http.ReadResponse(br, nil)
		require.NoError(t, err)
		require.Equal(t, 101, resp.StatusCode)
		io.WriteString(c, "hello")
		c.(*net.TCPConn).CloseWrite()
		got, _ := io.ReadAll(br)
		assert.Equal(t, "5 <nil>", string(got), name)
		c.Close()
	}
}

// Request and response alternate, through an io.Pipe.
func TestFullDuplexWorks(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		server, base := loopback.ServeTLS(t, h2, func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex()
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			b := make([]byte, 8192)
			for {
				n, err := r.Body.Read(b)
				w.Write(b[:n])
				w.(http.Flusher).Flush()
				if err != nil {
					return
				}
			}
		})
		rt := retryhttp.New(base, retryhttp.Policy{AttemptTimeout: 5 * time.Second})
		pr, pw := io.Pipe()
		req, _ := http.NewRequest("POST", server, pr)
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err)
		for i := range 30 {
			msg := bytes.Repeat([]byte{byte(i)}, 5000)
			pw.Write(msg)
			got := make([]byte, 5000)
			_, err := io.ReadFull(resp.Body, got)
			require.NoError(t, err)
			require.Equal(t, msg, got)
		}
		pw.Close()
		rest, err := io.ReadAll(resp.Body)
		assert.NoError(t, err)
		assert.Empty(t, rest)
		resp.Body.Close()
	}
}

const okResponse = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
