package retryhttp_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

func TestBackoffGetsItsPredecessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type call struct {
			n    int
			prev time.Duration
		}
		var calls []call
		base := script.New(script.Status(503, "Retry-After", "7"))
		rt := retryhttp.New(base, retryhttp.Policy{Backoff: func(n int, prev time.Duration) time.Duration {
			calls = append(calls, call{n, prev})
			return time.Duration(n) * 10 * time.Second
		}})
		resp, err := rt.RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, []call{{1, 0}, {2, 10 * time.Second}, {3, 20 * time.Second}}, calls)
		assert.Equal(t, []time.Duration{17 * time.Second, 27 * time.Second, 37 * time.Second}, base.Waits())
	})
}

func TestBackoffThatIsNegativeIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var prevs []time.Duration
		base := script.New(script.Status(503, "Retry-After-Ms", "1"))
		backoff := func(_ int, prev time.Duration) time.Duration {
			prevs = append(prevs, prev)
			return math.MinInt64
		}
		resp, err := retryhttp.New(base, retryhttp.Policy{MaxAttempts: 3, Backoff: backoff}).RoundTrip(get(t, ctx))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, retryhttp.StopAttempts, retryhttp.OutcomeOf(resp).Stop)
		assert.Equal(t, []time.Duration{0, 0}, prevs)
		for _, wait := range base.Waits() {
			assert.GreaterOrEqual(t, wait, time.Millisecond)
			assert.LessOrEqual(t, wait, 3*time.Millisecond/2)
		}
	})
}

func TestRetryAfterIsAMinimumAndSpreadInProportion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const asked = 10 * time.Second
		base := script.New(script.Status(503, "Retry-After", "10"), script.Status(200))
		var sum, least, most time.Duration
		const rounds = 2000
		for i := range rounds {
			base := script.New(base.Steps...)
			p := retryhttp.Policy{Backoff: retryhttp.Constant(time.Second)}
			resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			wait := base.Waits()[0]
			require.GreaterOrEqual(t, wait, asked+time.Second, "never sooner than asked, plus the backoff")
			require.LessOrEqual(t, wait, asked+asked/2)
			if i == 0 {
				least, most = wait, wait
			}
			least, most, sum = min(least, wait), max(most, wait), sum+wait
		}
		// The spread is max(1s, U(0, 5s)). Its mean is 2.6 s and its standard
		// deviation 1.31 s, so six deviations of the mean are 0.18 s.
		assert.InDelta(t, 12.6, (sum / rounds).Seconds(), 0.18)
		assert.Equal(t, 11*time.Second, least)
		assert.Greater(t, most, 14900*time.Millisecond)
	})
}

func TestRetryAfterSpreadMakesDoWithTheTimeLeft(t *testing.T) {
	cases := []struct {
		name     string
		deadline time.Duration // of the context
		elapsed  time.Duration // MaxElapsed
		backoff  time.Duration
		stop     retryhttp.Stop
	}{
		{name: "room for Retry-After and little more", deadline: 10*time.Second + 2, stop: retryhttp.StopFinal},
		{name: "room for exactly Retry-After", deadline: 10*time.Second + 1, stop: retryhttp.StopFinal},
		{name: "no room for Retry-After", deadline: 10 * time.Second, stop: retryhttp.StopDeadline},
		{name: "exactly MaxElapsed", elapsed: 10 * time.Second, stop: retryhttp.StopFinal},
		{name: "more than MaxElapsed", elapsed: 10*time.Second - 1, stop: retryhttp.StopDeadline},
		{name: "the backoff fits", elapsed: 11 * time.Second, backoff: time.Second, stop: retryhttp.StopFinal},
		{name: "the backoff is not cut", elapsed: 11*time.Second - 1, backoff: time.Second, stop: retryhttp.StopDeadline},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for range 50 { // chance must not decide
					ctx := t.Context()
					if tc.deadline > 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, tc.deadline)
						defer cancel()
					}
					base := script.New(script.Status(503, "Retry-After", "10"), script.Status(200))
					start := time.Now()
					p := retryhttp.Policy{Backoff: retryhttp.Constant(tc.backoff), MaxElapsed: tc.elapsed}
					resp, err := retryhttp.New(base, p).RoundTrip(get(t, ctx))
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					require.Equal(t, tc.stop, retryhttp.OutcomeOf(resp).Stop)
					if tc.stop == retryhttp.StopDeadline {
						require.Zero(t, time.Since(start), "no sleep")
					} else {
						require.GreaterOrEqual(t, base.Waits()[0], 10*time.Second)
					}
				}
			})
		})
	}
}

// Retry-After plus backoff must saturate.
func TestRetryAfterThatIsHugeIsWaitedFor(t *testing.T) {
	for _, v := range []string{"9223372036", "99999999999999999999"} {
		t.Run(v, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), math.MaxInt64)
				_ = ctx
				defer cancel()
				cctx, stop := context.WithCancel(t.Context())
				time.AfterFunc(time.Hour, stop)
				base := script.New(script.Status(503, "Retry-After", v))
				p := retryhttp.Policy{
					MaxRetryAfter: math.MaxInt64, Backoff: retryhttp.Constant(time.Second), Budget: retryhttp.Unlimited{},
				}
				_, err := retryhttp.New(base, p).RoundTrip(get(t, cctx))
				assert.Error(t, err)
				assert.Len(t, base.Requests(), 1, "attempts within the hour, waits %v", base.Waits())
			})
		})
	}
}

