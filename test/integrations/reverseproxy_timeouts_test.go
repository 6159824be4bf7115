package integrations_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
)

// forwarded sends a PUT through a proxy to backend, in a bubble.
func forwarded(
	t *testing.T, backend http.HandlerFunc, body io.Reader, policy retryhttp.Policy,
) *httptest.ResponseRecorder {
	_, base, stop := memnet.Serve(backend)
	defer stop()
	proxy := newProxy(&url.URL{Scheme: "http", Host: "backend.example"}, base, policy)
	proxy.ErrorHandler = badGateway
	defer proxy.Transport.(*retryhttp.Transport).CloseIdleConnections()
	resp := httptest.NewRecorder()
	proxy.ServeHTTP(resp, httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/", body))
	return resp
}

func TestProxyWaitsForASlowClientAndNotForASilentBackend(t *testing.T) {
	for name, tt := range map[string]struct {
		upload, silence time.Duration
		attempts        int
	}{
		"a slow client":                        {upload: time.Minute, attempts: 1},
		"a silent backend":                     {silence: time.Hour, attempts: 2},
		"a slow client, then a silent backend": {upload: 15 * time.Second, silence: time.Hour, attempts: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var attempts atomic.Int32
				resp := forwarded(t, func(w http.ResponseWriter, r *http.Request) {
					body, err := io.ReadAll(r.Body)
					assert.NoError(t, err)
					if attempts.Add(1) == 1 {
						select {
						case <-r.Context().Done():
						case <-time.After(tt.silence):
						}
					}
					_, _ = w.Write(body)
				}, &slowReader{strings.NewReader("hello"), tt.upload / 5}, proxyPolicy)
				assert.Equal(t, http.StatusOK, resp.Code)
				assert.Equal(t, "hello", resp.Body.String())
				assert.EqualValues(t, tt.attempts, attempts.Load())
			})
		})
	}
}

func TestProxyAttemptTimeoutWouldEndASlowClientsUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := proxyPolicy
		policy.AttemptTimeout = 10 * time.Second
		resp := forwarded(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(w, r.Body)
		}, &slowReader{strings.NewReader("hello"), 12 * time.Second}, policy)
		assert.Equal(t, http.StatusBadGateway, resp.Code)
		time.Sleep(time.Minute) // until the client has sent its next byte, and sees the failure
	})
}

// slowReader waits before each byte.
type slowReader struct {
	io.Reader
	pause time.Duration
}

func (r *slowReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p[:min(len(p), 1)])
	if n > 0 {
		time.Sleep(r.pause)
	}
	return n, err
}

func TestProxyRepeatsABodyOfOneMiB(t *testing.T) {
	backend := failing(answerOK, 503)
	defer backend.Close()
	body := strings.Repeat("0123456789abcdef", 1<<16)
	req, err := http.NewRequest(http.MethodPut, proxyTo(t, backend, nil), strings.NewReader(body))
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	assert.Equal(t, "ok", bodyOf(t, resp))
	for _, r := range backend.got() {
		assert.True(t, body == string(r.Body))
	}
	assert.Len(t, backend.got(), 2)
}

// The requests of a proxy's clients have no deadline.
func TestProxyEndsItsRetriesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		resp := forwarded(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "20")
			serviceUnavailable(w, r)
		}, nil, proxyPolicy)
		assert.Equal(t, http.StatusServiceUnavailable, resp.Code)
		assert.LessOrEqual(t, time.Since(start), proxyPolicy.MaxElapsed)
		assert.GreaterOrEqual(t, time.Since(start), 20*time.Second, "there was one")
	})
}

// A proxy leaves a backend that falls silent in a body, and its client sees that the answer is not
// whole.
func TestProxyEndsABodyThatStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "5")
			_, _ = io.WriteString(w, "he")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}))
		defer stop()
		policy := proxyPolicy
		policy.StallTimeout = time.Minute
		proxy := newProxy(&url.URL{Scheme: "http", Host: "backend.example"}, base, policy)
		proxy.FlushInterval = -1 // each byte is sent at once
		proxy.ErrorLog = log.New(io.Discard, "", 0)
		defer proxy.Transport.(*retryhttp.Transport).CloseIdleConnections()
		_, front, stopProxy := memnet.Serve(proxy)
		defer stopProxy()

		start := time.Now()
		resp, err := (&http.Client{Transport: front}).Get("http://proxy.example")
		require.NoError(t, err)
		defer resp.Body.Close()
		got, err := io.ReadAll(resp.Body)
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
		assert.Equal(t, "he", string(got))
		assert.Equal(t, policy.StallTimeout, time.Since(start))
	})
}
