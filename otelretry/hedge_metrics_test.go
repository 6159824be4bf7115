package otelretry_test

import (
	"context"
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

var (
	hedgeWins = []answer{never, {0, 200, nil}}
	firstWins = []answer{{2 * hedgeAfter, 200, nil}, never}
	bothFail  = []answer{{2 * hedgeAfter, 503, nil}, {hedgeAfter / 2, 503, nil}, {0, 200, nil}}
	notSlow   = []answer{{0, 200, nil}}
)

func TestHedgesAreCounted(t *testing.T) {
	for name, tt := range map[string]struct {
		answers                         []answer
		attempts, hedges, wins, retried int64
	}{
		"the hedge wins": {hedgeWins, 2, 1, 1, 0},
		"the first wins": {firstWins, 2, 1, 0, 0},
		"both fail":      {bothFail, 3, 1, 0, 1},
		"none is sent":   {notSlow, 1, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tel := newTelemetry()
				_, err := send(t, t.Context(), otelretry.New(attempts(tt.answers...), hedging(), tel.options()...), "GET", shop)
				require.NoError(t, err)
				time.Sleep(time.Second) // a hedge may be left to finish
				tel.requireCount(t, tt.hedges, "retryhttp.client.call.hedges")
				tel.requireCount(t, tt.wins, "retryhttp.client.call.hedge_wins")
				made := tel.metric(t, "retryhttp.client.call.attempts").Data.(metricdata.Histogram[int64]).DataPoints
				require.Len(t, made, 1)
				assert.Equal(t, tt.attempts, made[0].Sum)
				retries, _ := tel.metric(t, "retryhttp.client.call.retries").Data.(metricdata.Histogram[int64])
				delays, _ := tel.metric(t, "retryhttp.client.call.retry_delay").Data.(metricdata.Histogram[float64])
				if tt.retried == 0 {
					assert.Empty(t, retries.DataPoints)
					assert.Empty(t, delays.DataPoints)
					return
				}
				require.Len(t, retries.DataPoints, 1)
				assert.Equal(t, tt.retried, retries.DataPoints[0].Sum)
				assert.Len(t, delays.DataPoints, 1)
			})
		})
	}
}

// spent is a Budget that refuses everything.
type spent struct{ retryhttp.Unlimited }

func (spent) Withdraw(retryhttp.Retry) (cost float64, ok bool) { return 0, false }

func TestHedgesThatTheBudgetRefusesAreCounted(t *testing.T) {
	for name, tt := range map[string]struct {
		budget  retryhttp.Budget
		answers []answer
		want    int64
	}{
		"a spent budget":         {spent{}, []answer{{2 * hedgeAfter, 200, nil}}, 1},
		"a spent budget, unused": {spent{}, notSlow, 0},
		"a budget with tokens":   {retryhttp.Unlimited{}, firstWins, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tel := newTelemetry()
				policy := hedging()
				policy.Budget = tt.budget
				_, err := send(t, t.Context(), otelretry.New(attempts(tt.answers...), policy, tel.options()...), "GET", shop)
				require.NoError(t, err)
				time.Sleep(time.Second)
				tel.requireCount(t, tt.want, "retryhttp.client.call.hedges_refused")
			})
		})
	}
}

func TestHedgesOfANestedTransportAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		start := time.Now()
		inner := hedging()
		inner.Hedge.After = 2 * hedgeAfter
		nested := retryhttp.New(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			if time.Since(start) == 2*hedgeAfter {
				return attempts(hedgeWins...)(req)
			}
			return attempts(never, never)(req)
		}), inner)
		_, err := send(t, t.Context(), otelretry.New(nested, hedging(), tel.options()...), "GET", shop)
		require.NoError(t, err)
		tel.requireCount(t, 2, "retryhttp.client.call.hedges")
		tel.requireCount(t, 1, "retryhttp.client.call.hedge_wins")
		time.Sleep(time.Second) // a hedge may be left to finish
	})
}

// A hedge of a Transport above has no elder attempt here.
func TestHedgeOfATransportAboveIsAnAttemptLikeAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		tel := newTelemetry()
		start := time.Now()
		inner := otelretry.New(attempts(never, answer{0, 503, nil}, answer{0, 200, nil}), noBudget(), tel.options()...)
		resp, err := send(t, ctx, retryhttp.New(inner, hedging()), "GET", shop)
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Equal(t, hedgeAfter, time.Since(start))
		time.Sleep(time.Second) // a hedge may be left to finish
		for _, s := range tel.named("HTTP GET") {
			assert.NotContains(t, s.Attributes, attribute.Bool("retryhttp.hedge", true))
		}
	})
}

