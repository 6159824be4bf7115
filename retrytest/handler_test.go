package retrytest_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/retrytest"
)

// overBoth runs f with servers of HTTP/1 and of HTTP/2.
func overBoth(t *testing.T, f func(t *testing.T, http2 bool)) {
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) { f(t, http2) })
	}
}

// serve starts a server of h, and returns its URL and a client.
func serve(t *testing.T, h http.Handler, http2 bool) (string, *http.Client) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = http2
	server.StartTLS()
	t.Cleanup(server.Close)
	client := server.Client()
	t.Cleanup(client.CloseIdleConnections)
	return server.URL, client
}

func put(t *testing.T, ctx context.Context, client *http.Client, url string, body io.Reader) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url+"/books?key=secret", body)
	require.NoError(t, err)
	return client.Do(req)
}

var answers = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Length", "5")
	_, _ = io.WriteString(w, "12")
	_, _ = io.WriteString(w, "345")
})

func TestHandlerAnswers(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h := retrytest.NewHandler(t, answers, retrytest.Status(503, "Retry-After", "2").Body("busy").Nth(1))
		url, client := serve(t, h, http2)
		for i, want := range []struct {
			status int
			body   string
		}{{503, "busy"}, {200, "12345"}} {
			resp, err := put(t, t.Context(), client, url, strings.NewReader("upload"))
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, want.status, resp.StatusCode)
			assert.Equal(t, want.body, string(got))
			assert.Equal(t, int64(len(want.body)), resp.ContentLength)
			r := h.Records()[i]
			assert.Equal(t, "upload", string(r.Body))
			assert.True(t, r.Whole)
			assert.Equal(t, "/books?key=secret", r.URL)
			assert.Equal(t, strings.TrimPrefix(url, "https://"), r.Host)
		}
		assert.Contains(t, h.Table(), "PUT /books  6 bytes  503, Retry-After: 2\n")
	})
}

func TestHandlerWithoutANextAnswersWithNothing(t *testing.T) {
	url, client := serve(t, retrytest.NewHandler(t, nil), false)
	resp, err := client.Get(url)
	require.NoError(t, err)
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, 200, resp.StatusCode)
	assert.Empty(t, got)
	require.NoError(t, resp.Body.Close())
}

func TestHandlerCutsBodies(t *testing.T) {
	for name, c := range map[string]struct {
		step   retrytest.Step
		length int64
	}{
		"an answer of its own":              {retrytest.Status(200).Body("12345").Cut(3), 5},
		"without a length":                  {retrytest.Status(200).Body("12345").Cut(3).Unsized(), -1},
		"the real answer":                   {retrytest.Real().Cut(3), 5},
		"the real answer, without a length": {retrytest.Real().Cut(3).Unsized(), -1},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, http2 bool) {
				url, client := serve(t, retrytest.NewHandler(t, answers, c.step.Always()), http2)
				resp, err := put(t, t.Context(), client, url, strings.NewReader("upload"))
				require.NoError(t, err)
				assert.Equal(t, c.length, resp.ContentLength)
				got, err := io.ReadAll(resp.Body)
				require.Error(t, err)
				if !http2 {
					assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
				}
				assert.Equal(t, "123", string(got))
				require.NoError(t, resp.Body.Close())
			})
		})
	}
}

func TestHandlerLeavesShortBodiesWhole(t *testing.T) {
	for _, step := range []retrytest.Step{retrytest.Real().Cut(5), retrytest.Real().Stall(6), retrytest.Real().Unsized()} {
		url, client := serve(t, retrytest.NewHandler(t, answers, step.Always()), false)
		resp, err := client.Get(url)
		require.NoError(t, err)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, "12345", string(got))
		require.NoError(t, resp.Body.Close())
	}
}

// The server's Close waits for the handlers: each of these ends when the client has gone.
func TestHandlerHangsUntilTheClientHasGone(t *testing.T) {
	for name, c := range map[string]struct {
		step retrytest.Step
		got  string
	}{
		"hang":                  {retrytest.Hang(), ""},
		"slow":                  {retrytest.Status(200).Slow(time.Hour), ""},
		"stall":                 {retrytest.Status(200).Body("12345").Stall(2), "12"},
		"stall of another body": {retrytest.Real().Stall(2), "12"},
		"early stall":           {retrytest.Status(200).Body("12345").Early().Stall(2), "12"},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, http2 bool) {
				h := retrytest.NewHandler(t, answers, c.step.Always())
				url, client := serve(t, h, http2)
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				resp, err := put(t, ctx, client, url, strings.NewReader("upload"))
				var got []byte
				if err == nil {
					got, err = io.ReadAll(resp.Body)
					require.NoError(t, resp.Body.Close())
				}
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Equal(t, c.got, string(got))
			})
		})
	}
}

