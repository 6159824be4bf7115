package otelretry_test

import (
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

func server(t *testing.T, rawURL string) []attribute.KeyValue {
	t.Helper()
	u, err := url.Parse(rawURL)
	require.NoError(t, err)
	port, err := strconv.Atoi(u.Port())
	require.NoError(t, err)
	return []attribute.KeyValue{attribute.String("server.address", u.Hostname()), attribute.Int("server.port", port)}
}

func call(t *testing.T, method, rawURL string, more ...attribute.KeyValue) attribute.Set {
	t.Helper()
	attrs := append(server(t, rawURL), attribute.String("http.request.method", method))
	return attribute.NewSet(append(attrs, more...)...)
}

func stop(s retryhttp.Stop) attribute.KeyValue { return attribute.String("retryhttp.stop", string(s)) }

func status(code int) attribute.KeyValue { return attribute.Int("http.response.status_code", code) }

var (
	ambiguous = attribute.Bool("retryhttp.ambiguous", true)
	repeated  = attribute.Bool("retryhttp.repeated", true)
)

func TestMetricsOfRequests(t *testing.T) {
	tel := newTelemetry()
	rt := otelretry.New(nil, atOnce, tel.options()...)
	url, _ := answering(t, 200, 503, 200, 503, 503, 200, 503)
	for _, method := range []string{"GET", "GET", "GET", "POST"} {
		_, err := send(t, t.Context(), rt, method, url)
		require.NoError(t, err)
	}
	counts := func(attrs attribute.Set, counts ...uint64) metricdata.HistogramDataPoint[int64] {
		p := metricdata.HistogramDataPoint[int64]{
			Attributes: attrs, Bounds: []float64{1, 2, 3, 4, 5, 10}, BucketCounts: make([]uint64, 7),
		}
		var low, high int64
		for i, n := range counts {
			p.BucketCounts[i] = n
			p.Count += n
			p.Sum += int64(n) * int64(i+1)
			if n > 0 {
				high = int64(i + 1)
				if low == 0 {
					low = high
				}
			}
		}
		p.Min, p.Max = metricdata.NewExtrema(low), metricdata.NewExtrema(high)
		return p
	}
	get, post := call(t, "GET", url), call(t, "POST", url)
	histogram := func(points ...metricdata.HistogramDataPoint[int64]) metricdata.Aggregation {
		return metricdata.Histogram[int64]{Temporality: metricdata.CumulativeTemporality, DataPoints: points}
	}
	equal := func(want, got metricdata.Aggregation) {
		t.Helper()
		metricdatatest.AssertAggregationsEqual(t, want, got,
			metricdatatest.IgnoreTimestamp(), metricdatatest.IgnoreExemplars())
	}
	attempts := tel.metric(t, "retryhttp.client.call.attempts")
	assert.Equal(t, "{attempt}", attempts.Unit)
	equal(histogram(counts(get, 1, 1, 1), counts(post, 1)), attempts.Data)

	retries := tel.metric(t, "retryhttp.client.call.retries")
	assert.Equal(t, "{retry}", retries.Unit)
	equal(histogram(counts(get, 1, 1)), retries.Data) // a request that was sent once is no retry

	stops := tel.metric(t, "retryhttp.client.call.stops")
	assert.Equal(t, "{call}", stops.Unit)
	equal(metricdata.Sum[int64]{
		Temporality: metricdata.CumulativeTemporality,
		IsMonotonic: true,
		DataPoints: []metricdata.DataPoint[int64]{
			{Attributes: call(t, "GET", url, stop(retryhttp.StopFinal), status(200)), Value: 3},
			{Attributes: call(t, "POST", url, stop(retryhttp.StopNotIdempotent), status(503), errorOf("503")), Value: 1},
		},
	}, stops.Data)
}

func TestTimeSpentWaitingIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		statuses := []int{200, 503, 503, 200}
		base := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			time.Sleep(time.Minute) // which does not count
			status := statuses[0]
			statuses = statuses[1:]
			return &http.Response{StatusCode: status, Body: http.NoBody, Request: req}, nil
		})
		rt := otelretry.New(base, retryhttp.Policy{Backoff: retryhttp.Constant(3 * time.Second)}, tel.options()...)
		for range 2 {
			_, err := send(t, t.Context(), rt, "GET", "http://host.example:80/")
			require.NoError(t, err)
		}
		delay := tel.metric(t, "retryhttp.client.call.retry_delay")
		assert.Equal(t, "s", delay.Unit)
		points := delay.Data.(metricdata.Histogram[float64]).DataPoints
		require.Len(t, points, 1)
		assert.EqualValues(t, 1, points[0].Count, "of the request that was retried")
		assert.Equal(t, 6.0, points[0].Sum)
		assert.Equal(t, []float64{
			0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 4, 5.5, 7.5, 10.5, 15.5, 20, 30, 60, 120,
		}, points[0].Bounds)
	})
}

func (tel *telemetry) tokens(t *testing.T) []metricdata.DataPoint[float64] {
	t.Helper()
	tokens := tel.metric(t, "retryhttp.client.budget.tokens")
	gauge, isGauge := tokens.Data.(metricdata.Gauge[float64])
	if isGauge {
		assert.Equal(t, "{token}", tokens.Unit)
	}
	return gauge.DataPoints
}

