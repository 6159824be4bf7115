package otelretry_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

const poem = "to be, or not to be, that is the question"

// serving is a base that serves the poem, in whole or in part.
func serving(req *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	w.Header().Set("ETag", `"v1"`)
	http.ServeContent(w, req, "", time.Time{}, strings.NewReader(poem))
	resp := w.Result()
	resp.Request = req
	return resp, nil
}

// breaking is a base whose first bodies break off, each after a number of bytes.
func breaking(after ...int64) roundTripperFunc {
	return func(req *http.Request) (*http.Response, error) {
		resp, err := serving(req)
		if len(after) > 0 {
			broken := io.MultiReader(io.LimitReader(resp.Body, after[0]), iotest.ErrReader(io.ErrUnexpectedEOF))
			resp.Body, after = io.NopCloser(broken), after[1:]
		}
		return resp, err
	}
}

// failingFirst is a base that answers the first request with status, and all others as next does.
func failingFirst(status int, next http.RoundTripper) roundTripperFunc {
	first := true
	return func(req *http.Request) (*http.Response, error) {
		if !first {
			return next.RoundTrip(req)
		}
		first = false
		header := http.Header{"Location": {"/next"}}
		return &http.Response{StatusCode: status, Header: header, Body: http.NoBody, Request: req}, nil
	}
}

func resuming() retryhttp.Policy {
	policy := noBudget()
	policy.Resume = true
	return policy
}

func read(t *testing.T, ctx context.Context, rt http.RoundTripper) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, shop, nil)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: rt}).Do(req)
	require.NoError(t, err)
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, resp.Body.Close())
	return string(got), err
}

func statuses(spans []tracetest.SpanStub) []sdktrace.Status {
	var all []sdktrace.Status
	for _, s := range spans {
		all = append(all, s.Status)
	}
	return all
}

var (
	failed    = sdktrace.Status{Code: codes.Error} // by a status, which says it all
	brokenOff = sdktrace.Status{Code: codes.Error, Description: "unexpected EOF"}
)

func TestResumptionsAreResends(t *testing.T) {
	for name, tt := range map[string]struct {
		base  http.RoundTripper
		spans []sdktrace.Status
	}{
		"of a first attempt": {breaking(5, 0, 7), []sdktrace.Status{brokenOff, brokenOff, brokenOff, {}}},
		"after a retry":      {failingFirst(503, breaking(5, 7)), []sdktrace.Status{failed, brokenOff, brokenOff, {}}},
		"after a redirect":   {failingFirst(302, breaking(5, 7)), []sdktrace.Status{{}, brokenOff, brokenOff, {}}},
		"that are retried":   {breakingThenFailing(), []sdktrace.Status{brokenOff, failed, brokenOff, {}}},
	} {
		t.Run(name, func(t *testing.T) {
			tel := newTelemetry()
			rt := otelretry.New(tt.base, resuming(), tel.options()...)
			caller := tel.inSpan(t, func(ctx context.Context) {
				got, err := read(t, ctx, rt)
				require.NoError(t, err)
				assert.Equal(t, poem, got)
			})
			spans := tel.named("HTTP GET")
			assert.Equal(t, []int64{-1, 1, 2, 3}, resends(spans))
			assert.Equal(t, tt.spans, statuses(spans))
			for _, s := range spans {
				assert.Equal(t, caller.SpanContext.SpanID(), s.Parent.SpanID())
			}
			requireLinked(t, spans)
			assert.Equal(t, caller.SpanContext.TraceID(), spans[3].SpanContext.TraceID())
		})
	}
}

// breakingThenFailing breaks off, answers the resumption with a 503, and breaks off again.
func breakingThenFailing() roundTripperFunc {
	n, broken := 0, breaking(5, 7)
	return func(req *http.Request) (*http.Response, error) {
		if n++; n == 2 {
			return &http.Response{StatusCode: 503, Body: http.NoBody, Request: req}, nil
		}
		return broken(req)
	}
}

func TestResumptionsOutsideOfASpanAreOfOneTrace(t *testing.T) {
	tel := newTelemetry()
	got, err := read(t, t.Context(), otelretry.New(breaking(5, 7), resuming(), tel.options()...))
	require.NoError(t, err)
	assert.Equal(t, poem, got)
	spans := tel.named("HTTP GET")
	require.Len(t, spans, 3)
	assert.False(t, spans[0].Parent.IsValid())
	for _, s := range spans[1:] {
		assert.Equal(t, spans[0].SpanContext.SpanID(), s.Parent.SpanID())
	}
	requireLinked(t, spans)
}

func TestAFilteredResumptionLeavesTheCallersSpanAlone(t *testing.T) {
	tel := newTelemetry()
	filter := otelhttp.WithFilter(func(*http.Request) bool { return false })
	caller := tel.inSpan(t, func(ctx context.Context) {
		got, err := read(t, ctx, otelretry.New(breaking(5, 7), resuming(), tel.options(filter)...))
		require.NoError(t, err)
		assert.Equal(t, poem, got)
	})
	assert.Empty(t, tel.named("HTTP GET"))
	assert.Empty(t, caller.Attributes)
	assert.Empty(t, caller.Links)
	assert.Equal(t, sdktrace.Status{}, caller.Status)
}

