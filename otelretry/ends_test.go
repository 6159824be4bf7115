package otelretry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

func errorOf(name string) attribute.KeyValue { return attribute.String("error.type", name) }

// failing is a base whose attempts all end in one error.
func failing(err error) roundTripperFunc {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

func TestStopsTellHowRequestsEnded(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	buffering := atOnce
	buffering.BufferBytes = 1 << 10
	broken := func(*http.Request) (*http.Response, error) {
		body := io.NopCloser(io.MultiReader(strings.NewReader("x"), iotest.ErrReader(io.ErrUnexpectedEOF)))
		return &http.Response{StatusCode: 200, Body: body}, nil
	}
	for name, tt := range map[string]struct {
		method string
		policy retryhttp.Policy
		base   http.RoundTripper
		want   []attribute.KeyValue
	}{
		"a success":             {"GET", atOnce, playing(200), []attribute.KeyValue{stop("final"), status(200)}},
		"a refusal":             {"GET", atOnce, playing(404), []attribute.KeyValue{stop("final"), status(404), errorOf("404")}},
		"a success in the end":  {"GET", atOnce, playing(503, 200), []attribute.KeyValue{stop("final"), status(200)}},
		"the last response":     {"GET", atOnce, playing(503), []attribute.KeyValue{stop("attempts"), status(503), errorOf("503")}},
		"an error":              {"GET", atOnce, failing(refused), []attribute.KeyValue{stop("attempts"), errorOf("net.OpError")}},
		"an error of no retry":  {"GET", atOnce, failing(retryhttp.Permanent(refused)), []attribute.KeyValue{stop("final"), errorOf("github.com/retryhttp/retryhttp.permanentError")}},
		"a body that broke off": {"GET", buffering, roundTripperFunc(broken), []attribute.KeyValue{stop("attempts"), errorOf("errors.errorString")}},
		"a write that failed":   {"PUT", atOnce, failing(io.ErrUnexpectedEOF), []attribute.KeyValue{stop("attempts"), errorOf("errors.errorString"), ambiguous, repeated}},
		"an echo of a write":    {"DELETE", atOnce, playing(503, 404), []attribute.KeyValue{stop("final"), status(404), errorOf("404"), ambiguous, repeated}},
		"one write that failed": {"POST", atOnce, failing(io.ErrUnexpectedEOF), []attribute.KeyValue{stop("not-idempotent"), errorOf("errors.errorString"), ambiguous}},
		"a write that was done": {"PUT", atOnce, playing(200), []attribute.KeyValue{stop("final"), status(200)}},
	} {
		t.Run(name, func(t *testing.T) {
			tel := newTelemetry()
			req := asked(t)
			req.Method = tt.method
			resp, err := otelretry.New(tt.base, tt.policy, tel.options()...).RoundTrip(req)
			if err == nil {
				_ = resp.Body.Close()
			}
			assert.Equal(t, []metricdata.DataPoint[int64]{
				{Attributes: call(t, tt.method, shop, tt.want...), Value: 1},
			}, withoutTimes(tel.metric(t, "retryhttp.client.call.stops")))
		})
	}
}

// canceledType is one name for whatever a base returns when its caller cancels.
const canceledType = "github.com/retryhttp/retryhttp/otelretry.canceledError"

func TestARequestThatWasNotSentHasTheErrorOfItsContext(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	for want, ctx := range map[string]context.Context{
		canceledType:                    canceled,
		"context.deadlineExceededError": late,
	} {
		tel := newTelemetry()
		_, err := send(t, ctx, otelretry.New(playing(200), atOnce, tel.options()...), "GET", shop)
		require.Error(t, err)
		assert.Equal(t, []metricdata.DataPoint[int64]{
			{Attributes: call(t, "GET", shop, stop("canceled"), errorOf(want)), Value: 1},
		}, withoutTimes(tel.metric(t, "retryhttp.client.call.stops")))
	}
}

// unnoticed is a context whose deadline has passed, and that has not ended yet.
type unnoticed struct{ context.Context }

func (unnoticed) Deadline() (time.Time, bool) { return time.Unix(1, 0), true }

// Only the second of these is a failure.
func TestACancellationIsToldFromADeadlineBesideAResponse(t *testing.T) {
	tel := newTelemetry()
	policy := atOnce
	canceled, cancel := context.WithCancel(t.Context())
	defer cancel()
	policy.Classify = func(retryhttp.Attempt) retryhttp.Class {
		cancel()
		return retryhttp.Retryable
	}
	rt := otelretry.New(playing(503), policy, tel.options()...)
	for _, ctx := range []context.Context{canceled, unnoticed{t.Context()}} {
		resp, err := send(t, ctx, rt, "GET", shop)
		require.NoError(t, err)
		assert.Equal(t, 503, resp.StatusCode)
	}
	assert.ElementsMatch(t, []metricdata.DataPoint[int64]{
		{Attributes: call(t, "GET", shop, stop("canceled"), errorOf(canceledType)), Value: 1},
		{Attributes: call(t, "GET", shop, stop("canceled"), errorOf("context.deadlineExceededError")), Value: 1},
	}, withoutTimes(tel.metric(t, "retryhttp.client.call.stops")))
}

func TestACanceledAttemptHasOneErrorType(t *testing.T) {
	tel := newTelemetry()
	ctx, cancel := context.WithCancel(t.Context())
	base := roundTripperFunc(func(*http.Request) (*http.Response, error) {
		cancel()
		return nil, errors.New("stream closed")
	})
	_, err := send(t, ctx, otelretry.New(base, atOnce, tel.options()...), "GET", shop)
	require.ErrorContains(t, err, "stream closed")
	assert.Equal(t, []string{canceledType}, tel.errorTypes(t))
	assert.Contains(t, tel.named("HTTP GET")[0].Attributes, errorOf(canceledType))
	assert.Equal(t, []metricdata.DataPoint[int64]{
		{Attributes: call(t, "GET", shop, stop("canceled"), errorOf(canceledType)), Value: 1},
	}, withoutTimes(tel.metric(t, "retryhttp.client.call.stops")))
}

// An errgroup cancels with the error of another request, which may have timed out.
func TestACancellationIsNoDeadlineWhateverItsCause(t *testing.T) {
	tel := newTelemetry()
	ctx, cancel := context.WithCancelCause(t.Context())
	base := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		cancel(fmt.Errorf("another request: %w", context.DeadlineExceeded))
		return nil, context.Cause(req.Context())
	})
	_, err := otelretry.New(base, atOnce, tel.options()...).RoundTrip(asked(t).WithContext(ctx))
	require.Error(t, err)
	assert.Equal(t, []string{canceledType}, tel.errorTypes(t))
	assert.Contains(t, tel.named("HTTP GET")[0].Attributes, errorOf(canceledType))
}

