package otelretry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
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

// requireLinked requires that each span has a link to the previous span, and no other link.
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

// A span that came from another process has no tracer.
func TestAttemptsWithinARemoteSpanAreItsChildren(t *testing.T) {
	tel := newTelemetry()
	global := otel.GetTracerProvider()
	defer otel.SetTracerProvider(global)
	otel.SetTracerProvider(tel.tracers)
	remote := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, Remote: true,
	})
	for name, opts := range map[string][]otelretry.Option{
		"tracers of an option": tel.options(),
		"global tracers":       nil,
		"no option":            {nil, otelretry.WithHTTP(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			tel.spans.Reset()
			url, _ := answering(t, 503, 200)
			ctx := trace.ContextWithRemoteSpanContext(t.Context(), remote)
			_, err := send(t, ctx, otelretry.New(nil, atOnce, opts...), "GET", url)
			require.NoError(t, err)
			spans := tel.named("HTTP GET")
			require.Len(t, spans, 2)
			for _, s := range spans {
				assert.Equal(t, remote.SpanID(), s.Parent.SpanID())
			}
			requireLinked(t, spans)
		})
	}
}

func TestTheSpanOfAnAttemptThatPanicsEnds(t *testing.T) {
	tel := newTelemetry()
	base := roundTripperFunc(func(req *http.Request) (*http.Response, error) { panic(http.ErrAbortHandler) })
	rt := otelretry.New(base, atOnce, tel.options()...)
	assert.PanicsWithValue(t, http.ErrAbortHandler, func() {
		_, _ = send(t, t.Context(), rt, "GET", "http://host.example/")
	})
	assert.Len(t, tel.named("HTTP GET"), 1)

	filtered := otelretry.New(base, atOnce, tel.options(otelhttp.WithFilter(func(*http.Request) bool { return false }))...)
	ctx, span := tel.tracers.Tracer("test").Start(t.Context(), "caller")
	assert.PanicsWithValue(t, http.ErrAbortHandler, func() { _, _ = send(t, ctx, filtered, "GET", "http://host.example/") })
	assert.True(t, span.IsRecording(), "the caller's span goes on")
	span.End()
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

// net/http's errors quote header lines and URLs, and otelhttp would hand them on.
func TestSpanErrorsQuoteNothing(t *testing.T) {
	secret := errors.New(`net/http: HTTP/1.x transport connection broken: malformed MIME header line: "X-Token: secret"`)
	want := "net/http: HTTP/1.x transport connection broken: malformed MIME header line: ..."
	for name, answer := range map[string]func() (*http.Response, error){
		"no response": func() (*http.Response, error) { return nil, secret },
		"body": func() (*http.Response, error) {
			body := io.NopCloser(io.MultiReader(strings.NewReader("x"), iotest.ErrReader(secret)))
			return &http.Response{StatusCode: 200, Body: body}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			tel := newTelemetry()
			base := roundTripperFunc(func(*http.Request) (*http.Response, error) { return answer() })
			rt := otelretry.New(base, retryhttp.Policy{MaxAttempts: 1}, tel.options()...)
			req, err := http.NewRequest(http.MethodGet, "http://host.example/", nil)
			require.NoError(t, err)
			resp, err := rt.RoundTrip(req)
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				require.NoError(t, resp.Body.Close())
			}
			require.ErrorIs(t, err, secret, "the caller gets the error itself")
			spans := tel.named("HTTP GET")
			require.Len(t, spans, 1)
			assert.Equal(t, sdktrace.Status{Code: codes.Error, Description: want}, spans[0].Status)
			assert.Contains(t, spans[0].Attributes, errorOf("errors.errorString"))
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

// If otelhttp makes no span, the current span is the caller's.
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
	_, err := send(t, t.Context(), rt, "GET", url) // the same without a caller's span
	require.NoError(t, err)
}

func TestAResendAfterAFilteredOneIsLinkedToTheLastSpan(t *testing.T) {
	tel := newTelemetry()
	next := map[string]string{"/1": "/2", "/2": "/health", "/health": "/4"}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to := next[r.URL.Path]; to != "" {
			http.Redirect(w, r, to, http.StatusFound)
		}
	}))
	defer server.Close()
	filter := otelhttp.WithFilter(func(r *http.Request) bool { return r.URL.Path != "/health" })
	rt := otelretry.New(nil, atOnce, tel.options(filter)...)
	get := func(ctx context.Context) {
		_, err := send(t, ctx, rt, "GET", server.URL+"/1")
		require.NoError(t, err)
	}
	for name, made := range map[string]func(){
		"within a span":  func() { tel.inSpan(t, get) },
		"outside of one": func() { get(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			tel.spans.Reset()
			made()
			spans := tel.named("HTTP GET")
			assert.Equal(t, []int64{-1, 1, 3}, resends(spans))
			requireLinked(t, spans)
		})
	}
}