func TestTheBudgetsBalanceIsMeasured(t *testing.T) {
	var none *retryhttp.TokenBucket
	for name, budget := range map[string]retryhttp.Budget{
		"the default":        nil,
		"no bucket":          none,
		"a bucket of theirs": &retryhttp.TokenBucket{},
	} {
		t.Run(name, func(t *testing.T) {
			tel := newTelemetry()
			policy := atOnce
			policy.Budget = budget
			url, _ := answering(t, 503, 503, 200)
			_, err := send(t, t.Context(), otelretry.New(nil, policy, tel.options()...), "GET", url)
			require.NoError(t, err)
			points := tel.tokens(t)
			require.Len(t, points, 1)
			assert.InDelta(t, 5-2+0.5, points[0].Value, 1e-9)
			assert.Equal(t, attribute.NewSet(server(t, url)...), points[0].Attributes)
		})
	}
}

func TestABudgetWithoutABalanceHasNoGauge(t *testing.T) {
	tel := newTelemetry()
	policy := atOnce
	policy.Budget = retryhttp.Unlimited{}
	url, _ := answering(t, 503, 200)
	_, err := send(t, t.Context(), otelretry.New(nil, policy, tel.options()...), "GET", url)
	require.NoError(t, err)
	assert.Empty(t, tel.tokens(t))
	assert.NotEmpty(t, tel.metric(t, "retryhttp.client.call.stops").Data)
}

func TestAttributesAreFew(t *testing.T) {
	for url, want := range map[string][]attribute.KeyValue{
		"http://host.example/a?b":    {attribute.String("server.address", "host.example"), attribute.Int("server.port", 80)},
		"https://host.example/":      {attribute.String("server.address", "host.example"), attribute.Int("server.port", 443)},
		"http://user:pw@[::1]:8080/": {attribute.String("server.address", "::1"), attribute.Int("server.port", 8080)},
		"other://host.example/":      {attribute.String("server.address", "host.example")},
	} {
		for method, told := range map[string]string{
			"": "GET", "CONNECT": "CONNECT", "DELETE": "DELETE", "GET": "GET", "HEAD": "HEAD",
			"OPTIONS": "OPTIONS", "PATCH": "PATCH", "POST": "POST", "PUT": "PUT", "QUERY": "QUERY",
			"TRACE": "TRACE", "get": "_OTHER", "X-1": "_OTHER",
		} {
			t.Run(method+" "+url, func(t *testing.T) {
				tel := newTelemetry()
				base := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
				})
				req, err := http.NewRequest(http.MethodGet, url, nil)
				require.NoError(t, err)
				req.Method = method
				_, err = otelretry.New(base, atOnce, tel.options()...).RoundTrip(req)
				require.NoError(t, err)
				points := tel.metric(t, "retryhttp.client.call.stops").Data.(metricdata.Sum[int64]).DataPoints
				require.Len(t, points, 1)
				attrs := append([]attribute.KeyValue{
					attribute.String("http.request.method", told), stop(retryhttp.StopFinal), status(200),
				}, want...)
				assert.Equal(t, attribute.NewSet(attrs...), points[0].Attributes)
			})
		}
	}
}

func TestUserinfoInTheHostIsNotTold(t *testing.T) {
	tel := newTelemetry()
	req, err := http.NewRequest(http.MethodGet, "http://host.example/", nil)
	require.NoError(t, err)
	req.URL.Host = "user:secret@host.example:8080"
	_, err = otelretry.New(playing(200), atOnce, tel.options()...).RoundTrip(req)
	require.NoError(t, err)
	points := tel.metric(t, "retryhttp.client.call.stops").Data.(metricdata.Sum[int64]).DataPoints
	require.Len(t, points, 1)
	assert.Equal(t, call(t, "GET", "http://host.example:8080", stop(retryhttp.StopFinal), status(200)), points[0].Attributes)
}

func TestEachAttemptIsMeasuredByOtelhttp(t *testing.T) {
	tel := newTelemetry()
	url, _ := answering(t, 503, 503, 200)
	_, err := send(t, t.Context(), otelretry.New(nil, atOnce, tel.options()...), "GET", url)
	require.NoError(t, err)
	var all metricdata.ResourceMetrics
	require.NoError(t, tel.reader.Collect(t.Context(), &all))
	var attempts uint64
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name == "http.client.request.duration" {
				for _, p := range m.Data.(metricdata.Histogram[float64]).DataPoints {
					attempts += p.Count
				}
			}
		}
	}
	assert.EqualValues(t, 3, attempts)
}

func TestANilMeterProviderChangesNothing(t *testing.T) {
	tel := newTelemetry()
	opts := append(tel.options(), otelretry.WithMeterProvider(nil))
	_, err := send(t, t.Context(), otelretry.New(playing(200), atOnce, opts...), "GET", "http://host.example:80/")
	require.NoError(t, err)
	assert.NotEmpty(t, tel.metric(t, "retryhttp.client.call.attempts").Data)
}

func TestGlobalMetersAreTheDefault(t *testing.T) {
	tel := newTelemetry()
	global := otel.GetMeterProvider()
	defer otel.SetMeterProvider(global)
	otel.SetMeterProvider(tel.meters)
	url, _ := answering(t, 200)
	_, err := send(t, t.Context(), otelretry.New(nil, atOnce), "GET", url)
	require.NoError(t, err)
	assert.NotEmpty(t, tel.metric(t, "retryhttp.client.call.attempts").Data)
}