// requireCount requires that a counter of hedges of GETs to the shop has a value.
func (tel *telemetry) requireCount(t *testing.T, want int64, name string) {
	t.Helper()
	m := tel.metric(t, name)
	if want == 0 {
		assert.Nil(t, m.Data)
		return
	}
	assert.Equal(t, "{hedge}", m.Unit)
	assert.Equal(t, []metricdata.DataPoint[int64]{{Attributes: call(t, "GET", shop), Value: want}}, withoutTimes(m))
}

// delays returns the values of the Hedge's gauge, by server.
func (tel *telemetry) delays(t *testing.T) []metricdata.DataPoint[float64] {
	t.Helper()
	m := tel.metric(t, "retryhttp.client.hedge.delay")
	gauge, isGauge := m.Data.(metricdata.Gauge[float64])
	if isGauge {
		assert.Equal(t, "s", m.Unit)
	}
	return gauge.DataPoints
}

func TestTheDelayOfHedgesIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		policy := noBudget()
		policy.Hedge = &retryhttp.Hedge{Share: 0.5}
		rt := otelretry.New(attempts(answer{100 * time.Millisecond, 200, nil}), policy, tel.options()...)
		for range 9 {
			_, err := send(t, t.Context(), rt, "GET", shop)
			require.NoError(t, err)
		}
		assert.Empty(t, tel.delays(t), "too few answers")
		_, err := send(t, t.Context(), rt, "GET", shop)
		require.NoError(t, err)
		points := tel.delays(t)
		require.Len(t, points, 1)
		delay, ok := policy.Hedge.Delay(asked(t))
		require.True(t, ok)
		assert.Equal(t, delay.Seconds(), points[0].Value)
		assert.Equal(t, attribute.NewSet(server(t, shop)...), points[0].Attributes)
	})
}

func TestNothingOfHedgesIsReportedWithoutOne(t *testing.T) {
	other := &retryhttp.Hedge{After: time.Second}
	for name, tt := range map[string]struct {
		hedge  *retryhttp.Hedge
		method string
		edit   func(*retryhttp.Policy)
	}{
		"no Hedge":                 {nil, "GET", nil},
		"a Hedge of the request's": {nil, "GET", func(p *retryhttp.Policy) { p.Hedge = other }},
		"no share":                 {&retryhttp.Hedge{After: time.Second, Share: -1}, "GET", nil},
		"a write":                  {&retryhttp.Hedge{After: time.Second}, "PUT", nil},
	} {
		t.Run(name, func(t *testing.T) {
			tel := newTelemetry()
			policy := noBudget()
			policy.Hedge = tt.hedge
			ctx := retryhttp.WithPolicy(t.Context(), tt.edit)
			_, err := send(t, ctx, otelretry.New(playing(503, 200), policy, tel.options()...), tt.method, shop)
			require.NoError(t, err)
			assert.Empty(t, tel.delays(t))
			tel.requireCount(t, 0, "retryhttp.client.call.hedges")
			tel.requireCount(t, 0, "retryhttp.client.call.hedge_wins")
			assert.NotEmpty(t, tel.metric(t, "retryhttp.client.call.retries").Data)
		})
	}
}

func TestTheHedgeOfOneRequestIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		mine := hedging().Hedge
		policy := noBudget()
		policy.Hedge = &retryhttp.Hedge{After: time.Hour}
		rt := otelretry.New(attempts(hedgeWins...), policy, tel.options()...)
		ctx := retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) { p.Hedge = mine })
		_, err := send(t, ctx, rt, "GET", shop)
		require.NoError(t, err)
		tel.requireCount(t, 1, "retryhttp.client.call.hedges")
		tel.requireCount(t, 1, "retryhttp.client.call.hedge_wins")
		points := tel.delays(t)
		require.Len(t, points, 1)
		assert.Equal(t, time.Hour.Seconds(), points[0].Value, "of the Policy's")
	})
}

// A Read that resumes a body records what the requests share.
func TestTheDelayOfHedgesIsMeasuredAfterAResumption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		policy := resuming()
		policy.Hedge = &retryhttp.Hedge{Share: 1}
		rt := otelretry.New(breaking(5), policy, tel.options()...)
		resp, err := rt.RoundTrip(asked(t))
		require.NoError(t, err)
		defer resp.Body.Close()
		assert.Empty(t, tel.delays(t), "too few answers")
		for range 5 {
			_, err := send(t, context.Background(), retryhttp.New(playing(200), policy), "GET", shop)
			require.NoError(t, err)
		}
		_, err = resp.Body.Read(make([]byte, 5))
		require.NoError(t, err)
		assert.Empty(t, tel.delays(t), "not resumed")
		_, err = resp.Body.Read(make([]byte, 5))
		require.NoError(t, err)
		assert.Len(t, tel.delays(t), 1)
	})
}
