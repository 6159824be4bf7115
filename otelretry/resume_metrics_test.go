package otelretry_test

import (
	"context"
	"io"
	"net/http"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

func TestResumptionsAreNoAttemptsOfTheirRequest(t *testing.T) {
	tel := newTelemetry()
	var done []retryhttp.Outcome
	policy := resuming()
	policy.OnDone = func(_ retryhttp.Attempt, o retryhttp.Outcome) { done = append(done, o) }
	rt := otelretry.New(failingFirst(503, breaking(5, 7)), policy, tel.options()...)
	got, err := read(t, t.Context(), rt)
	require.NoError(t, err)
	assert.Equal(t, poem, got)
	require.Len(t, done, 1)

	attempts := tel.metric(t, "retryhttp.client.call.attempts").Data.(metricdata.Histogram[int64]).DataPoints
	require.Len(t, attempts, 1)
	assert.EqualValues(t, 1, attempts[0].Count)
	assert.EqualValues(t, 2, attempts[0].Sum)
	delay := tel.metric(t, "retryhttp.client.call.retry_delay").Data.(metricdata.Histogram[float64]).DataPoints
	require.Len(t, delay, 1)
	assert.EqualValues(t, 1, delay[0].Count)
	assert.Equal(t, []metricdata.DataPoint[int64]{
		{Attributes: call(t, "GET", shop, stop(retryhttp.StopFinal), status(200)), Value: 1},
	}, withoutTimes(tel.metric(t, "retryhttp.client.call.stops")))

	resumptions := tel.metric(t, "retryhttp.client.body.resumptions")
	assert.Equal(t, "{resumption}", resumptions.Unit)
	assert.Equal(t, []metricdata.DataPoint[int64]{
		{Attributes: call(t, "GET", shop), Value: 2},
	}, withoutTimes(resumptions))
}

func withoutTimes(m metricdata.Metrics) []metricdata.DataPoint[int64] {
	var points []metricdata.DataPoint[int64]
	for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
		points = append(points, metricdata.DataPoint[int64]{Attributes: p.Attributes, Value: p.Value})
	}
	return points
}

func TestABodyThatIsWholeHasNoResumptions(t *testing.T) {
	tel := newTelemetry()
	_, err := read(t, t.Context(), otelretry.New(failingFirst(503, breaking()), resuming(), tel.options()...))
	require.NoError(t, err)
	assert.Nil(t, tel.metric(t, "retryhttp.client.body.resumptions").Data)
	assert.NotNil(t, tel.metric(t, "retryhttp.client.call.retries").Data)
}

func TestATokenThatAResumptionTookIsMissing(t *testing.T) {
	noMethod, part := asked(t), asked(t)
	noMethod.Method = ""
	part.Header.Set("Range", "bytes=10-29")
	for name, req := range map[string]*http.Request{
		"of the whole":     asked(t),
		"without a method": noMethod,
		"of a part":        part,
	} {
		t.Run(name, func(t *testing.T) {
			tel := newTelemetry()
			policy := resuming()
			budget := &retryhttp.TokenBucket{}
			policy.Budget = budget
			resp, err := otelretry.New(breaking(5), policy, tel.options()...).RoundTrip(req)
			require.NoError(t, err)
			defer resp.Body.Close()
			header := tel.tokens(t)[0].Value
			_, err = io.ReadFull(resp.Body, make([]byte, 6)) // it goes on for longer
			require.NoError(t, err)
			assert.Equal(t, header-1, tel.tokens(t)[0].Value)

			spend(t, budget, req)
			_, err = io.ReadFull(resp.Body, make([]byte, 1))
			require.NoError(t, err)
			assert.Equal(t, header-1, tel.tokens(t)[0].Value, "only the Read that resumes records")
		})
	}
}

// No hook is called when a resumption is no longer held.
func TestResumptionsThatAreNoLongerHeldAreNotCounted(t *testing.T) {
	for name, tt := range map[string]struct {
		cancel bool
		down   time.Duration
	}{
		"because they are canceled":  {true, time.Hour},
		"because the server is back": {false, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tel := newTelemetry()
				policy := patient()
				policy.Resume = true
				policy.Gate = &retryhttp.Gate{Hold: time.Hour}
				rt := otelretry.New(downAfterHeaders(tt.down), policy, tel.options()...)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var wg sync.WaitGroup
				for range 20 {
					wg.Go(func() {
						got, err := read(t, ctx, rt)
						if !tt.cancel {
							assert.NoError(t, err)
							assert.Equal(t, poem, got)
							return
						}
						assert.ErrorIs(t, err, context.Canceled)
					})
				}
				time.Sleep(700 * time.Millisecond) // by then a probe has failed
				assert.Greater(t, tel.waitingForOne(t), 15)
				if tt.cancel {
					cancel()
				}
				wg.Wait()
				assert.Zero(t, policy.Gate.Status(asked(t)).Held)
				assert.Zero(t, tel.waitingForOne(t))
			})
		})
	}
}