func TestAFilteredAttemptMayFail(t *testing.T) {
	for _, tt := range []struct {
		fails error
		want  string
	}{{nil, "neither a response nor an error"}, {errors.New("broken"), "broken"}} {
		base := roundTripperFunc(func(*http.Request) (*http.Response, error) { return nil, tt.fails })
		rt := otelretry.New(base, atOnce, otelretry.WithHTTP(otelhttp.WithFilter(func(*http.Request) bool { return false })))
		_, err := send(t, t.Context(), rt, "GET", "http://host.example/")
		assert.ErrorContains(t, err, tt.want)
	}
}

func TestATransportThatWasNotMadeByNewFailsClearly(t *testing.T) {
	for _, rt := range []*otelretry.Transport{nil, {}} {
		_, err := send(t, t.Context(), rt, "GET", "http://host.example/")
		assert.ErrorContains(t, err, "not made by New")
	}
}

// A RoundTripper below asks for a token, with the context of the retry that needs the token.
func TestARequestOnTheWayOfARetryIsNoResendItself(t *testing.T) {
	tel := newTelemetry()
	url, _ := answering(t, 503, 200)
	tokens, _ := answering(t, 200)
	name := otelhttp.WithSpanNameFormatter(func(string, *http.Request) string { return "token" })
	side := otelretry.New(nil, atOnce, tel.options(name)...)
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

// If the sampler drops the first attempt, it drops the others too.
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

// otelhttp hides that the body is net/http's own, which may be closed while it is read.
func TestFailedResponseThatStallsFreesItsConnection(t *testing.T) {
	freed := make(chan struct{})
	first := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !first {
			return
		}
		first = false
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(freed)
	}))
	defer server.Close()
	rt := otelretry.New(nil, retryhttp.Policy{Backoff: retryhttp.Constant(0)}, newTelemetry().options()...)
	defer rt.CloseIdleConnections()
	req, err := http.NewRequest(http.MethodGet, server.URL, nil)
	require.NoError(t, err)
	resp, err := rt.RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, 200, resp.StatusCode)
	select {
	case <-freed:
	case <-time.After(20 * time.Second):
		t.Error("the connection is still held")
		server.CloseClientConnections() // or Close would wait for ever
	}
}

// brokenConn is a connection whose errors quote secrets.
type brokenConn struct{ err error }

func (c brokenConn) Read([]byte) (int, error)  { return 0, c.err }
func (c brokenConn) Write([]byte) (int, error) { return 0, c.err }
func (c brokenConn) Close() error              { return nil }

func TestSpanErrorsOfAConnectionQuoteNothing(t *testing.T) {
	secret := errors.New(`Get "http://user:hunter2@host.example/?token=sesame": broken`)
	for _, status := range []int{101, 200} {
		for name, use := range map[string]func(io.ReadWriter) (int, error){
			"read":  func(c io.ReadWriter) (int, error) { return c.Read(make([]byte, 1)) },
			"write": func(c io.ReadWriter) (int, error) { return c.Write(make([]byte, 1)) },
		} {
			t.Run(fmt.Sprint(status, " ", name), func(t *testing.T) {
				tel := newTelemetry()
				rt := otelretry.New(roundTripperFunc(func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: status, Body: brokenConn{secret}}, nil
				}), retryhttp.Policy{}, tel.options()...)
				req, err := http.NewRequest(http.MethodGet, "http://host.example/", nil)
				require.NoError(t, err)
				resp, err := rt.RoundTrip(req)
				require.NoError(t, err)
				require.Implements(t, (*io.ReadWriter)(nil), resp.Body)
				_, err = use(resp.Body.(io.ReadWriter))
				require.Equal(t, secret, err)
				require.NoError(t, resp.Body.Close())
				spans := tel.named("HTTP GET")
				require.Len(t, spans, 1)
				assert.Equal(t, `Get "http://host.example/": broken`, spans[0].Status.Description)
			})
		}
	}
}
