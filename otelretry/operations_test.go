package otelretry_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/retryhttp/retryhttp/otelretry"
)

func TestTwoRequestsAreTwoOperations(t *testing.T) {
	tel := newTelemetry()
	url, _ := answering(t, 503, 200)
	rt := otelretry.New(nil, atOnce, tel.options()...)
	first, err := send(t, t.Context(), rt, "GET", url)
	require.NoError(t, err)
	_, err = send(t, first.Request.Context(), rt, "GET", url) // as for the next page
	require.NoError(t, err)
	spans := tel.named("HTTP GET")
	require.Len(t, spans, 3)
	assert.Equal(t, []int64{-1, 1, -1}, resends(spans))
	assert.NotEqual(t, spans[0].SpanContext.TraceID(), spans[2].SpanContext.TraceID())
	assert.Empty(t, spans[2].Links)
}

func TestRedirectsAreResends(t *testing.T) {
	for name, statuses := range map[string][]int{
		"at once":              {302, 200},
		"after a retry":        {503, 307, 200},
		"with a retry after":   {302, 503, 200},
		"twice, with retries":  {503, 308, 503, 301, 503, 200},
		"and then they failed": {302, 404},
	} {
		t.Run(name, func(t *testing.T) {
			tel := newTelemetry()
			n := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n++
				w.Header().Set("Location", "/next")
				w.WriteHeader(statuses[n-1])
			}))
			defer server.Close()
			_, err := send(t, t.Context(), otelretry.New(nil, atOnce, tel.options()...), "GET", server.URL)
			require.NoError(t, err)
			spans := tel.named("HTTP GET")
			require.Len(t, spans, len(statuses))
			want := []int64{-1}
			for i := range statuses[1:] {
				want = append(want, int64(i+1))
			}
			assert.Equal(t, want, resends(spans))
			requireLinked(t, spans)
			for _, s := range spans {
				assert.Equal(t, spans[0].SpanContext.TraceID(), s.SpanContext.TraceID())
			}
		})
	}
}

func TestEachKindOfRedirectIsAResend(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		tel := newTelemetry()
		server := redirecting(status)
		_, err := send(t, t.Context(), otelretry.New(nil, atOnce, tel.options()...), "GET", server.URL)
		server.Close()
		require.NoError(t, err)
		assert.Equal(t, []int64{-1, 1}, resends(tel.named("HTTP GET")), status)
	}
}

// redirecting is a server that has its clients go on once.
func redirecting(status int) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/next", status)
		}
	}))
}

func TestARequestThatIsMadeOfARedirectedOneIsNoResend(t *testing.T) {
	tel := newTelemetry()
	server := redirecting(302)
	defer server.Close()
	var sent *http.Request
	base := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		sent = req
		return http.DefaultTransport.RoundTrip(req)
	})
	client := &http.Client{Transport: otelretry.New(base, atOnce, tel.options()...)}
	resp, err := client.Get(server.URL)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	for range 2 {
		resp, err = client.Do(resp.Request)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	assert.Equal(t, []int64{-1, 1, -1, -1}, resends(tel.named("HTTP GET")))
	// The second is from no Transport, and the third from a request that has not redirected.
	for _, elsewhere := range []*http.Response{{}, {Request: asked(t)}, {Request: sent}} {
		byHand := resp.Request.Clone(t.Context())
		byHand.Response = elsewhere
		resp, err = client.Do(byHand)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	assert.Equal(t, []int64{-1, 1, -1, -1, -1, -1, -1}, resends(tel.named("HTTP GET")))
}

// A caller may add values to the context of a redirect that was not followed.
func TestARequestKeepsWhatItsContextHasBesideThatOfAnother(t *testing.T) {
	type key struct{}
	var got any
	base := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		got = req.Context().Value(key{})
		return &http.Response{StatusCode: 302, Body: http.NoBody, Request: req}, nil
	})
	rt := otelretry.New(base, atOnce, newTelemetry().options()...)
	resp, err := rt.RoundTrip(asked(t))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	next, err := rt.RoundTrip(asked(t).WithContext(context.WithValue(resp.Request.Context(), key{}, "value")))
	require.NoError(t, err)
	require.NoError(t, next.Body.Close())
	assert.Equal(t, "value", got)
}

