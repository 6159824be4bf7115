package retryhttp_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// The relayed client waits for 100-continue or a final status; the backend
// speaks HTTP/2 and answers 413 at once, or closes the connection after it.
func TestRelayedExpectContinueOverHTTP2(t *testing.T) {
	for name, wrap := range map[string]func(http.RoundTripper) http.RoundTripper{
		"bare":      func(rt http.RoundTripper) http.RoundTripper { return rt },
		"retryhttp": func(rt http.RoundTripper) http.RoundTripper { return retryhttp.New(rt, retryhttp.Policy{}) },
	} {
		t.Run(name, func(t *testing.T) {
			backend := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(413)
			}))
			backend.EnableHTTP2 = true
			backend.StartTLS()
			defer backend.Close()
			base := backend.Client().Transport.(*http.Transport)
			base.ExpectContinueTimeout = time.Minute
			rt := wrap(base)
			hung := 0
			relay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				out := r.Clone(r.Context())
				out.RequestURI = ""
				out.URL, _ = url.Parse(backend.URL)
				out.Host = ""
				resp, err := rt.RoundTrip(out)
				if err != nil {
					w.WriteHeader(502)
					return
				}
				w.WriteHeader(resp.StatusCode)
				w.(http.Flusher).Flush()
				resp.Body.Close()
			}))
			defer relay.Close()
			for range 20 {
				c, err := net.Dial("tcp", relay.Listener.Addr().String())
				require.NoError(t, err)
				fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n")
				c.SetReadDeadline(time.Now().Add(10 * time.Second)) // it hangs, or answers at once
				if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
					hung++
				}
				c.Close()
			}
			assert.Zero(t, hung, "of 20 clients got no status line within 500 ms")
		})
	}
}

// A full-duplex exchange through an io.Pipe.
func TestFullDuplexWorks(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
		}))
		srv.EnableHTTP2 = h2
		srv.StartTLS()
		rt := retryhttp.New(srv.Client().Transport, retryhttp.Policy{AttemptTimeout: 5 * time.Second})
		pr, pw := io.Pipe()
		req, _ := http.NewRequest("POST", srv.URL, pr)
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
		srv.Close()
	}
}

func TestRedirectsAsBare(t *testing.T) {
	var log []string
	var mu sync.Mutex
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	}))
	defer srv.Close()
	for kind, mk := range bodyKinds(t) {
		var logs [2][]string
		var st [2]int
		for i, rt := range []http.RoundTripper{&http.Transport{}, retryhttp.New(nil, retryhttp.Policy{AttemptTimeout: time.Second})} {
			log = nil
			req := mk([]byte("content"))
			req.URL, _ = url.Parse(srv.URL + "/a")
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

// ReverseProxy: upgraded connection, half-closed by the user.
func TestReverseProxyHalfClose(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, rw, _ := http.NewResponseController(w).Hijack()
		defer c.Close()
		fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: sum\r\n\r\n")
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		all, err := io.ReadAll(rw)
		fmt.Fprintf(c, "%d %v", len(all), err)
	}))
	defer backend.Close()
	u, _ := url.Parse(backend.URL)
	for name, rt := range map[string]http.RoundTripper{"bare": &http.Transport{}, "retry": retryhttp.New(nil, retryhttp.Policy{AttemptTimeout: time.Minute})} {
		proxy := httptest.NewServer(&httputil.ReverseProxy{Transport: rt, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }})
		c, err := net.Dial("tcp", proxy.Listener.Addr().String())
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
		proxy.Close()
	}
}
