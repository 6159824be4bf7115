package otelretry_test

import (
	"net/http"
	"runtime"
	"sync"
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

func TestARequestThatPanicsIsCountedOnce(t *testing.T) {
	panics := roundTripperFunc(func(*http.Request) (*http.Response, error) { panic("broken") })
	exits := roundTripperFunc(func(*http.Request) (*http.Response, error) { runtime.Goexit(); return nil, nil })
	first, last := playing(503), playing(200)
	later := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		if retryhttp.AttemptOf(req.Context()).Number == 2 {
			panic("broken")
		}
		return first(req)
	})
	slow := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		if retryhttp.AttemptOf(req.Context()).Hedge {
			panic("broken")
		}
		<-req.Context().Done()
		return nil, req.Context().Err()
	})
	with := func(edit func(p *retryhttp.Policy)) retryhttp.Policy {
		p := atOnce
		edit(&p)
		return p
	}
	panicking := []attribute.KeyValue{stop("panic"), errorOf("panic")}
	for name, tt := range map[string]struct {
		base   http.RoundTripper
		policy retryhttp.Policy
		want   []attribute.KeyValue
	}{
		"in the base":            {panics, atOnce, panicking},
		"in a retry":             {later, atOnce, panicking},
		"in a hedge":             {slow, hedging(), panicking},
		"by an exit in the base": {exits, atOnce, panicking},
		"in OnRetry":             {first, with(func(p *retryhttp.Policy) { p.OnRetry = func(retryhttp.Attempt) { panic("broken") } }), panicking},
		"in OnDone, after the count": {
			last, with(func(p *retryhttp.Policy) { p.OnDone = func(retryhttp.Attempt, retryhttp.Outcome) { panic("broken") } }),
			[]attribute.KeyValue{stop("final"), status(200)},
		},
		"not at all": {last, atOnce, []attribute.KeyValue{stop("final"), status(200)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tel := newTelemetry()
				rt := otelretry.New(tt.base, tt.policy, tel.options()...)
				var sent sync.WaitGroup
				sent.Go(func() {
					defer func() { _ = recover() }()
					_, _ = rt.RoundTrip(request(t, shop))
				})
				sent.Wait()
				time.Sleep(time.Second) // an attempt may be left to finish
				stops := tel.metric(t, "retryhttp.client.call.stops").Data.(metricdata.Sum[int64]).DataPoints
				require.Len(t, stops, 1)
				assert.EqualValues(t, 1, stops[0].Value)
				assert.Equal(t, call(t, "GET", shop, tt.want...), stops[0].Attributes)
			})
		})
	}
}

// The gauges are recorded at the end of a request, however it ends.
func TestNothingIsHeldAfterTheLastHeldRequestHasPanicked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel, start := newTelemetry(), time.Now()
		fails := playing(503)
		base := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			if time.Since(start) > 500*time.Millisecond {
				panic("broken")
			}
			return fails(req)
		})
		rt := otelretry.New(base, retryhttp.Policy{
			Gate: new(retryhttp.Gate), Budget: retryhttp.Unlimited{}, Backoff: retryhttp.Constant(100 * time.Millisecond),
		}, tel.options()...)
		var sent sync.WaitGroup
		for range 12 {
			sent.Go(func() {
				defer func() { assert.NotNil(t, recover()) }()
				_, _ = rt.RoundTrip(request(t, shop))
			})
			time.Sleep(30 * time.Millisecond)
		}
		sent.Wait()
		held := tel.metric(t, "retryhttp.client.gate.held").Data.(metricdata.Gauge[int64]).DataPoints
		require.Len(t, held, 1)
		assert.Zero(t, held[0].Value)
	})
}
