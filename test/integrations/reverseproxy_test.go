package integrations_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// A proxy may repeat only what its method allows, whatever key a client has sent
// (RFC 9110, section 9.2.2). What it forwards can be read only once, so that
// RecordBytes says up to which size a body is kept and can be sent again.
//
// Its requests have no deadline: MaxElapsed ends the retries, and
// ResponseHeaderTimeout a backend's silence. That counts from the end of the upload,
// and AttemptTimeout from the start, which would end the upload of a slow client.
func Example_reverseProxy() {
	backend := failing(answerOK, 503)
	defer backend.Close()
	target, err := url.Parse(backend.URL)
	if err != nil {
		fmt.Println(err)
		return
	}

	base := http.DefaultTransport.(*http.Transport)
	proxy := httptest.NewServer(newProxy(target, base, proxyPolicy))
	defer proxy.Close()

	req, err := http.NewRequest(http.MethodPut, proxy.URL, strings.NewReader("hello"))
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	for _, r := range backend.got() {
		fmt.Printf("%s %s\n", r.Method, r.Body)
	}
	// Output:
	// 200 OK
	// PUT hello
	// PUT hello
}

var proxyPolicy = retryhttp.Policy{
	MaxElapsed:  30 * time.Second, // more than ResponseHeaderTimeout, or silence is never retried
	RecordBytes: 1 << 20,
	Idempotent:  idempotentMethod,
}

func newProxy(target *url.URL, base *http.Transport, policy retryhttp.Policy) *httputil.ReverseProxy {
	base = base.Clone()
	base.ResponseHeaderTimeout = 10 * time.Second
	return &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: retryhttp.New(base, policy),
	}
}

func idempotentMethod(req *http.Request) bool {
	return retryhttp.Idempotent(&http.Request{Method: req.Method}) // as if it had no headers
}

// proxyTo starts a proxy that does not wait.
func proxyTo(t *testing.T, backend *server, edit func(*retryhttp.Policy)) string {
	target, err := url.Parse(backend.URL)
	require.NoError(t, err)
	policy := proxyPolicy
	policy.Backoff = retryhttp.Constant(0)
	if edit != nil {
		edit(&policy)
	}
	handler := newProxy(target, &http.Transport{}, policy)
	handler.ErrorHandler = badGateway
	proxy := httptest.NewServer(handler)
	t.Cleanup(proxy.Close)
	return proxy.URL
}

func badGateway(w http.ResponseWriter, _ *http.Request, _ error) {
	w.WriteHeader(http.StatusBadGateway)
}

func plainGet(t *testing.T, from string) *http.Response {
	resp, err := http.Get(from)
	require.NoError(t, err)
	return resp
}

func keyedPost(t *testing.T, to string) *http.Response {
	req, err := http.NewRequest(http.MethodPost, to, strings.NewReader("hello"))
	require.NoError(t, err)
	req.Header.Set("Idempotency-Key", "17")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	return resp
}

func TestProxyPassesTheLastResponseOn(t *testing.T) {
	for name, tt := range map[string]struct {
		after    string
		send     func(t *testing.T, to string) *http.Response
		attempts int
	}{
		"of a GET":                            {"0", plainGet, 4},
		"that asks for a long wait":           {"120", plainGet, 1},
		"of a POST, which it does not repeat": {"0", keyedPost, 1},
	} {
		t.Run(name, func(t *testing.T) {
			backend := failing(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Retry-After", tt.after)
				serviceUnavailable(w, r)
			})
			defer backend.Close()
			resp := tt.send(t, proxyTo(t, backend, nil))
			assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
			assert.Equal(t, tt.after, resp.Header.Get("Retry-After"))
			assert.Equal(t, "down\n", bodyOf(t, resp))
			assert.Len(t, backend.got(), tt.attempts)
		})
	}
}

// net/http would resend a request with a key, if it could: on a connection that was used before
// and is dead.
func TestProxyPostWithABodyIsNotResentBelowIt(t *testing.T) {
	var used atomic.Bool
	backend := failing(func(http.ResponseWriter, *http.Request) {
		if used.Swap(true) {
			panic(http.ErrAbortHandler)
		}
	})
	defer backend.Close()
	proxy := proxyTo(t, backend, nil)
	for _, status := range []int{http.StatusOK, http.StatusBadGateway} {
		resp := keyedPost(t, proxy)
		bodyOf(t, resp)
		assert.Equal(t, status, resp.StatusCode)
	}
	assert.Len(t, backend.got(), 2)
}

func TestProxyStopsWaitingWhenItsClientHasGone(t *testing.T) {
	backend := failing(serviceUnavailable)
	defer backend.Close()
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan retryhttp.Outcome, 1)
	proxy := proxyTo(t, backend, func(p *retryhttp.Policy) {
		p.Backoff = retryhttp.Constant(time.Second)
		p.OnRetry = func(retryhttp.Attempt) { leave() }
		p.OnDone = func(_ retryhttp.Attempt, o retryhttp.Outcome) { done <- o }
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, proxy, nil)
	require.NoError(t, err)
	_, err = http.DefaultClient.Do(req)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, retryhttp.StopCanceled, (<-done).Stop)
	assert.Len(t, backend.got(), 1)
}

func TestProxySwitchesProtocolsAfterARetry(t *testing.T) {
	backend := failing(echo, 503)
	defer backend.Close()
	url := proxyTo(t, backend, func(p *retryhttp.Policy) { p.AttemptTimeout = time.Minute })
	conn, _, err := websocket.Dial(t.Context(), url, nil)
	require.NoError(t, err)
	defer conn.CloseNow()
	answer, err := say(t.Context(), conn, "hello")
	require.NoError(t, err)
	assert.Equal(t, "hello", answer)
	assert.NoError(t, conn.Close(websocket.StatusNormalClosure, ""))
	assert.Len(t, backend.got(), 2)
}