// A RoundTripper between copies the response, for example to wrap its body.
func TestACopyOfAResponseRedirectsAsItDoes(t *testing.T) {
	tel := newTelemetry()
	statuses := []int{503, 302, 200}
	rt := otelretry.New(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		status := statuses[0]
		statuses = statuses[1:]
		return &http.Response{
			StatusCode: status, Header: http.Header{"Location": {"/next"}}, Body: http.NoBody, Request: req,
		}, nil
	}), atOnce, tel.options()...)
	_, err := send(t, t.Context(), roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		resp, err := rt.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		copied := *resp
		return &copied, nil
	}), "GET", "http://host.example/")
	require.NoError(t, err)
	spans := tel.named("HTTP GET")
	assert.Equal(t, []int64{-1, 1, 2}, resends(spans))
	requireLinked(t, spans)
}

// The context of a redirect that was not followed is used for another request. It gets there
// through a RoundTripper that replaces Response.Request, as a cache does.
func TestARedirectIsFollowedByItsOwnRequestOnly(t *testing.T) {
	tel := newTelemetry()
	server := redirecting(302)
	defer server.Close()
	rt := otelretry.New(nil, atOnce, tel.options()...)
	resp, err := (&http.Client{Transport: rt, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}).Get(server.URL)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	_, err = send(t, resp.Request.Context(), roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		resp, err := rt.RoundTrip(req)
		if err == nil {
			resp.Request = req
		}
		return resp, err
	}), "GET", server.URL)
	require.NoError(t, err)
	spans := tel.named("HTTP GET")
	assert.Equal(t, []int64{-1, -1, -1}, resends(spans))
	for _, s := range spans {
		assert.Empty(t, s.Links)
	}
}

func TestSeveralWhoFollowARedirectAtOnceMakeOneResend(t *testing.T) {
	tel := newTelemetry()
	server := redirecting(302)
	defer server.Close()
	rt := otelretry.New(nil, atOnce, tel.options()...)
	byHand := &http.Client{Transport: rt, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	resp, err := byHand.Get(server.URL)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			req, err := http.NewRequestWithContext(resp.Request.Context(), http.MethodGet, server.URL+"/next", nil)
			if !assert.NoError(t, err) {
				return
			}
			req.Response = resp
			got, err := rt.RoundTrip(req)
			if assert.NoError(t, err) {
				assert.NoError(t, got.Body.Close())
			}
		})
	}
	wg.Wait()
	counts := resends(tel.named("HTTP GET"))
	slices.Sort(counts)
	assert.Equal(t, []int64{-1, -1, -1, -1, -1, -1, -1, -1, 1}, counts)
}

func TestOneRequestMayBeSentBySeveralAtOnce(t *testing.T) {
	tel := newTelemetry()
	var n atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch n := n.Add(1); {
		case n%5 == 0:
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/" && n%2 == 0:
			http.Redirect(w, r, "/next", http.StatusFound)
		}
	}))
	defer server.Close()
	policy := noBudget()
	policy.AttemptTimeout = time.Minute
	client := &http.Client{Transport: otelretry.New(nil, policy, tel.options()...), Timeout: time.Minute}
	req, err := http.NewRequest(http.MethodGet, server.URL, nil)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 30 {
				resp, err := client.Do(req)
				if assert.NoError(t, err) {
					assert.NoError(t, resp.Body.Close())
				}
			}
		})
	}
	wg.Wait()
	traces := make(map[trace.TraceID]bool)
	for _, s := range tel.named("HTTP GET") {
		traces[s.SpanContext.TraceID()] = true
	}
	assert.Len(t, traces, 8*30)
}
