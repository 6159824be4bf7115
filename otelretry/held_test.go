package otelretry_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

// holds returns the durations in the events of the spans, in seconds.
func holds(t *testing.T, spans []tracetest.SpanStub) []float64 {
	t.Helper()
	var held []float64
	for _, s := range spans {
		for _, e := range s.Events {
			require.Equal(t, "retryhttp.held", e.Name)
			require.EqualValues(t, "retryhttp.held.duration", e.Attributes[0].Key)
			held = append(held, e.Attributes[0].Value.AsFloat64())
		}
	}
	return held
}

func TestAHeldRequestSaysSoInTheSpanOfItsNextAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		var total atomic.Int64
		policy := patient()
		policy.OnDone = func(_ retryhttp.Attempt, o retryhttp.Outcome) { total.Add(int64(o.Held)) }
		rt := otelretry.New(failingFor(time.Second), policy, tel.options()...)
		wait := sendSteadily(t, rt, 100)
		time.Sleep(500 * time.Millisecond)
		caller := tel.inSpan(t, func(ctx context.Context) {
			before := total.Load()
			_, err := send(t, ctx, rt, "GET", shop)
			require.NoError(t, err)
			require.Greater(t, total.Load(), before, "it was held")
		})
		wait()
		assert.Empty(t, caller.Events)
		spans := tel.named("HTTP GET")
		var sum float64
		for _, held := range holds(t, spans) {
			sum += held
		}
		assert.InDelta(t, time.Duration(total.Load()).Seconds(), sum, 1e-6, "each hold is told once")
		for _, s := range spans {
			if len(s.Events) > 0 {
				assert.NotEqual(t, []int64{-1}, resends([]tracetest.SpanStub{s}), "only a resend was held")
			}
		}
	})
}

func TestAWaitInLineIsToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		spent := &retryhttp.TokenBucket{Burst: 1}
		spend(t, spent, asked(t))
		policy := retryhttp.Policy{Budget: spent, Backoff: retryhttp.Constant(100 * time.Millisecond)}
		rt := otelretry.New(failingFor(time.Second), policy, tel.options()...)
		sendSteadily(t, rt, 200)()
		inLine := 0
		for _, s := range tel.named("HTTP GET") {
			for _, e := range s.Events {
				if len(e.Attributes) == 2 {
					inLine++
					require.EqualValues(t, "retryhttp.held.in_line", e.Attributes[1].Key)
					assert.LessOrEqual(t, e.Attributes[1].Value.AsFloat64(), e.Attributes[0].Value.AsFloat64())
				}
			}
		}
		assert.NotZero(t, inLine)
	})
}

// A retry that waits in line in vain has no attempt, and so no span of its own.
func TestARequestThatWasHeldInVainSaysSoInItsCallersSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		spent := &retryhttp.TokenBucket{Burst: 1}
		spend(t, spent, asked(t))
		policy := retryhttp.Policy{
			Budget:  spent,
			Backoff: retryhttp.Constant(100 * time.Millisecond),
			Gate:    &retryhttp.Gate{Hold: 100 * time.Millisecond}, // ends before any probe
		}
		rt := otelretry.New(failingFor(time.Hour), policy, tel.options()...)
		var other sync.WaitGroup
		other.Go(func() { // makes the request not the only one
			_, _ = send(t, t.Context(), rt, "GET", shop)
		})
		time.Sleep(time.Millisecond / 2)
		caller := tel.inSpan(t, func(ctx context.Context) {
			_, err := send(t, ctx, rt, "GET", shop)
			require.NoError(t, err)
		})
		other.Wait()
		assert.Equal(t, []float64{0.1}, holds(t, []tracetest.SpanStub{caller}))
	})
}

// limiting is a base whose first answer is a success that closes the server for two seconds.
func limiting(next http.RoundTripper) roundTripperFunc {
	first := true
	return func(req *http.Request) (*http.Response, error) {
		if !first {
			return next.RoundTrip(req)
		}
		first = false
		header := http.Header{"Ratelimit": {`"a";r=0;t=2`}}
		return &http.Response{StatusCode: 200, Header: header, Body: http.NoBody, Request: req}, nil
	}
}

// The race detector finds a hedge that looks at what the first attempt has told.
func TestAFirstAttemptThatWasHeldIsHedged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		policy := hedging()
		policy.Gate = &retryhttp.Gate{HoldFirst: true}
		rt := otelretry.New(limiting(attempts(answer{2 * hedgeAfter, 200, nil}, never)), policy, tel.options()...)
		for range 2 {
			_, err := send(t, t.Context(), rt, "GET", shop)
			require.NoError(t, err)
			time.Sleep(time.Second)
		}
		spans := tel.inOrder()
		require.Len(t, spans, 3)
		assert.Len(t, holds(t, spans), 1)
		assert.Empty(t, holds(t, spans[2:]), "a hedge is not held")
	})
}

func TestAHoldAboveAnotherTransportIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		policy := noBudget()
		policy.Gate = &retryhttp.Gate{HoldFirst: true}
		inner := otelretry.New(limiting(playing(200)), noBudget(), tel.options()...)
		outer := otelretry.New(inner, policy, tel.options()...)
		for range 2 {
			_, err := send(t, t.Context(), outer, "GET", shop)
			require.NoError(t, err)
		}
		spans := tel.named("HTTP GET")
		require.Len(t, spans, 4)
		assert.Len(t, holds(t, spans), 1)
		for _, s := range spans {
			assert.False(t, len(s.Events) > 0 && s.Parent.IsValid(), "the inner Transport has not held it")
		}
	})
}
