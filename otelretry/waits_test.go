package otelretry_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

// waitingCalls returns how many requests wait for an attempt, or -1 if none has ever waited.
func (tel *telemetry) waitingCalls(t *testing.T) int {
	t.Helper()
	m := tel.metric(t, "retryhttp.client.call.waiting")
	sum, isSum := m.Data.(metricdata.Sum[int64])
	if !isSum {
		return -1
	}
	assert.Equal(t, "{call}", m.Unit)
	assert.False(t, sum.IsMonotonic)
	require.Len(t, sum.DataPoints, 1)
	assert.Equal(t, call(t, "GET", shop), sum.DataPoints[0].Attributes)
	return int(sum.DataPoints[0].Value)
}

func slowly(policy retryhttp.Policy) retryhttp.Policy {
	policy.Backoff = retryhttp.Constant(time.Second)
	policy.Budget = retryhttp.Unlimited{}
	return policy
}

func TestRequestsThatWaitAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		rt := otelretry.New(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			if retryhttp.AttemptOf(req.Context()).Number < 3 {
				return nil, errors.New("broken")
			}
			return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, nil
		}), slowly(retryhttp.Policy{}), tel.options()...)
		var requests sync.WaitGroup
		for range 3 {
			requests.Go(func() {
				_, err := send(t, t.Context(), rt, "GET", shop)
				assert.NoError(t, err)
			})
		}
		var counted []int
		time.Sleep(time.Second / 2)
		for range 6 { // in the middle of each attempt, and of each wait
			counted = append(counted, tel.waitingCalls(t))
			time.Sleep(time.Second)
		}
		requests.Wait()
		assert.Equal(t, []int{-1, 3, 0, 3, 0, 0}, counted)
	})
}

// A Classify may make any response retryable, whose status does not look like that.
func TestAWaitAfterASuccessIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		policy := slowly(retryhttp.Policy{Classify: func(a retryhttp.Attempt) retryhttp.Class {
			if a.Number == 1 {
				return retryhttp.Retryable
			}
			return retryhttp.Final
		}})
		rt := otelretry.New(playing(202), policy, tel.options()...)
		go func() {
			time.Sleep(time.Second / 2)
			assert.Equal(t, 1, tel.waitingCalls(t))
		}()
		_, err := send(t, t.Context(), rt, "GET", shop)
		require.NoError(t, err)
		assert.Zero(t, tel.waitingCalls(t))
	})
}

// A response beside an error is none. OnRetry begins no wait here: in line, it comes with the token.
func TestAWaitInLineAfterAResponseWithAnErrorIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		policy := retryhttp.Policy{Budget: &retryhttp.TokenBucket{Burst: 1}, Backoff: retryhttp.Constant(time.Second)}
		spend(t, policy.Budget, asked(t))
		rt := otelretry.New(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, errors.New("broken")
		}), policy, tel.options()...)
		var requests sync.WaitGroup
		for range 2 {
			requests.Go(func() {
				_, err := send(t, t.Context(), rt, "GET", shop)
				assert.Error(t, err)
			})
			time.Sleep(10 * time.Millisecond)
		}
		assert.Equal(t, 2, tel.waitingCalls(t))
		requests.Wait()
	})
}