// The base may return late.
func TestADeadlineThatPassesAfterACancellationIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		base := roundTripperFunc(func(*http.Request) (*http.Response, error) {
			cancel()
			time.Sleep(time.Minute)
			return nil, errors.New("stream closed")
		})
		_, err := otelretry.New(base, atOnce, tel.options()...).RoundTrip(asked(t).WithContext(ctx))
		require.Error(t, err)
		assert.Equal(t, []string{canceledType}, tel.errorTypes(t))
	})
}

// errorTypes returns the error.type of each point in the metric of attempts, which otelhttp
// records.
func (tel *telemetry) errorTypes(t *testing.T) []string {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, tel.reader.Collect(t.Context(), &all))
	var types []string
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != "http.client.request.duration" {
				continue
			}
			for _, p := range m.Data.(metricdata.Histogram[float64]).DataPoints {
				if value, ok := p.Attributes.Value("error.type"); ok {
					types = append(types, value.AsString())
				}
			}
		}
	}
	return types
}

// ownError says itself what type it has.
type ownError struct{ error }

func (ownError) ErrorType() string { return "own" }

func TestAnErrorHasOneNameInSpansAndMetrics(t *testing.T) {
	for want, err := range map[string]error{
		"net.OpError":                   &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
		"syscall.Errno":                 syscall.ECONNRESET,
		"errors.errorString":            errors.New("broken"),
		"context.deadlineExceededError": context.DeadlineExceeded,
		"fmt.wrapError":                 fmt.Errorf("wrapped: %w", io.EOF),
		"struct { error }":              struct{ error }{io.EOF},
		"github.com/retryhttp/retryhttp/otelretry_test.ownError": ownError{io.EOF},
	} {
		t.Run(want, func(t *testing.T) {
			tel := newTelemetry()
			policy := atOnce
			policy.MaxAttempts = 1
			_, failed := send(t, t.Context(), otelretry.New(failing(err), policy, tel.options()...), "GET", shop)
			require.ErrorIs(t, failed, err)
			spans := tel.named("HTTP GET")
			require.Len(t, spans, 1)
			assert.Contains(t, spans[0].Attributes, errorOf(want))
			assert.Equal(t, []string{want}, tel.errorTypes(t))
			assert.Equal(t, []metricdata.DataPoint[int64]{
				{Attributes: call(t, "GET", shop, stop("attempts"), errorOf(want)), Value: 1},
			}, withoutTimes(tel.metric(t, "retryhttp.client.call.stops")))
		})
	}
}

