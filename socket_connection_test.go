package retryhttp_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// The wrappers hide every method of what they wrap except the ones they name.
type (
	onlyReads struct{ io.Reader }
	onlySeeks struct{ io.ReadSeeker }
)

func (onlyReads) Close() error { return nil }
func (onlySeeks) Close() error { return nil }

// sentBodies are the ways in which a request can carry its content. A retry takes
// each of them from a different place.
func sentBodies(t *testing.T) map[string]func(req *http.Request, content []byte) {
	t.Helper()
	dir := t.TempDir()
	return map[string]func(*http.Request, []byte){
		"GetBody": func(req *http.Request, content []byte) {
			req.GetBody = func() (io.ReadCloser, error) { return onlyReads{bytes.NewReader(content)}, nil }
			req.Body, _ = req.GetBody()
		},
		"GetBody of unknown length": func(req *http.Request, content []byte) {
			req.GetBody = func() (io.ReadCloser, error) { return onlyReads{bytes.NewReader(content)}, nil }
			req.Body, _ = req.GetBody()
			req.ContentLength = -1
		},
		"file": func(req *http.Request, content []byte) {
			name := filepath.Join(dir, fmt.Sprint(len(content)))
			require.NoError(t, os.WriteFile(name, content, 0o600))
			file, err := os.Open(name)
			require.NoError(t, err)
			req.Body = file
		},
		"seeker": func(req *http.Request, content []byte) {
			req.Body = onlySeeks{bytes.NewReader(content)}
		},
		"stream": func(req *http.Request, content []byte) {
			req.Body = onlyReads{bytes.NewReader(content)}
		},
		"stream of unknown length": func(req *http.Request, content []byte) {
			req.Body = onlyReads{bytes.NewReader(content)}
			req.ContentLength = -1
		},
	}
}

// readingServer reads every request to its end, and fails two of three. It counts its
// connections.
type readingServer struct {
	url         string
	attempts    atomic.Int32
	connections atomic.Int32
}

func newReadingServer(t *testing.T, content []byte) *readingServer {
	t.Helper()
	s := new(readingServer)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		assert.True(t, bytes.Equal(content, got), "%d bytes of %d", len(got), len(content))
		n := s.attempts.Add(1)
		if n%3 != 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		if n%2 == 0 { // net/http treats a response without a body in another way
			_, _ = io.WriteString(w, "a body")
		}
	}))
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.connections.Add(1)
		}
	}
	s.url = listenOn(t, srv)
	return s
}

// net/http looks for the end of a body once more after the bytes it has announced.
// The server may have answered by then, and the attempt be over. A Read that failed
// there would cost the connection.
func TestOneConnectionServesAllAttempts(t *testing.T) {
	content := bytes.Repeat([]byte("content "), 5_000)
	for kind, setBody := range sentBodies(t) {
		for _, timeout := range []time.Duration{0, time.Minute} {
			t.Run(fmt.Sprintf("%s, AttemptTimeout %v", kind, timeout), func(t *testing.T) {
				var connections int32
				for range 3 { // net/http gives up a connection if the machine pauses a goroutine for 50 ms
					connections = connectionsOf(t, content, setBody, timeout)
					if connections == 1 || t.Failed() {
						break
					}
				}
				assert.EqualValues(t, 1, connections)
			})
		}
	}
}

// connectionsOf returns how many connections serve a number of requests that are sent
// one after another. No attempt may fail to send its body.
func connectionsOf(
	t *testing.T, content []byte, setBody func(*http.Request, []byte), timeout time.Duration,
) int32 {
	t.Helper()
	const requests = 160
	server := newReadingServer(t, content)
	client := &http.Client{Transport: retryhttp.New(new(http.Transport), retryhttp.Policy{
		AttemptTimeout: timeout,
		Backoff:        retryhttp.Constant(0),
		Budget:         retryhttp.Unlimited{},
	})}
	defer client.CloseIdleConnections()
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		WroteRequest: func(info httptrace.WroteRequestInfo) { assert.NoError(t, info.Err) },
	})
	for range requests {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, server.url, nil)
		require.NoError(t, err)
		req.ContentLength = int64(len(content))
		setBody(req, content)
		resp, err := client.Do(req)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
	assert.EqualValues(t, 3*requests, server.attempts.Load())
	return server.connections.Load()
}