func TestAWaitEndsHoweverItsRequestEnds(t *testing.T) {
	for name, run := range map[string]func(t *testing.T, tel *telemetry){
		"by the last failure": func(t *testing.T, tel *telemetry) {
			policy := atOnce
			policy.MaxAttempts = 1
			_, err := send(t, t.Context(), otelretry.New(playing(503), policy, tel.options()...), "GET", shop)
			require.NoError(t, err)
		},
		"by its caller": func(t *testing.T, tel *telemetry) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second/2, cancel)
			_, err := send(t, ctx, otelretry.New(playing(503), slowly(retryhttp.Policy{}), tel.options()...), "GET", shop)
			require.Error(t, err)
		},
		"by the caller of a resumption": func(t *testing.T, tel *telemetry) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second/2, cancel)
			policy := slowly(resuming())
			_, err := read(t, ctx, otelretry.New(breaking(5), policy, tel.options()...))
			require.Error(t, err)
			assert.Zero(t, tel.waitingCalls(t))
		},
		"by a panic": func(t *testing.T, tel *telemetry) {
			policy := atOnce
			policy.OnRetry = func(retryhttp.Attempt) { panic("broken") }
			assert.PanicsWithValue(t, "broken", func() {
				_, _ = send(t, t.Context(), otelretry.New(playing(503), policy, tel.options()...), "GET", shop)
			})
		},
		"by a panic while a body is resumed": func(t *testing.T, tel *telemetry) {
			policy := resuming()
			policy.OnRetry = func(retryhttp.Attempt) { panic("broken") }
			assert.PanicsWithValue(t, "broken", func() {
				_, _ = read(t, t.Context(), otelretry.New(breaking(5), policy, tel.options()...))
			})
		},
		"by a hedge that ends later": func(t *testing.T, tel *telemetry) {
			rt := otelretry.New(attempts(answer{2 * hedgeAfter, 200, nil}, answer{3 * hedgeAfter, 503, nil}), hedging(), tel.options()...)
			_, err := send(t, t.Context(), rt, "GET", shop)
			require.NoError(t, err)
			time.Sleep(time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tel := newTelemetry()
				run(t, tel)
				assert.LessOrEqual(t, tel.waitingCalls(t), 0)
			})
		})
	}
}

// No wait begins while another attempt is under way, as in Outcome.Waited.
func TestAFailureBesideAnAttemptIsNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		rt := otelretry.New(attempts(answer{time.Second, 200, nil}, answer{0, 503, nil}), hedging(), tel.options()...)
		_, err := send(t, t.Context(), rt, "GET", shop)
		require.NoError(t, err)
		assert.Equal(t, -1, tel.waitingCalls(t))
	})
}

// OnRetry is called when the wait in line is over.
func TestAWaitOfAResumptionInLineIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		policy := resuming()
		policy.Backoff, policy.Budget = retryhttp.Constant(time.Second), &retryhttp.TokenBucket{Burst: 1, Ratio: 0.001}
		policy.Gate = &retryhttp.Gate{Hold: time.Second} // after which a probe needs a token
		spend(t, policy.Budget, asked(t))
		rt := otelretry.New(breaking(5, 5), policy, tel.options()...)
		var readers sync.WaitGroup
		for range 2 { // a single one would not wait in line
			readers.Go(func() {
				_, err := read(t, t.Context(), rt)
				assert.Error(t, err)
			})
			time.Sleep(time.Millisecond)
		}
		assert.Equal(t, 2, tel.waitingCalls(t))
		time.Sleep(3 * time.Second / 2)
		assert.NotZero(t, tel.waitingCalls(t))
		readers.Wait()
		assert.Zero(t, tel.waitingCalls(t))
	})
}

// A retry that waits for a token has not been reported to OnRetry.
func TestAWaitInLineIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		policy := retryhttp.Policy{Budget: &retryhttp.TokenBucket{Burst: 1}, Backoff: retryhttp.Constant(time.Second)}
		spend(t, policy.Budget, asked(t))
		rt := otelretry.New(failingFor(time.Hour), policy, tel.options()...)
		var requests sync.WaitGroup
		for range 2 { // a single one would not wait in line
			requests.Go(func() {
				_, err := send(t, t.Context(), rt, "GET", shop)
				assert.NoError(t, err)
			})
			time.Sleep(10 * time.Millisecond)
		}
		assert.Equal(t, 2, tel.waitingCalls(t))
		requests.Wait()
		assert.Zero(t, tel.waitingCalls(t))
	})
}

func TestAReadThatBringsSomethingIsNoWait(t *testing.T) {
	tel := newTelemetry()
	_, err := read(t, t.Context(), otelretry.New(breaking(), resuming(), tel.options()...))
	require.NoError(t, err)
	assert.Equal(t, -1, tel.waitingCalls(t))
}

func TestAWaitOfAResumptionIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		policy := resuming()
		policy.Backoff = retryhttp.Constant(time.Second)
		rt := otelretry.New(breaking(5), policy, tel.options()...)
		go func() {
			time.Sleep(time.Second / 2)
			assert.Equal(t, 1, tel.waitingCalls(t))
		}()
		_, err := read(t, t.Context(), rt)
		require.NoError(t, err)
		assert.Zero(t, tel.waitingCalls(t))
	})
}

// late is a body that brings nothing, and breaks off a while after its context has ended.
type late struct{ hanging }

func (l late) Read(p []byte) (int, error) {
	n, err := l.hanging.Read(p)
	time.Sleep(100 * time.Millisecond)
	return n, err
}

// slow is a body that takes a second before each Read.
type slow struct{ io.ReadCloser }

func (s slow) Read(p []byte) (int, error) {
	time.Sleep(time.Second)
	return s.ReadCloser.Read(p)
}

// A body that breaks off where the caller does not read it is not resumed.
func TestABreakInTheBackgroundIsNoWait(t *testing.T) {
	answering := func(req *http.Request, status int) (*http.Response, error) {
		return &http.Response{StatusCode: status, ProtoMajor: 1, Body: late{hanging{req.Context()}}, Request: req}, nil
	}
	for name, tt := range map[string]struct {
		policy retryhttp.Policy
		base   roundTripperFunc
	}{
		"of a hedge that has lost": {hedging(), func(req *http.Request) (*http.Response, error) {
			time.Sleep(2 * hedgeAfter)
			if retryhttp.AttemptOf(req.Context()).Number == 2 {
				return answering(req, 200)
			}
			return serving(req)
		}},
		"of a hedge that has lost, during a Read": {hedging(), func(req *http.Request) (*http.Response, error) {
			time.Sleep(2 * hedgeAfter)
			if retryhttp.AttemptOf(req.Context()).Number == 2 {
				return answering(req, 200)
			}
			resp, err := serving(req)
			resp.Body = slow{resp.Body}
			return resp, err
		}},
		"of a resumption that has failed": {resuming(), func(req *http.Request) (*http.Response, error) {
			switch retryhttp.AttemptOf(req.Context()).Number {
			case 1:
				return breaking(5)(req)
			case 2:
				return answering(req, 503)
			}
			return serving(req)
		}},
		"of a resumption that has failed, during the next": {resuming(), func(req *http.Request) (*http.Response, error) {
			switch retryhttp.AttemptOf(req.Context()).Number {
			case 1:
				return breaking(5)(req)
			case 2:
				return answering(req, 503)
			}
			time.Sleep(time.Second)
			return serving(req)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tel := newTelemetry()
				tt.policy.Resume, tt.policy.AttemptTimeout = true, time.Hour
				go func() {
					time.Sleep(600 * time.Millisecond)
					assert.LessOrEqual(t, tel.waitingCalls(t), 0)
				}()
				got, err := read(t, t.Context(), otelretry.New(tt.base, tt.policy, tel.options()...))
				require.NoError(t, err)
				assert.Equal(t, poem, got)
				time.Sleep(time.Minute)
				assert.LessOrEqual(t, tel.waitingCalls(t), 0)
			})
		})
	}
}

// WithServer names servers by a table that the program changes.
func TestWaitEndsUnderTheNameUnderWhichItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel, name := newTelemetry(), "customer-1"
		rt := otelretry.New(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			if retryhttp.AttemptOf(req.Context()).Number < 2 {
				return nil, errors.New("broken")
			}
			return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, nil
		}), slowly(retryhttp.Policy{OnRetry: func(retryhttp.Attempt) { name = "customers" }}),
			append(tel.options(), otelretry.WithServer(func(*http.Request) string { return name }))...)
		_, err := send(t, t.Context(), rt, "GET", shop)
		require.NoError(t, err)
		for _, p := range tel.metric(t, "retryhttp.client.call.waiting").Data.(metricdata.Sum[int64]).DataPoints {
			assert.Zero(t, p.Value, p.Attributes)
		}
	})
}
