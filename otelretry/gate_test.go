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
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

const shop = "http://shop.example:80/"

// failingFor is a base that answers with 503 for d, and with 200 after that.
func failingFor(d time.Duration) roundTripperFunc {
	start := time.Now()
	return func(req *http.Request) (*http.Response, error) {
		time.Sleep(time.Millisecond)
		status := http.StatusOK
		if time.Since(start) < d {
			status = http.StatusServiceUnavailable
		}
		return &http.Response{StatusCode: status, Body: http.NoBody, Request: req}, nil
	}
}

// patient retries often enough to outlast an outage.
func patient() retryhttp.Policy {
	return retryhttp.Policy{
		MaxAttempts: -1,
		Backoff:     retryhttp.Constant(100 * time.Millisecond),
		Budget:      retryhttp.Unlimited{},
	}
}

// sendSteadily begins n requests, one each 10 ms, and returns what ends the wait for them.
func sendSteadily(t *testing.T, rt http.RoundTripper, n int) (wait func()) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for range n {
			wg.Go(func() {
				_, err := send(t, t.Context(), rt, "GET", shop)
				assert.NoError(t, err)
			})
			time.Sleep(10 * time.Millisecond)
		}
	})
	return wg.Wait
}

func TestTimeThatRequestsAreHeldIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		var mu sync.Mutex
		var requests, held int
		var sum time.Duration
		policy := patient()
		policy.OnDone = func(_ retryhttp.Attempt, o retryhttp.Outcome) {
			mu.Lock()
			defer mu.Unlock()
			requests++
			if o.Held > 0 {
				held++
				sum += o.Held
			}
		}
		sendSteadily(t, otelretry.New(failingFor(time.Second), policy, tel.options()...), 300)()

		require.Equal(t, 300, requests)
		require.Greater(t, held, 20)
		require.Less(t, held, 200)
		m := tel.metric(t, "retryhttp.client.call.held")
		assert.Equal(t, "s", m.Unit)
		points := m.Data.(metricdata.Histogram[float64]).DataPoints
		require.Len(t, points, 1)
		assert.EqualValues(t, held, points[0].Count, "of the requests that were held")
		assert.InDelta(t, sum.Seconds(), points[0].Sum, 1e-6)
		assert.Equal(t, call(t, "GET", shop), points[0].Attributes)
		delay := tel.metric(t, "retryhttp.client.call.retry_delay").Data.(metricdata.Histogram[float64]).DataPoints
		require.Len(t, delay, 1)
		assert.Equal(t, delay[0].Bounds, points[0].Bounds)
	})
}

// A first attempt that is held has no retry_delay.
func TestTimeThatAFirstAttemptIsHeldIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		base := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			header := http.Header{"Retry-After": {"2"}}
			return &http.Response{StatusCode: 429, Header: header, Body: http.NoBody, Request: req}, nil
		})
		policy := retryhttp.Policy{MaxAttempts: 1, Gate: &retryhttp.Gate{HoldFirst: true}}
		rt := otelretry.New(base, policy, tel.options()...)
		for range 2 {
			_, err := send(t, t.Context(), rt, "GET", shop)
			require.NoError(t, err)
		}
		points := tel.metric(t, "retryhttp.client.call.held").Data.(metricdata.Histogram[float64]).DataPoints
		require.Len(t, points, 1)
		assert.EqualValues(t, 1, points[0].Count)
		assert.GreaterOrEqual(t, points[0].Sum, 2.0)
		assert.Empty(t, tel.metric(t, "retryhttp.client.call.retry_delay").Data)
	})
}

// waiting returns the values of the Gate's gauge, by server.
func (tel *telemetry) waiting(t *testing.T) []metricdata.DataPoint[int64] {
	t.Helper()
	m := tel.metric(t, "retryhttp.client.gate.held")
	gauge, isGauge := m.Data.(metricdata.Gauge[int64])
	if isGauge {
		assert.Equal(t, "{request}", m.Unit)
	}
	return gauge.DataPoints
}

func (tel *telemetry) waitingForOne(t *testing.T) int {
	t.Helper()
	points := tel.waiting(t)
	require.Len(t, points, 1)
	assert.Equal(t, attribute.NewSet(server(t, shop)...), points[0].Attributes)
	return int(points[0].Value)
}

// No request ends while the server is down. The gauge must show the held requests all the same.
func TestRequestsThatAreHeldAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		var ended atomic.Int32
		var last atomic.Int64 // what the newest OnDone saw
		policy := patient()
		policy.Gate = &retryhttp.Gate{}
		policy.OnDone = func(a retryhttp.Attempt, _ retryhttp.Outcome) {
			ended.Add(1)
			last.Store(int64(policy.Gate.Status(a.Request).Held))
		}
		wait := sendSteadily(t, otelretry.New(failingFor(time.Second), policy, tel.options()...), 300)

		time.Sleep(50 * time.Millisecond)
		assert.Zero(t, tel.waitingForOne(t), "not yet down")
		time.Sleep(900 * time.Millisecond)
		synctest.Wait()
		assert.Zero(t, ended.Load())
		held := policy.Gate.Status(asked(t)).Held
		assert.Greater(t, held, 20)
		assert.InDelta(t, held, tel.waitingForOne(t), 2, "what came due since the newest attempt")

		wait()
		assert.EqualValues(t, 300, ended.Load())
		assert.Zero(t, last.Load())
		assert.Zero(t, tel.waitingForOne(t))
	})
}

