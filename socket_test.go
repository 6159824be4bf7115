package retryhttp_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// What is tested here needs real sockets: their buffers, their resets, and the
// moment at which net/http stops to send.

// listen serves h on a loopback socket.
func listen(t *testing.T, h http.Handler) (url string) {
	t.Helper()
	return listenOn(t, httptest.NewUnstartedServer(h))
}

func listenOn(t *testing.T, srv *httptest.Server) (url string) {
	t.Helper()
	srv.Config.ErrorLog = discardLog
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.URL
}

// uploadServer answers the first attempts with 503 before it has read anything,
// and then tells the SHA-256 of what it gets.
type uploadServer struct {
	refusals int32
	attempts atomic.Int32
}

func (s *uploadServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.attempts.Add(1) <= s.refusals {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	h := sha256.New()
	if _, err := io.Copy(h, r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, _ = io.WriteString(w, hex.EncodeToString(h.Sum(nil)))
}

var upload = sync.OnceValues(func() (content []byte, sum string) {
	content = make([]byte, 16<<20)
	seed := [32]byte{1}
	_, _ = rand.NewChaCha8(seed).Read(content)
	h := sha256.Sum256(content)
	return content, hex.EncodeToString(h[:])
})

// uploadKinds makes bodies of the upload's content in every way there is.
func uploadKinds(t *testing.T) map[string]func() io.Reader {
	t.Helper()
	content, _ := upload()
	path := filepath.Join(t.TempDir(), "upload")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return map[string]func() io.Reader{
		"bytes.Reader": func() io.Reader { return bytes.NewReader(content) },
		"section":      func() io.Reader { return sectionBody{bytes.NewReader(content)} },
		"seeker":       func() io.Reader { return seekBody{bytes.NewReader(content)} },
		"stream":       func() io.Reader { return io.MultiReader(bytes.NewReader(content)) },
		"file": func() io.Reader {
			f, err := os.Open(path)
			require.NoError(t, err)
			return f
		},
	}
}

func TestUploadSurvivesAnEarly503(t *testing.T) {
	content, sum := upload()
	protocols := map[string]func(*httptest.Server) *httptest.Server{
		"HTTP/1": func(s *httptest.Server) *httptest.Server { s.Start(); return s },
		"HTTP/2": func(s *httptest.Server) *httptest.Server { s.EnableHTTP2 = true; s.StartTLS(); return s },
	}
	for protocol, start := range protocols {
		for _, chunked := range []bool{false, true} {
			for kind, body := range uploadKinds(t) {
				t.Run(fmt.Sprintf("%s, chunked %t, %s", protocol, chunked, kind), func(t *testing.T) {
					t.Parallel() // closing a server that has not read everything takes it a while
					handler := &uploadServer{refusals: 2}
					unstarted := httptest.NewUnstartedServer(handler)
					unstarted.Config.ErrorLog = discardLog
					srv := start(unstarted)
					defer srv.Close()
					req, err := http.NewRequest("PUT", srv.URL, body())
					require.NoError(t, err)
					req.ContentLength = int64(len(content))
					if chunked {
						req.ContentLength = -1
					}
					rt := retryhttp.New(srv.Client().Transport, retryhttp.Policy{
						Backoff:      retryhttp.Constant(time.Millisecond),
						MaxBodyBytes: int64(len(content)),
					})
					resp, err := rt.RoundTrip(req)
					require.NoError(t, err)
					got, err := io.ReadAll(resp.Body)
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					assert.Equal(t, 200, resp.StatusCode)
					assert.Equal(t, sum, string(got))
					assert.Equal(t, protocol == "HTTP/2", resp.ProtoMajor == 2)
				})
			}
		}
	}
}

func TestStreamPastTheLimitMeetsAnEarly503(t *testing.T) {
	// What the first attempt has sent by the time of the answer is past the
	// limit or not; in either case no other body arrives than the whole one.
	content, sum := upload()
	for range 10 {
		handler := &uploadServer{refusals: 1}
		url := listen(t, handler)
		req, err := http.NewRequest("PUT", url, io.MultiReader(bytes.NewReader(content)))
		require.NoError(t, err)
		resp, err := retryhttp.New(nil, retryhttp.Policy{Backoff: retryhttp.Constant(time.Millisecond)}).RoundTrip(req)
		if err != nil {
			assert.Equal(t, retryhttp.StopBody, errorOf(t, err).Stop, "%v", err)
			continue
		}
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		if resp.StatusCode == 200 {
			assert.Equal(t, sum, string(got))
		} else {
			assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
			assert.Equal(t, retryhttp.StopBody, retryhttp.OutcomeOf(resp).Stop)
		}
	}
}

func TestRetriesUseOneConnection(t *testing.T) {
	for _, size := range []int{0, 1 << 10, 60 << 10} {
		t.Run(fmt.Sprintf("%d bytes", size), func(t *testing.T) {
			const requests = 1000
			failure := bytes.Repeat([]byte("x"), size)
			var n, conns atomic.Int64
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if n.Add(1)%3 != 0 {
					w.WriteHeader(http.StatusServiceUnavailable)
					_, _ = w.Write(failure)
				}
			}))
			srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
				if s == http.StateNew {
					conns.Add(1)
				}
			}
			url := listenOn(t, srv)
			client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{Backoff: retryhttp.Constant(0), Budget: retryhttp.Unlimited{}})}
			defer client.CloseIdleConnections()
			for range requests {
				resp, err := client.Get(url)
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, 200, resp.StatusCode)
			}
			assert.Equal(t, int64(3*requests), n.Load())
			assert.Equal(t, int64(1), conns.Load())
		})
	}
}

