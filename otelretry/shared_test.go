package otelretry_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

// level returns the value of a gauge, or -1 if it has none.
func (tel *telemetry) level(t *testing.T, name string) float64 {
	t.Helper()
	switch data := tel.metric(t, name).Data.(type) {
	case metricdata.Gauge[int64]:
		require.Len(t, data.DataPoints, 1)
		assert.Equal(t, attribute.NewSet(server(t, shop)...), data.DataPoints[0].Attributes)
		return float64(data.DataPoints[0].Value)
	case metricdata.Gauge[float64]:
		require.Len(t, data.DataPoints, 1)
		assert.Equal(t, attribute.NewSet(server(t, shop)...), data.DataPoints[0].Attributes)
		return data.DataPoints[0].Value
	}
	return -1
}

func TestABudgetInItsTenthIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		policy := retryhttp.Policy{MaxAttempts: 2, Gate: &retryhttp.Gate{Hold: -1}}
		rt := otelretry.New(failingFor(31*time.Second), policy, tel.options()...)
		shown := func(want float64) {
			for start := time.Now(); time.Since(start) < 30*time.Second; {
				_, err := send(t, t.Context(), rt, "GET", shop)
				require.NoError(t, err)
				time.Sleep(time.Second / 3)
			}
			assert.Equal(t, want, tel.level(t, "retryhttp.client.budget.sparing"))
		}
		shown(1)
		shown(0)
	})
}

func TestRequestsInLineAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		policy := patient()
		bucket := new(retryhttp.TokenBucket)
		policy.Budget = bucket
		rt := otelretry.New(failingFor(time.Second), policy, tel.options()...)
		wait := sendSteadily(t, rt, 200)
		most := 0.0
		for range 20 {
			time.Sleep(100 * time.Millisecond)
			most = max(most, tel.level(t, "retryhttp.client.gate.in_line"))
		}
		wait()
		assert.Greater(t, most, 0.0)
		assert.Zero(t, tel.level(t, "retryhttp.client.gate.in_line"))
	})
}

func TestTheEndOfAClosureIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		base := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			header := http.Header{"Retry-After": {"7"}}
			return &http.Response{StatusCode: 429, Header: header, Body: http.NoBody, Request: req}, nil
		})
		_, err := send(t, t.Context(), otelretry.New(base, retryhttp.Policy{MaxAttempts: 1}, tel.options()...), "GET", shop)
		require.NoError(t, err)
		assert.InDelta(t, float64(time.Now().Unix()+7), tel.level(t, "retryhttp.client.gate.closed_until"), 1)
	})
}

func TestAServerThatIsNotClosedHasNoEnd(t *testing.T) {
	tel := newTelemetry()
	_, err := send(t, t.Context(), otelretry.New(playing(200), atOnce, tel.options()...), "GET", shop)
	require.NoError(t, err)
	assert.Equal(t, -1.0, tel.level(t, "retryhttp.client.gate.closed_until"))
}

// fleetBudget stands for a Budget that processes share.
type fleetBudget struct {
	retryhttp.Unlimited
	age    time.Duration
	shared bool
}

func (f *fleetBudget) Status(*http.Request) retryhttp.BucketStatus {
	return retryhttp.BucketStatus{Fleet: true, Shared: f.shared, Age: f.age}
}

func TestASharedBudgetThatIsAwayIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		budget := new(fleetBudget)
		policy := atOnce
		policy.Budget = budget
		rt := otelretry.New(playing(200), policy, tel.options()...)
		ask := func() {
			_, err := send(t, t.Context(), rt, "GET", shop)
			require.NoError(t, err)
		}
		ask()
		assert.Zero(t, tel.level(t, "retryhttp.client.budget.shared"))
		assert.Equal(t, -1.0, tel.level(t, "retryhttp.client.budget.view_time"), "there is no view yet")
		budget.age, budget.shared = 3*time.Second, true
		ask()
		assert.Equal(t, 1.0, tel.level(t, "retryhttp.client.budget.shared"))
		assert.InDelta(t, float64(time.Now().Unix()-3), tel.level(t, "retryhttp.client.budget.view_time"), 1)
	})
}

func TestABudgetOfOneProcessIsNotShared(t *testing.T) {
	tel := newTelemetry()
	_, err := send(t, t.Context(), otelretry.New(playing(200), atOnce, tel.options()...), "GET", shop)
	require.NoError(t, err)
	assert.Equal(t, -1.0, tel.level(t, "retryhttp.client.budget.shared"))
	assert.Zero(t, tel.level(t, "retryhttp.client.budget.sparing"))
}

func TestGaugesHaveTheKeysOfTheirBudget(t *testing.T) {
	tel := newTelemetry()
	tenant := func(req *http.Request) string { return req.Header.Get("Tenant") }
	policy := atOnce
	policy.Budget = &retryhttp.TokenBucket{Key: tenant}
	rt := otelretry.New(playing(200), policy, append(tel.options(), otelretry.WithKey(tenant), otelretry.WithKey(nil))...)
	for i := range 150 {
		req := asked(t)
		req.Header.Set("Tenant", fmt.Sprint("tenant", i))
		_, err := rt.RoundTrip(req)
		require.NoError(t, err)
	}
	points := tel.tokens(t)
	require.Len(t, points, 101)
	others := 0
	for _, p := range points {
		key, _ := p.Attributes.Value("retryhttp.key")
		assert.NotEmpty(t, key.AsString())
		if key.AsString() == "_OTHER" {
			others++
		}
	}
	assert.Equal(t, 1, others)
	assert.Equal(t, []metricdata.DataPoint[int64]{
		{Attributes: call(t, "GET", shop, stop(retryhttp.StopFinal), status(200)), Value: 150},
	}, withoutTimes(tel.metric(t, "retryhttp.client.call.stops")), "calls have no key")
}

func TestAnEditThatSetsNoBudgetChangesNoGauge(t *testing.T) {
	tel := newTelemetry()
	rt := otelretry.New(playing(200), atOnce, append(tel.options(), otelretry.WithKey(func(req *http.Request) string { return req.URL.Path }))...)
	_, err := rt.RoundTrip((&http.Request{}).WithContext(context.Background()))
	require.NoError(t, err, "a Key is not asked about a request without a URL")
}

// spend takes a token from b.
func spend(t *testing.T, b retryhttp.Budget, req *http.Request) {
	t.Helper()
	_, ok := b.Withdraw(retryhttp.Retry{Request: req})
	require.True(t, ok)
}
