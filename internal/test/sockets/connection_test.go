package sockets_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
)

// The wrappers hide every method that they do not name.
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

// net/http looks for the end of a body once more after the bytes it has announced.
// The server may have answered by then, and the attempt be over. A Read that failed
// there would cost the connection.
//
// In virtual time no machine is too slow: net/http gives a connection up if the writing
// goroutine does not get its turn for 50 ms.
func TestOneConnectionServesAllAttempts(t *testing.T) {
	content := bytes.Repeat([]byte("content "), 5_000)
	for kind, setBody := range sentBodies(t) {
		for _, timeout := range []time.Duration{0, time.Minute} {
			t.Run(fmt.Sprintf("%s, AttemptTimeout %v", kind, timeout), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					sendOneAfterAnother(t, content, setBody, timeout)
				})
			})
		}
	}
}

// sendOneAfterAnother sends a number of requests, which all fail twice, over one
// connection.
func sendOneAfterAnother(
	t *testing.T, content []byte, setBody func(*http.Request, []byte), timeout time.Duration,
) {
	t.Helper()
	const requests = 160
	attempts := 0
	network, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		assert.True(t, bytes.Equal(content, got), "%d bytes of %d", len(got), len(content))
		if attempts++; attempts%3 != 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		if attempts%2 == 0 { // net/http treats a response without a body in another way
			_, _ = io.WriteString(w, "a body")
		}
	}))
	defer stop()
	client := &http.Client{Transport: retryhttp.New(withoutDetours{base}, retryhttp.Policy{
		AttemptTimeout: timeout,
		Backoff:        retryhttp.Constant(0),
		Budget:         retryhttp.Unlimited{},
	})}
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		WroteRequest: func(info httptrace.WroteRequestInfo) { assert.NoError(t, info.Err) },
	})
	for range requests {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://host.example/", nil)
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
	assert.Equal(t, 3*requests, attempts)
	assert.Equal(t, 1, network.Dials())
}