// rawServer answers each connection with what the next of answers does to it.
func rawServer(t *testing.T, answers ...func(net.Conn)) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for i := 0; ; i++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				_, _ = c.Read(make([]byte, 4096))
				answers[min(i, len(answers)-1)](c)
			})
		}
	})
	return "http://" + l.Addr().String()
}

func say(text string) func(net.Conn) {
	return func(c net.Conn) { _, _ = io.WriteString(c, text) }
}

// reset says something and resets the connection.
func reset(text string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = io.WriteString(c, text)
		_ = c.(*net.TCPConn).SetLinger(0)
	}
}

const okResponse = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"

func TestBrokenConnections(t *testing.T) {
	cases := []struct {
		name  string
		first func(net.Conn)
	}{
		{"closed without an answer", say("")},
		{"reset without an answer", reset("")},
		{"closed in the header", say("HTTP/1.1 200 OK\r\nContent-Le")},
		{"reset in the header", reset("HTTP/1.1 200 OK\r\nContent-Le")},
		{"an interim response and nothing", say("HTTP/1.1 103 Early Hints\r\n\r\n")},
		{"an error whose body is reset", reset("HTTP/1.1 503 Unavailable\r\nContent-Length: 100\r\n\r\nhalf of it")},
		{"an error whose body ends too soon", say("HTTP/1.1 503 Unavailable\r\nContent-Length: 100\r\n\r\nhalf of it")},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			url := rawServer(t, tc.first, say(okResponse))
			client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{Backoff: retryhttp.Constant(time.Millisecond)})}
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

func TestAResetInTheMiddleOfASuccessIsTheCallers(t *testing.T) {
	url := rawServer(t, reset("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of it"), say(okResponse))
	resp, err := retryhttp.New(nil, retryhttp.Policy{}).RoundTrip(getURL(t, url))
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, 1, retryhttp.OutcomeOf(resp).Attempts)
	_, err = io.ReadAll(resp.Body)
	assert.Error(t, err)
}

func TestErrorBodiesThatDoNotEnd(t *testing.T) {
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
			url := rawServer(t, tc.first, say(okResponse))
			resp, err := retryhttp.New(nil, retryhttp.Policy{Backoff: retryhttp.Constant(time.Millisecond)}).RoundTrip(getURL(t, url))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, 200, resp.StatusCode)
		})
	}
}

func TestAttemptTimeoutOverASocket(t *testing.T) {
	url := rawServer(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }, say(okResponse))
	resp, err := retryhttp.New(nil, retryhttp.Policy{AttemptTimeout: time.Second, Backoff: retryhttp.Constant(0)}).RoundTrip(getURL(t, url))
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, "ok", string(body))
	assert.Equal(t, 2, retryhttp.OutcomeOf(resp).Attempts)
}

func TestUpgradeOverASocket(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Minute} {
		var attempts atomic.Int32
		url := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
		}))
		req := getURL(t, url)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		resp, err := retryhttp.New(nil, retryhttp.Policy{AttemptTimeout: timeout, Backoff: retryhttp.Constant(0)}).RoundTrip(req)
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

func TestHTTP2(t *testing.T) {
	var attempts atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch attempts.Add(1) {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			panic(http.ErrAbortHandler) // RST_STREAM
		default:
			_, _ = w.Write(body)
		}
	}))
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = discardLog
	srv.StartTLS()
	defer srv.Close()
	req, err := http.NewRequest("PUT", srv.URL, io.MultiReader(strings.NewReader("content")))
	require.NoError(t, err)
	resp, err := retryhttp.New(srv.Client().Transport, retryhttp.Policy{Backoff: retryhttp.Constant(0)}).RoundTrip(req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, 2, resp.ProtoMajor)
	assert.Equal(t, "content", string(body))
	assert.Equal(t, 3, retryhttp.OutcomeOf(resp).Attempts)
}

func TestCancelFreesAStalledUploadOverASocket(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
		}))
		srv.Config.ErrorLog = discardLog
		srv.EnableHTTP2 = http2
		srv.StartTLS()
		r, w := io.Pipe()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		req, err := http.NewRequestWithContext(ctx, "PUT", srv.URL, r)
		require.NoError(t, err)
		_, err = retryhttp.New(srv.Client().Transport, retryhttp.Policy{}).RoundTrip(req)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		for err = error(nil); err == nil; { // the Read in flight may still take some
			_, err = w.Write([]byte("x"))
		}
		assert.ErrorIs(t, err, io.ErrClosedPipe)
		cancel()
		srv.Close()
	}
}

func getURL(t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	return req
}