func asked(t *testing.T) *http.Request {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, shop, nil)
	require.NoError(t, err)
	return req
}

// Requests that are canceled while they are held make no other attempt.
func TestRequestsThatAreCanceledAreNoLongerHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		policy := patient()
		policy.Gate = &retryhttp.Gate{Hold: time.Hour}
		var left []int
		var mu sync.Mutex
		policy.OnDone = func(retryhttp.Attempt, retryhttp.Outcome) {
			mu.Lock()
			defer mu.Unlock()
			left = append(left, tel.waitingForOne(t))
		}
		rt := otelretry.New(failingFor(time.Hour), policy, tel.options()...)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				_, err := send(t, ctx, rt, "GET", shop)
				assert.ErrorIs(t, err, context.Canceled)
			})
		}
		time.Sleep(700 * time.Millisecond) // by then a probe has failed
		assert.Greater(t, tel.waitingForOne(t), 15)
		cancel()
		wg.Wait()
		require.Len(t, left, 20)
		assert.Zero(t, left[19])
		assert.Zero(t, policy.Gate.Status(asked(t)).Held)
		assert.Zero(t, tel.waitingForOne(t))
	})
}

// slowMeters are meters whose gauges take their time to record what is above 0.
type slowMeters struct {
	noop.MeterProvider
	mu   sync.Mutex
	last int64 // recorded
	high int64
}

type slowMeter struct {
	noop.Meter
	meters *slowMeters
}

type slowGauge struct {
	noop.Int64Gauge
	meters *slowMeters
}

func (m *slowMeters) Meter(string, ...metric.MeterOption) metric.Meter { return slowMeter{meters: m} }

func (m slowMeter) Int64Gauge(string, ...metric.Int64GaugeOption) (metric.Int64Gauge, error) {
	return slowGauge{meters: m.meters}, nil
}

func (g slowGauge) Record(_ context.Context, value int64, _ ...metric.RecordOption) {
	if value > 0 {
		time.Sleep(time.Minute)
	}
	g.meters.mu.Lock()
	defer g.meters.mu.Unlock()
	g.meters.last, g.meters.high = value, max(g.meters.high, value)
}

func TestAnOlderCountIsNotTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meters := new(slowMeters)
		rt := otelretry.New(failingFor(time.Second), patient(), otelretry.WithMeterProvider(meters))
		sendSteadily(t, rt, 300)()
		assert.Positive(t, meters.high)
		assert.Zero(t, meters.last)
	})
}

func TestTheGateOfTheGaugeIsThePolicys(t *testing.T) {
	var none *retryhttp.Gate
	for name, gate := range map[string]*retryhttp.Gate{"the default": none, "a Gate of theirs": {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tel := newTelemetry()
				policy := patient()
				policy.Gate = gate
				rt := otelretry.New(failingFor(time.Second), policy, tel.options()...)
				wait := sendSteadily(t, rt, 100)
				time.Sleep(900 * time.Millisecond)
				assert.Positive(t, tel.waitingForOne(t))
				wait()
				assert.Zero(t, tel.waitingForOne(t))
			})
		})
	}
}

func TestAGateThatHoldsNothingHasNoGauge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		policy := patient()
		policy.Gate = &retryhttp.Gate{Hold: -1}
		sendSteadily(t, otelretry.New(failingFor(time.Second), policy, tel.options()...), 100)()
		assert.Empty(t, tel.waiting(t))
		assert.Nil(t, tel.metric(t, "retryhttp.client.call.held").Data)
		assert.NotEmpty(t, tel.metric(t, "retryhttp.client.call.stops").Data)
	})
}

func TestAKeyThatLooksAtTheURLIsNotAskedWithoutOne(t *testing.T) {
	policy := atOnce
	policy.Gate = &retryhttp.Gate{Key: func(req *http.Request) string { return req.URL.Host }}
	base := roundTripperFunc(func(*http.Request) (*http.Response, error) { panic("sent") })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req := (&http.Request{Header: make(http.Header)}).WithContext(ctx)
	_, err := otelretry.New(base, policy, newTelemetry().options()...).RoundTrip(req) //nolint:bodyclose // there is none
	assert.ErrorIs(t, err, context.Canceled)
}

func TestARequestWithoutAURLHasNoGauge(t *testing.T) {
	tel := newTelemetry()
	req := &http.Request{Header: make(http.Header)}
	_, err := otelretry.New(playing(503, 200), atOnce, tel.options()...).RoundTrip(req)
	require.NoError(t, err)
	assert.Empty(t, tel.waiting(t))
	assert.NotEmpty(t, tel.metric(t, "retryhttp.client.call.retries").Data)
}

func TestThePolicysOwnOnRetryIsCalled(t *testing.T) {
	tel := newTelemetry()
	policy := atOnce
	var numbers []int
	policy.OnRetry = func(a retryhttp.Attempt) {
		assert.Zero(t, tel.waitingForOne(t), "recorded before")
		numbers = append(numbers, a.Number)
	}
	_, err := send(t, t.Context(), otelretry.New(playing(503, 503, 200), policy, tel.options()...), "GET", shop)
	require.NoError(t, err)
	assert.Equal(t, []int{1, 2}, numbers)
}
