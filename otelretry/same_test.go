package otelretry_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

// forBoth runs a test with and without telemetry: nothing else must be different.
func forBoth(t *testing.T, test func(t *testing.T, build func(http.RoundTripper, retryhttp.Policy) http.RoundTripper)) {
	t.Run("retryhttp", func(t *testing.T) {
		test(t, func(base http.RoundTripper, p retryhttp.Policy) http.RoundTripper { return retryhttp.New(base, p) })
	})
	t.Run("otelretry", func(t *testing.T) {
		test(t, func(base http.RoundTripper, p retryhttp.Policy) http.RoundTripper {
			return otelretry.New(base, p, newTelemetry().options()...)
		})
	})
}

type builder = func(http.RoundTripper, retryhttp.Policy) http.RoundTripper

// playing is a base that plays statuses over and over.
func playing(statuses ...int) roundTripperFunc {
	n := 0
	return func(req *http.Request) (*http.Response, error) {
		n++
		return &http.Response{StatusCode: statuses[(n-1)%len(statuses)], Body: http.NoBody, Request: req}, nil
	}
}

// trailing sets its request's trailer when it is read to its end.
type trailing struct {
	io.Reader
	req *http.Request
}

func (b *trailing) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		b.req.Trailer.Set("Checksum", "abc")
	}
	return n, err
}

func (b *trailing) Close() error { return nil }

func TestTrailersAreSentWithEachAttempt(t *testing.T) {
	forBoth(t, func(t *testing.T, build builder) {
		var got []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			assert.NoError(t, err)
			got = append(got, r.Trailer.Get("Checksum"))
			if len(got) == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		defer server.Close()
		req, err := http.NewRequest(http.MethodPut, server.URL, nil)
		require.NoError(t, err)
		req.Trailer = http.Header{"Checksum": nil}
		req.ContentLength = -1
		req.Body = &trailing{strings.NewReader("upload"), req}
		resp, err := build(nil, atOnce).RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, []string{"abc", "abc"}, got)
	})
}

// A proxy hands on that one side has said all, and the other still speaks.
func TestAConnectionCanBeClosedByHalves(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, in, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
		all, _ := io.ReadAll(in)
		_, _ = conn.Write(all)
	}))
	defer backend.Close()
	target, err := url.Parse(backend.URL)
	require.NoError(t, err)
	forBoth(t, func(t *testing.T, build builder) {
		proxy := httptest.NewServer(&httputil.ReverseProxy{
			Transport: build(nil, atOnce),
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		})
		defer proxy.Close()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, proxy.URL, nil)
		require.NoError(t, err)
		req.Header.Set("Connection", "upgrade")
		req.Header.Set("Upgrade", "echo")
		resp, err := http.DefaultTransport.RoundTrip(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		_, err = io.WriteString(resp.Body.(io.Writer), "hello")
		require.NoError(t, err)
		require.NoError(t, resp.Body.(interface{ CloseWrite() error }).CloseWrite())
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, "hello", string(got))
	})
}

// Each page is asked for with the context of the page before.
func TestAChainOfRequestsKeepsNoResponseAlive(t *testing.T) {
	for name, statuses := range map[string][]int{"at once": {200}, "retried": {503, 200}, "redirected": {302}} {
		t.Run(name, func(t *testing.T) {
			forBoth(t, func(t *testing.T, build builder) {
				rt := build(playing(statuses...), noBudget())
				ctx := context.Background()
				var pages []weak.Pointer[http.Response]
				for range 50 {
					req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://host.example/", nil)
					require.NoError(t, err)
					resp, err := rt.RoundTrip(req)
					require.NoError(t, err)
					ctx = resp.Request.Context()
					pages = append(pages, weak.Make(resp))
				}
				runtime.GC()
				alive := 0
				for _, page := range pages {
					if page.Value() != nil {
						alive++
					}
				}
				assert.LessOrEqual(t, alive, 2)
				runtime.KeepAlive(ctx)
			})
		})
	}
}

func noBudget() retryhttp.Policy {
	policy := atOnce
	policy.Budget = retryhttp.Unlimited{}
	return policy
}

// An edit that asks for the default gets the budget that all the others draw on.
func TestThereIsOneBudget(t *testing.T) {
	forBoth(t, func(t *testing.T, build builder) {
		attempts := 0
		rt := build(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			attempts++
			return &http.Response{StatusCode: 503, Body: http.NoBody, Request: req}, nil
		}), atOnce)
		edited := retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) { p.Budget = nil })
		for range 3 {
			for _, ctx := range []context.Context{t.Context(), edited} {
				_, err := send(t, ctx, rt, "GET", "http://host.example/")
				require.NoError(t, err)
			}
		}
		assert.Equal(t, 6+5, attempts, "requests and a Burst")
	})
}

func TestOnDoneIsToldOfTheCallersRequest(t *testing.T) {
	forBoth(t, func(t *testing.T, build builder) {
		for _, statuses := range [][]int{{200}, {503, 200}} {
			var told []*http.Request
			policy := atOnce
			policy.OnDone = func(req *http.Request, _ retryhttp.Outcome) { told = append(told, req) }
			req, err := http.NewRequest(http.MethodGet, "http://host.example/", nil)
			require.NoError(t, err)
			_, err = build(playing(statuses...), policy).RoundTrip(req)
			require.NoError(t, err)
			require.Len(t, told, 1)
			assert.Same(t, req, told[0])
		}
	})
}

func TestTheResponsesRequestIsTheCallers(t *testing.T) {
	forBoth(t, func(t *testing.T, build builder) {
		for _, status := range []int{200, 201, 300, 304, 305, 306, 404, 400} {
			req, err := http.NewRequest(http.MethodGet, "http://host.example/", nil)
			require.NoError(t, err)
			resp, err := build(playing(status), atOnce).RoundTrip(req)
			require.NoError(t, err)
			assert.Same(t, req, resp.Request, status)
		}
	})
}