func TestMaxElapsedAllowsAWaitThatEndsExactlyThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := retryhttp.Policy{
			MaxAttempts: -1, MaxElapsed: 15 * time.Minute,
			Backoff: retryhttp.Constant(time.Minute), Budget: retryhttp.Unlimited{},
		}
		starts, outcome := outage(t, p)
		assert.Len(t, starts, 16)
		assert.Equal(t, 15*time.Minute, outcome.Elapsed)
		assert.Equal(t, retryhttp.StopDeadline, outcome.Stop)

		p.MaxElapsed--
		starts, outcome = outage(t, p)
		assert.Len(t, starts, 15)
		assert.Equal(t, 14*time.Minute, outcome.Elapsed, "and the wait that does not fit is not begun")
		assert.Equal(t, retryhttp.StopDeadline, outcome.Stop)
	})
}

func TestCancelDuringAWait(t *testing.T) {
	cause := errors.New("the user went away")
	cases := []struct {
		name   string
		step   script.Step
		last   error
		text   string
		ctxErr error
		ctx    func(context.Context) (context.Context, func())
	}{
		{
			name: "after an error", step: script.Fail(errBroken), last: errBroken, ctxErr: context.Canceled,
			text: "connection broken",
			ctx: func(ctx context.Context) (context.Context, func()) {
				ctx, cancel := context.WithCancelCause(ctx)
				return ctx, func() { cancel(cause) }
			},
		},
		{
			name: "after a response", step: script.Status(503), ctxErr: context.Canceled,
			text: "the last response was 503 Service Unavailable",
			ctx: func(ctx context.Context) (context.Context, func()) {
				ctx, cancel := context.WithCancelCause(ctx)
				return ctx, func() { cancel(cause) }
			},
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := tc.ctx(t.Context())
				budget := &countingBudget{}
				var done []retryhttp.Outcome
				body := &bodies.Tracked{Reader: strings.NewReader("all")}
				req, err := http.NewRequestWithContext(ctx, "PUT", "http://host.example/", body)
				require.NoError(t, err)
				start := time.Now()
				time.AfterFunc(1500*time.Millisecond, cancel)

				resp, err := retryhttp.New(script.New(tc.step), retryhttp.Policy{
					Budget:  budget,
					Backoff: retryhttp.Constant(time.Second),
					OnDone:  func(_ retryhttp.Attempt, o retryhttp.Outcome) { done = append(done, o) },
				}).RoundTrip(req)

				assert.Equal(t, 1500*time.Millisecond, time.Since(start), "promptly")
				assert.Nil(t, resp)
				e := errorOf(t, err)
				want := retryhttp.Outcome{
					Attempts: 2, Elapsed: 1500 * time.Millisecond, Waited: 1500 * time.Millisecond,
					Stop: retryhttp.StopCanceled, Ambiguous: true,
				}
				assert.Equal(t, want, e.Outcome)
				assert.Equal(t, []retryhttp.Outcome{want}, done)
				assert.ErrorIs(t, err, cause)
				assert.ErrorIs(t, err, tc.ctxErr)
				if tc.last != nil {
					assert.ErrorIs(t, err, tc.last)
				}
				assert.EqualError(t, err, "gave up after 2 attempts in 1.5s (canceled: the user went away): "+tc.text)
				assert.Equal(t, 2, budget.withdrawn)
				assert.Equal(t, 1, budget.refunded, "the retry that was not sent")
				assert.Equal(t, int32(1), body.Closes.Load())
			})
		})
	}
}

// After one attempt, the base's text stands. A response has none.
func TestTextOfACancelDuringTheFirstWait(t *testing.T) {
	for want, step := range map[string]script.Step{
		"connection broken": script.Fail(errBroken),
		"the user went away: the last response was 503 Service Unavailable": script.Status(503),
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			cause := errors.New("the user went away")
			time.AfterFunc(time.Second, func() { cancel(cause) })
			p := retryhttp.Policy{Backoff: retryhttp.Constant(time.Hour)}
			_, err := retryhttp.New(script.New(step), p).RoundTrip(get(t, ctx)) //nolint:bodyclose // there is none
			assert.EqualError(t, err, want)
			assert.ErrorIs(t, err, cause)
		})
	}
}

func TestContextThatEndedBefore(t *testing.T) {
	cause := errors.New("shutting down")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for _, getBody := range []bool{false, true} {
		t.Run("GetBody "+strconv.FormatBool(getBody), func(t *testing.T) {
			body := &bodies.Tracked{Reader: strings.NewReader("x")}
			req, err := http.NewRequestWithContext(ctx, "PUT", "http://host.example/", body)
			require.NoError(t, err)
			if getBody {
				req.GetBody = func() (io.ReadCloser, error) { return http.NoBody, nil }
			}
			var done []retryhttp.Outcome
			base := script.New(script.Status(200))
			budget := &countingBudget{}

			onDone := func(a retryhttp.Attempt, o retryhttp.Outcome) {
				assert.Equal(t, retryhttp.Attempt{Request: req, Err: cause}, a)
				done = append(done, o)
			}
			resp, err := retryhttp.New(base, retryhttp.Policy{Budget: budget, OnDone: onDone}).RoundTrip(req)

			assert.Nil(t, resp)
			e := errorOf(t, err)
			assert.Equal(t, cause, e.Err)
			assert.ErrorIs(t, err, context.Canceled)
			assert.EqualError(t, err, "shutting down")
			assert.Equal(t, 0, e.Attempts)
			assert.Equal(t, retryhttp.StopCanceled, e.Stop)
			assert.Len(t, done, 1)
			assert.Empty(t, base.Requests())
			assert.Equal(t, int32(1), body.Closes.Load())
			assert.Zero(t, budget.withdrawn+budget.refunded+budget.deposit)
		})
	}
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