// A base that returns both has failed, and its response is nobody's.
func TestAResponseBesideAnErrorIsAnError(t *testing.T) {
	tel := newTelemetry()
	policy := atOnce
	policy.MaxAttempts = 1
	broken := errors.New("broken")
	base := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		resp, err := serving(req)
		require.NoError(t, err)
		return resp, broken
	})
	_, err := send(t, t.Context(), otelretry.New(base, policy, tel.options()...), "GET", shop)
	assert.ErrorIs(t, err, broken)
	assert.Equal(t, []string{"errors.errorString"}, tel.errorTypes(t))
}

// net/http returns the cause of the cancellation over HTTP/1, and other bases return what they
// like.
func TestASupersededAttemptHasOneErrorType(t *testing.T) {
	for name, lost := range map[string]func(ctx context.Context) error{
		"the cause":              context.Cause,
		"the context's error":    context.Context.Err,
		"an error of the base's": func(context.Context) error { return errors.New("stream closed") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tel := newTelemetry()
				both := attempts(hedgeWins...)
				rt := otelretry.New(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
					resp, err := both(req)
					if err != nil {
						err = lost(req.Context())
					}
					return resp, err
				}), hedging(), tel.options()...)
				_, err := send(t, t.Context(), rt, "GET", shop)
				require.NoError(t, err)
				time.Sleep(time.Second)
				assert.Equal(t, []string{"github.com/retryhttp/retryhttp.supersededError"}, tel.errorTypes(t))
				assert.Equal(t, []bool{true, false}, with(superseded, tel.inOrder()))
			})
		})
	}
}

// A Transport above may have sent the whole request as one of two attempts.
func TestTheErrorOfASupersededAttemptStaysTheBases(t *testing.T) {
	forBoth(t, func(t *testing.T, build builder) {
		closed := errors.New("stream closed")
		ctx, cancel := context.WithCancelCause(t.Context())
		base := roundTripperFunc(func(*http.Request) (*http.Response, error) {
			cancel(retryhttp.ErrSuperseded)
			return nil, closed
		})
		_, err := send(t, ctx, build(base, atOnce), "GET", shop)
		assert.ErrorIs(t, err, closed)
	})
}

// An edit may wrap OnDone, and keep the response from what counts.
func TestAnEndWithoutItsResponseIsCounted(t *testing.T) {
	tel := newTelemetry()
	rt := otelretry.New(playing(200), retryhttp.Policy{}, tel.options()...)
	ctx := retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) {
		done := p.OnDone
		p.OnDone = func(a retryhttp.Attempt, o retryhttp.Outcome) { done(retryhttp.Attempt{Request: a.Request}, o) }
	})
	_, err := send(t, ctx, rt, "GET", shop)
	require.NoError(t, err)
	counted := tel.metric(t, "retryhttp.client.call.stops").Data.(metricdata.Sum[int64]).DataPoints
	require.Len(t, counted, 1)
	assert.EqualValues(t, 1, counted[0].Value)
}
