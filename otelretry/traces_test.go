package otelretry_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

func TestAttemptsWithinASpanAreItsChildren(t *testing.T) {
	tel := newTelemetry()
	url, traceparents := answering(t, 503, 503, 200)
	caller := tel.inSpan(t, func(ctx context.Context) {
		resp, err := send(t, ctx, otelretry.New(nil, atOnce, tel.options()...), "GET", url)
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, 3, retryhttp.OutcomeOf(resp).Attempts)
	})
	spans := tel.named("HTTP GET")
	require.Len(t, spans, 3)
	assert.Equal(t, []int64{-1, 1, 2}, resends(spans))
	var sent []string
	for _, s := range spans {
		assert.Equal(t, trace.SpanKindClient, s.SpanKind)
		assert.Equal(t, caller.SpanContext.SpanID(), s.Parent.SpanID())
		assert.Equal(t, caller.SpanContext.TraceID(), s.SpanContext.TraceID())
		sent = append(sent, fmt.Sprintf("00-%s-%s-01", s.SpanContext.TraceID(), s.SpanContext.SpanID()))
	}
	assert.Equal(t, sent, traceparents(), "each attempt is told of its own span")
	requireLinked(t, spans)
	assert.Empty(t, caller.Attributes, "the caller's span is left alone")
}

// requireLinked says that each span has a link to the one before, and no other.
func requireLinked(t *testing.T, spans []tracetest.SpanStub) {
	t.Helper()
	for i, s := range spans {
		if i == 0 {
			assert.Empty(t, s.Links)
			continue
		}
		require.Len(t, s.Links, 1)
		assert.Equal(t, spans[i-1].SpanContext.SpanID(), s.Links[0].SpanContext.SpanID())
	}
}

func TestAttemptsOutsideOfASpanAreOneTrace(t *testing.T) {
	tel := newTelemetry()
	global := otel.GetTracerProvider()
	defer otel.SetTracerProvider(global)
	otel.SetTracerProvider(tel.tracers)
	for name, opts := range map[string][]otelretry.Option{
		"tracers of an option": tel.options(),
		"global tracers":       nil,
	} {
		t.Run(name, func(t *testing.T) {
			tel.spans.Reset()
			url, _ := answering(t, 503, 503, 200)
			_, err := send(t, t.Context(), otelretry.New(nil, atOnce, opts...), "GET", url)
			require.NoError(t, err)
			spans := tel.named("HTTP GET")
			require.Len(t, spans, 3)
			assert.False(t, spans[0].Parent.IsValid())
			for _, s := range spans[1:] {
				assert.Equal(t, spans[0].SpanContext.SpanID(), s.Parent.SpanID())
				assert.Equal(t, spans[0].SpanContext.TraceID(), s.SpanContext.TraceID())
			}
			requireLinked(t, spans)
		})
	}
}

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

func TestAttemptsThatFailHaveSpansToo(t *testing.T) {
	for name, policy := range map[string]retryhttp.Policy{
		"plain":        {Backoff: retryhttp.Constant(0), MaxAttempts: 3},
		"with a limit": {Backoff: retryhttp.Constant(0), MaxAttempts: 3, AttemptTimeout: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			tel := newTelemetry()
			broken := errors.New("broken")
			base := roundTripperFunc(func(*http.Request) (*http.Response, error) { return nil, broken })
			_, err := send(t, t.Context(), otelretry.New(base, policy, tel.options()...), "GET", "http://host.example/")
			require.ErrorIs(t, err, broken)
			var e *retryhttp.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, retryhttp.StopAttempts, e.Stop)
			spans := tel.named("HTTP GET")
			require.Len(t, spans, 3)
			assert.Equal(t, []int64{-1, 1, 2}, resends(spans))
			requireLinked(t, spans)
		})
	}
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestARequestThatIsNotRepeatedIsNoResend(t *testing.T) {
	tel := newTelemetry()
	url, _ := answering(t, 503)
	resp, err := send(t, t.Context(), otelretry.New(nil, atOnce, tel.options()...), "POST", url)
	require.NoError(t, err)
	assert.Equal(t, 503, resp.StatusCode)
	assert.Equal(t, []int64{-1}, resends(tel.named("HTTP POST")))
}

// Where otelhttp is told to make no span, the one that is found is the caller's.
func TestAFilteredRequestLeavesTheCallersSpanAlone(t *testing.T) {
	tel := newTelemetry()
	url, _ := answering(t, 503, 200)
	rt := otelretry.New(nil, atOnce, tel.options(otelhttp.WithFilter(func(*http.Request) bool { return false }))...)
	caller := tel.inSpan(t, func(ctx context.Context) {
		_, err := send(t, ctx, rt, "GET", url)
		require.NoError(t, err)
	})
	assert.Empty(t, tel.named("HTTP GET"))
	assert.Empty(t, caller.Attributes)
	assert.Empty(t, caller.Links)
	_, err := send(t, t.Context(), rt, "GET", url) // and where there is none either
	require.NoError(t, err)
}

// Something beneath asks for a token, with the context of the retry it is for.
func TestARequestOnTheWayOfARetryIsNoResendItself(t *testing.T) {
	tel := newTelemetry()
	url, _ := answering(t, 503, 200)
	tokens, _ := answering(t, 200)
	side := otelretry.New(nil, atOnce, tel.options(otelhttp.WithSpanNameFormatter(func(string, *http.Request) string { return "token" }))...)
	base := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		_, err := send(t, req.Context(), side, "GET", tokens)
		require.NoError(t, err)
		return http.DefaultTransport.RoundTrip(req)
	})
	_, err := send(t, t.Context(), otelretry.New(base, atOnce, tel.options()...), "GET", url)
	require.NoError(t, err)
	assert.Equal(t, []int64{-1, 1}, resends(tel.named("HTTP GET")))
	requests := tel.named("token")
	assert.Equal(t, []int64{-1, -1}, resends(requests))
	for i, s := range requests {
		assert.Equal(t, tel.named("HTTP GET")[i].SpanContext.SpanID(), s.Parent.SpanID())
		assert.Empty(t, s.Links)
	}
}

// Where the sampler drops the first attempt it drops the others too.
func TestATraceIsSampledAsAWhole(t *testing.T) {
	tel := newTelemetry()
	tel.tracers = sdktrace.NewTracerProvider(sdktrace.WithSyncer(tel.spans),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	url, traceparents := answering(t, 503, 200)
	_, err := send(t, t.Context(), otelretry.New(nil, atOnce, tel.options()...), "GET", url)
	require.NoError(t, err)
	assert.Empty(t, tel.spans.GetSpans())
	sent := traceparents()
	require.Len(t, sent, 2)
	assert.Equal(t, sent[0][:len("00-")+32], sent[1][:len("00-")+32], "one trace")
	assert.Regexp(t, "-00$", sent[1])
}