func TestHandlerResets(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h := retrytest.NewHandler(t, nil, retrytest.Reset().Always())
		url, client := serve(t, h, http2)
		_, err := put(t, t.Context(), client, url, strings.NewReader("upload"))
		require.Error(t, err)
		if !http2 {
			assert.ErrorIs(t, err, syscall.ECONNRESET)
		}
		assert.Equal(t, "upload", string(h.Records()[0].Body))
	})
}

// The client sends more only after it has the answer.
func TestHandlerAnswersEarly(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h := retrytest.NewHandler(t, nil, retrytest.Status(401).Body("no").Early().Always())
		url, client := serve(t, h, http2)
		body, w := io.Pipe()
		resp, err := put(t, t.Context(), client, url, body)
		require.NoError(t, err)
		assert.Equal(t, 401, resp.StatusCode)
		_ = w.CloseWithError(errEnough)
		_, _ = io.ReadAll(resp.Body)
		require.NoError(t, resp.Body.Close())
		assert.False(t, h.Records()[0].Whole)
	})
}

// A failure of the Transport is of the type, and has the cause, of net/http's own.
func TestFailuresAreLikeThoseOfNetHTTP(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	_, real := new(http.Transport).RoundTrip(request(t, "http://"+listener.Addr().String()))
	_, ours := get(t, retrytest.NewTransport(t, nil, retrytest.Refused().Always()))
	for _, err := range []error{real, ours} {
		assert.ErrorIs(t, err, syscall.ECONNREFUSED)
		var op *net.OpError
		require.ErrorAs(t, err, &op)
		assert.Equal(t, "dial", op.Op)
	}

	url, _ := serve(t, retrytest.NewHandler(t, nil, retrytest.Reset().Always()), false)
	base := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer base.CloseIdleConnections()
	_, real = base.RoundTrip(request(t, url))
	_, ours = get(t, retrytest.NewTransport(t, nil, retrytest.Reset().Always()))
	for _, err := range []error{real, ours} {
		assert.ErrorIs(t, err, syscall.ECONNRESET)
		var op *net.OpError
		require.ErrorAs(t, err, &op)
		assert.Equal(t, "read", op.Op)
	}

	_, real = new(http.Transport).RoundTrip(request(t, url))
	_, ours = get(t, retrytest.NewTransport(t, nil, retrytest.BadCertificate().Always()))
	for _, err := range []error{real, ours} {
		var verification *tls.CertificateVerificationError
		require.ErrorAs(t, err, &verification)
	}

	_, ours = get(t, retrytest.NewTransport(t, nil, retrytest.NoSuchHost().Always()))
	var dns *net.DNSError
	require.ErrorAs(t, ours, &dns)
	assert.True(t, dns.IsNotFound)
	assert.Equal(t, "shop.example", dns.Name)

	_, ours = get(t, retrytest.NewTransport(t, nil, retrytest.Timeout().Always()))
	var timeout net.Error
	require.True(t, errors.As(ours, &timeout))
	assert.True(t, timeout.Timeout())
}

func request(t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	return req
}

// A handler may be called without a server.
func TestHandlerServesARecorder(t *testing.T) {
	h := retrytest.NewHandler(t, answers, retrytest.Status(503).Body("busy").Nth(1))
	for _, want := range []string{"busy", "12345"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request(t, "http://shop.example/"))
		assert.Equal(t, want, w.Body.String())
	}
}

func TestHandlerReadsARequestBeforeASlowRealAnswer(t *testing.T) {
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	url, client := serve(t, retrytest.NewHandler(t, echo, retrytest.Real().Slow(time.Millisecond).Always()), false)
	resp, err := put(t, t.Context(), client, url, strings.NewReader("upload"))
	require.NoError(t, err)
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, "upload", string(got))
	require.NoError(t, resp.Body.Close())
}