// The response of a request with retries has a context of its own, and others may use it.
func TestABodyIsResumedWhileOthersUseItsRequest(t *testing.T) {
	tel := newTelemetry()
	rt := otelretry.New(failingFirst(503, breaking(5, 5, 5)), resuming(), tel.options()...)
	side := otelretry.New(roundTripperFunc(serving), resuming(), tel.options()...)
	resp, err := rt.RoundTrip(asked(t))
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			req, err := http.NewRequestWithContext(resp.Request.Context(), http.MethodGet, shop, nil)
			if !assert.NoError(t, err) {
				return
			}
			req.Response = resp
			got, err := side.RoundTrip(req)
			if assert.NoError(t, err) {
				assert.NoError(t, got.Body.Close())
			}
		})
	}
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, poem, string(got))
	wg.Wait()
	counts := resends(tel.named("HTTP GET"))
	slices.Sort(counts)
	// One of the four follows a redirect. It counts as following attempt 2.
	assert.Equal(t, []int64{-1, -1, -1, -1, 1, 2, 2, 3, 4}, counts)
}

func TestTheSpanOfABodyThatBreaksOffWhileItIsBufferedEndsInError(t *testing.T) {
	tel := newTelemetry()
	policy := noBudget()
	policy.BufferBytes = 1 << 10
	got, err := read(t, t.Context(), otelretry.New(breaking(5, 0), policy, tel.options()...))
	require.NoError(t, err)
	assert.Equal(t, poem, got)
	spans := tel.named("HTTP GET")
	assert.Equal(t, []sdktrace.Status{brokenOff, brokenOff, {}}, statuses(spans))
	assert.Equal(t, []int64{-1, 1, 2}, resends(spans))
	attempts := tel.metric(t, "retryhttp.client.call.attempts").Data.(metricdata.Histogram[int64]).DataPoints
	require.Len(t, attempts, 1)
	assert.EqualValues(t, 3, attempts[0].Sum)
	assert.Nil(t, tel.metric(t, "retryhttp.client.body.resumptions").Data)
}

// A stall cancels the attempt and closes its body. Both end the Read, and the span.
func TestTheSpanOfABodyThatStallsEndsInTheStall(t *testing.T) {
	const rounds = 10
	stalled := sdktrace.Status{Code: codes.Error, Description: "the response body stalled for 20ms"}
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", "100")
				w.WriteHeader(http.StatusOK)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}))
			server.EnableHTTP2 = http2
			server.StartTLS()
			defer server.Close()
			tel := newTelemetry()
			policy := retryhttp.Policy{StallTimeout: 20 * time.Millisecond}
			rt := otelretry.New(server.Client().Transport, policy, tel.options()...)
			for range rounds {
				req, err := http.NewRequest(http.MethodGet, server.URL, nil)
				require.NoError(t, err)
				resp, err := rt.RoundTrip(req)
				require.NoError(t, err)
				assert.Equal(t, http2, resp.ProtoMajor == 2)
				_, err = io.ReadAll(resp.Body)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.NoError(t, resp.Body.Close())
			}
			// The stall's own goroutine may still be about to export the last span that it has ended.
			require.Eventually(t, func() bool { return len(tel.named("HTTP GET")) >= rounds }, 10*time.Second, time.Millisecond)
			spans := tel.named("HTTP GET")
			require.Len(t, spans, rounds)
			for _, s := range spans {
				assert.Equal(t, stalled, s.Status)
				assert.Contains(t, s.Attributes, errorOf("github.com/retryhttp/retryhttp.stallError"))
			}
		})
	}
}

// Nobody has stalled if the caller's deadline ends a request, or the caller has had enough.
func TestTheSpanOfABodyThatIsClosedEarlyIsNoError(t *testing.T) {
	for name, wait := range map[string]time.Duration{"early": 0, "after the deadline": 2 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				tel := newTelemetry()
				policy := resuming()
				policy.StallTimeout = time.Second
				resp, err := otelretry.New(breaking(5), policy, tel.options()...).RoundTrip(asked(t).WithContext(ctx))
				require.NoError(t, err)
				_, err = io.ReadFull(resp.Body, make([]byte, 6)) // it has been resumed
				require.NoError(t, err)
				time.Sleep(wait)
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, []sdktrace.Status{brokenOff, {}}, statuses(tel.named("HTTP GET")))
			})
		})
	}
}

func TestTheSpanOfAResumptionThatIsClosedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		broken := breaking(5)
		rt := otelretry.New(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			if retryhttp.AttemptOf(req.Context()).Number > 1 {
				<-req.Context().Done()
				return nil, req.Context().Err()
			}
			return broken(req)
		}), resuming(), tel.options()...)
		resp, err := rt.RoundTrip(asked(t))
		require.NoError(t, err)
		go func() {
			time.Sleep(time.Minute)
			assert.NoError(t, resp.Body.Close())
		}()
		got, err := io.ReadAll(resp.Body)
		assert.Equal(t, poem[:5], string(got))
		require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
		spans := tel.named("HTTP GET")
		assert.Equal(t, []sdktrace.Status{brokenOff, {Code: codes.Error, Description: "context canceled"}}, statuses(spans))
		assert.Contains(t, spans[1].Attributes, errorOf(canceledType))
		assert.Equal(t, []int64{-1, 1}, resends(spans))
	})
}

// The caller gets the same bytes and errors with and without telemetry.
func TestABodyThatIsNotResumedFailsInTheSameWay(t *testing.T) {
	forBoth(t, func(t *testing.T, build builder) {
		changed := breaking(5)
		got, err := read(t, t.Context(), build(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			resp, err := changed(req)
			if retryhttp.AttemptOf(req.Context()).Number > 1 {
				resp.Header.Set("ETag", `"v2"`)
			}
			return resp, err
		}), resuming()))
		assert.Equal(t, poem[:5], got)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		e, ok := errors.AsType[*retryhttp.Error](err)
		require.True(t, ok)
		assert.Equal(t, retryhttp.StopFinal, e.Stop)
		assert.Equal(t, 2, e.Attempts)
	})
}
