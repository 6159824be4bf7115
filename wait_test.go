package retryhttp_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// The predecessor is the backoff alone, without what the server asked. A negative backoff is none.
func TestBackoffGetsItsPredecessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type call struct {
			n    int
			prev time.Duration
		}
		var calls []call
		backoffs := []time.Duration{10 * time.Second, math.MinInt64, 30 * time.Second}
		base := script.New(script.Status(503, "Retry-After", "7"))
		rt := retryhttp.New(base, retryhttp.Policy{Backoff: func(n int, prev time.Duration) time.Duration {
			calls = append(calls, call{n, prev})
			return backoffs[n-1]
		}})
		answerTo(t, rt, get(t, t.Context()))
		assert.Equal(t, []call{{1, 0}, {2, 10 * time.Second}, {3, 0}}, calls)
		waits := base.Waits()
		assert.Equal(t, 17*time.Second, waits[0])
		assert.GreaterOrEqual(t, waits[1], 7*time.Second)
		assert.LessOrEqual(t, waits[1], 10500*ms)
		assert.Equal(t, 37*time.Second, waits[2])
	})
}

// Retry-After plus backoff must saturate.
func TestRetryAfterThatIsHugeIsWaitedFor(t *testing.T) {
	for _, v := range []string{"9223372036", "99999999999999999999"} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Hour, cancel)
			base := script.New(script.Status(503, "Retry-After", v))
			p := retryhttp.Policy{
				MaxRetryAfter: math.MaxInt64, Backoff: retryhttp.Constant(time.Second), Budget: retryhttp.Unlimited{},
			}
			_, err := retryhttp.New(base, p).RoundTrip(get(t, ctx))
			assert.Error(t, err)
			assert.Len(t, base.Requests(), 1, "attempts within the hour, %s", v)
		})
	}
}

func TestCancelDuringAWait(t *testing.T) {
	const twice = "gave up after 2 attempts in 1.5s (canceled: the user went away): "
	for _, c := range []struct {
		step     script.Step
		attempts int
		text     string
	}{
		// After one attempt, the base's text stands. A response has none.
		{script.Fail(errBroken), 1, "connection broken"},
		{script.Status(503), 1, "the user went away: the last response was 503 Service Unavailable"},
		{script.Fail(errBroken), 2, twice + "connection broken"},
		{script.Status(503), 2, twice + "the last response was 503 Service Unavailable"},
	} {
		t.Run(c.text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				cause, after := errors.New("the user went away"), time.Duration(c.attempts)*time.Second-500*ms
				time.AfterFunc(after, func() { cancel(cause) })
				budget := &countingBudget{}
				var done []retryhttp.Outcome
				body := &bodies.Tracked{Reader: strings.NewReader("all")}
				req := uploadOf(t, body).WithContext(ctx)
				start := time.Now()

				resp, err := retryhttp.New(script.New(c.step), retryhttp.Policy{
					Budget:  budget,
					Backoff: retryhttp.Constant(time.Second),
					OnDone: func(a retryhttp.Attempt, o retryhttp.Outcome) {
						assert.Zero(t, a.Wait, "it was cut off")
						done = append(done, o)
					},
				}).RoundTrip(req)

				assert.Equal(t, after, time.Since(start), "promptly")
				assert.Nil(t, resp)
				want := retryhttp.Outcome{
					Attempts: c.attempts, Elapsed: after, Waited: after, Stop: retryhttp.StopCanceled, Ambiguous: true,
				}
				assert.Equal(t, want, errorOf(t, err).Outcome)
				assert.Equal(t, []retryhttp.Outcome{want}, done)
				assert.ErrorIs(t, err, cause)
				assert.ErrorIs(t, err, context.Canceled)
				assert.Equal(t, strings.HasSuffix(c.text, "broken"), errors.Is(err, errBroken), "the last failure")
				assert.EqualError(t, err, c.text)
				assert.Equal(t, c.attempts, budget.withdrawn)
				assert.Equal(t, 1, budget.refunded, "the retry that was not sent")
				assert.EqualValues(t, 1, body.Closes.Load())
			})
		})
	}
}

func TestContextThatEndedBefore(t *testing.T) {
	cause := errors.New("shutting down")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	body := &bodies.Tracked{Reader: strings.NewReader("x")}
	req := uploadOf(t, body).WithContext(ctx)
	req.GetBody = func() (io.ReadCloser, error) { return http.NoBody, nil }
	done := 0
	base, budget := script.New(script.Status(200)), &countingBudget{}
	p := retryhttp.Policy{Budget: budget, OnDone: func(a retryhttp.Attempt, _ retryhttp.Outcome) {
		assert.Equal(t, retryhttp.Attempt{Request: req, Err: cause}, a)
		done++
	}}

	resp, err := retryhttp.New(base, p).RoundTrip(req)

	assert.Nil(t, resp)
	e := errorOf(t, err)
	assert.Equal(t, cause, e.Err)
	assert.ErrorIs(t, err, context.Canceled)
	assert.EqualError(t, err, "shutting down")
	assert.Equal(t, 0, e.Attempts)
	assert.Equal(t, retryhttp.StopCanceled, e.Stop)
	assert.Equal(t, 1, done)
	assert.Empty(t, base.Requests())
	assert.EqualValues(t, 1, body.Closes.Load())
	assert.Zero(t, budget.withdrawn+budget.refunded+budget.deposit)
}

func TestDeadlineCauseIsFoundThoughTheContextNoticesLate(t *testing.T) {
	cause := errors.New("the shop closes")
	for range 50 { // chance decides which comes first
		synctest.Test(t, func(t *testing.T) {
			deadline := time.Now().Add(time.Second)
			ctx, cancel := context.WithDeadlineCause(t.Context(), deadline, cause)
			defer cancel()
			base := script.New(func(*http.Request) (*http.Response, error) {
				time.Sleep(time.Until(deadline))
				return nil, errBroken
			})
			_, err := retryhttp.New(base, retryhttp.Policy{}).RoundTrip(get(t, ctx))
			assert.ErrorIs(t, err, cause)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorIs(t, err, errBroken)
		})
	}
}