// A resumption that is held from the start makes no attempt.
func TestResumptionsThatAreCanceledBeforeTheirAttemptAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		policy := patient()
		policy.Resume = true
		policy.Gate = &retryhttp.Gate{Hold: time.Hour}
		rt := otelretry.New(downAfterHeaders(time.Hour), policy, tel.options()...)
		downloads, cancelDownloads := context.WithCancel(t.Context())
		defer cancelDownloads()
		others, cancelOthers := context.WithCancel(t.Context())
		var bodies []io.ReadCloser
		for range 10 {
			resp, err := rt.RoundTrip(asked(t).WithContext(downloads))
			require.NoError(t, err)
			bodies = append(bodies, resp.Body)
		}
		var wg sync.WaitGroup
		time.Sleep(time.Second)
		for range 20 {
			wg.Go(func() {
				_, err := send(t, others, rt, "GET", shop)
				assert.ErrorIs(t, err, context.Canceled)
			})
		}
		time.Sleep(700 * time.Millisecond) // by then a probe of theirs has failed
		before := policy.Gate.Status(asked(t)).Held
		for _, body := range bodies {
			wg.Go(func() {
				_, err := io.ReadAll(body)
				assert.ErrorIs(t, err, context.Canceled)
				assert.NoError(t, body.Close())
			})
		}
		for tel.waitingForOne(t) < before+5 { // until a probe records that they are held
			time.Sleep(time.Millisecond)
		}
		cancelDownloads()
		synctest.Wait()
		assert.Equal(t, policy.Gate.Status(asked(t)).Held, tel.waitingForOne(t))
		assert.Nil(t, tel.metric(t, "retryhttp.client.body.resumptions").Data)
		cancelOthers()
		wg.Wait()
	})
}

// downAfterHeaders is a base whose first bodies break off. After that it is down for d.
func downAfterHeaders(d time.Duration) roundTripperFunc {
	start, down := time.Now(), failingFor(d)
	return func(req *http.Request) (*http.Response, error) {
		if time.Since(start) == 0 {
			return breaking(5)(req)
		}
		if resp, err := down(req); err != nil || resp.StatusCode != http.StatusOK {
			return resp, err
		}
		return serving(req)
	}
}

func TestAResponseWithoutABodyGetsNone(t *testing.T) {
	base := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Request: req}, nil
	})
	filter := otelhttp.WithFilter(func(*http.Request) bool { return false })
	rt := otelretry.New(base, resuming(), newTelemetry().options(filter)...)
	resp, err := rt.RoundTrip(asked(t)) //nolint:bodyclose // there is none
	require.NoError(t, err)
	assert.Nil(t, resp.Body)
}

func TestABodyThatIsNotResumableIsNotWrapped(t *testing.T) {
	stalls := noBudget()
	stalls.StallTimeout = time.Minute // which wraps the body, so that Resume may have, too
	for _, tt := range []struct {
		policy  retryhttp.Policy
		wrapped bool
	}{{noBudget(), false}, {stalls, true}} {
		rt := otelretry.New(breaking(), tt.policy, newTelemetry().options()...)
		get, err := rt.RoundTrip(asked(t))
		require.NoError(t, err)
		require.NoError(t, get.Body.Close())
		put := asked(t)
		put.Method = http.MethodPut
		other, err := rt.RoundTrip(put)
		require.NoError(t, err)
		require.NoError(t, other.Body.Close())
		assert.Equal(t, tt.wrapped, reflect.TypeOf(other.Body) != reflect.TypeOf(get.Body))
		missing := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			resp, err := serving(req)
			resp.StatusCode = http.StatusNotFound
			return resp, err
		})
		failed, err := otelretry.New(missing, tt.policy, newTelemetry().options()...).RoundTrip(asked(t))
		require.NoError(t, err)
		require.NoError(t, failed.Body.Close())
		assert.IsType(t, other.Body, failed.Body)
	}
}

func TestABodyThatIsGivenUpIsCountedWithItsReason(t *testing.T) {
	never := resuming()
	never.MaxAttempts = 2
	changing := func() roundTripperFunc {
		broken, n := breaking(5), 0
		return func(req *http.Request) (*http.Response, error) {
			resp, err := broken(req)
			if n++; n > 1 {
				resp.Header.Set("ETag", `"v2"`)
			}
			return resp, err
		}
	}
	withoutTag := func(req *http.Request) (*http.Response, error) {
		resp, err := breaking(5)(req)
		resp.Header.Del("ETag")
		return resp, err
	}
	for reason, tt := range map[string]struct {
		base   http.RoundTripper
		policy retryhttp.Policy
	}{
		"changed":       {changing(), resuming()},
		"not-resumable": {roundTripperFunc(withoutTag), resuming()},
		"attempts":      {breaking(5, 5, 5, 5, 5, 5), never},
	} {
		t.Run(reason, func(t *testing.T) {
			tel := newTelemetry()
			resp, err := otelretry.New(tt.base, tt.policy, tel.options()...).RoundTrip(asked(t))
			require.NoError(t, err)
			_, err = io.ReadAll(resp.Body)
			require.Error(t, err)
			_, err = resp.Body.Read(make([]byte, 1))
			require.Error(t, err)
			require.NoError(t, resp.Body.Close())
			givenUp := tel.metric(t, "retryhttp.client.body.given_up")
			assert.Equal(t, "{body}", givenUp.Unit)
			assert.Equal(t, []metricdata.DataPoint[int64]{
				{Attributes: call(t, "GET", shop, attribute.String("retryhttp.reason", reason)), Value: 1},
			}, withoutTimes(givenUp))
		})
	}
}

// A body that is not resumed by this package's Transport is not given up by it.
func TestABodyThatMayNotBeResumedIsNotGivenUp(t *testing.T) {
	tel := newTelemetry()
	policy := atOnce
	policy.StallTimeout = time.Minute // which wraps the body
	_, err := read(t, t.Context(), otelretry.New(breaking(5), policy, tel.options()...))
	require.Error(t, err)
	assert.Nil(t, tel.metric(t, "retryhttp.client.body.given_up").Data)
}
