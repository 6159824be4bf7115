package retryhttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// deadlineIn returns how far away the deadline of ctx is, or 0 if there is none.
func deadlineIn(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return time.Until(deadline)
}

// endingIn returns a context that ends after d, or never if d is 0.
func endingIn(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

func TestAttemptsContextHasTheDeadlineOfAttemptTimeoutUntilTheHeader(t *testing.T) {
	for name, c := range map[string]struct {
		caller         time.Duration
		timeout        time.Duration
		first, retried time.Duration // deadlines of the two attempts
		later          time.Duration // after a minute
	}{
		"no deadline of the caller": {0, 10 * time.Second, 10 * time.Second, 10 * time.Second, 0},
		"a later one":               {time.Hour, 10 * time.Second, 10 * time.Second, 10 * time.Second, 59 * time.Minute},
		"one in the retry":          {72 * time.Second, 70 * time.Second, 70 * time.Second, 66 * time.Second, 6 * time.Second},
		"an earlier one":            {62 * time.Second, 70 * time.Second, 62 * time.Second, 56 * time.Second, -4 * time.Second},
		"no AttemptTimeout":         {time.Hour, 0, time.Hour, time.Hour - 6*time.Second, 59*time.Minute - 6*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent []context.Context
				var had []time.Duration
				base := script.Step(func(req *http.Request) (*http.Response, error) {
					derived, cancel := context.WithCancel(req.Context())
					defer cancel()
					sent, had = append(sent, req.Context()), append(had, deadlineIn(derived))
					time.Sleep(time.Second)
					return script.Response(req, 503-303*(len(sent)-1)), nil
				})
				ctx, cancel := endingIn(t.Context(), c.caller)
				defer cancel()
				p := retryhttp.Policy{AttemptTimeout: c.timeout, Backoff: retryhttp.Constant(5 * time.Second)}
				resp, err := retryhttp.New(base, p).RoundTrip(get(t, ctx))
				require.NoError(t, err)
				defer resp.Body.Close()
				require.Equal(t, 200, resp.StatusCode)
				assert.Equal(t, []time.Duration{c.first, c.retried}, had)
				want, _ := ctx.Deadline()
				for _, sent := range sent {
					got, ok := sent.Deadline()
					assert.Equal(t, want, got)
					assert.Equal(t, c.caller > 0, ok)
				}
			})
		})
	}
}

func TestAttemptsContextHasTheDeadlineOfAttemptTimeoutWhileABodyIsBuffered(t *testing.T) {
	for name, length := range map[string]int{"the whole body": 4, "a long body": 12} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var deadlines []time.Duration // since the start
				base := script.New(func(req *http.Request) (*http.Response, error) {
					time.Sleep(time.Second)
					return script.Respond(200, &bodies.Hooked{OnRead: func(p []byte) (int, error) {
						deadline, _ := req.Context().Deadline()
						deadlines = append(deadlines, deadline.Sub(began))
						if len(deadlines) > length {
							return 0, io.EOF
						}
						return copy(p, "x"), nil
					}})(req)
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				p := retryhttp.Policy{AttemptTimeout: 10 * time.Second, BufferBytes: 6}
				resp, err := retryhttp.New(base, p).RoundTrip(get(t, ctx))
				require.NoError(t, err)
				got, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				assert.Len(t, got, length)
				for i, d := range deadlines {
					assert.Equal(t, map[bool]time.Duration{true: 10 * time.Second, false: time.Hour}[i < 7], d)
				}
			})
		})
	}
}

// A limiter refuses what it could not let pass in time. Without the deadline, it would reserve a
// place and wait for the AttemptTimeout.
func TestLimiterBelowRefusesAnAttemptAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := rate.NewLimiter(rate.Every(10*time.Second), 1)
		base := script.New(script.Status(200))
		limited := script.Step(func(req *http.Request) (*http.Response, error) {
			if err := limiter.Wait(req.Context()); err != nil {
				return nil, err
			}
			return base.RoundTrip(req)
		})
		p := retryhttp.Policy{AttemptTimeout: 2 * time.Second, MaxAttempts: 5, Backoff: retryhttp.Constant(3 * time.Second)}
		var failures []retryhttp.Attempt
		p.OnRetry = func(a retryhttp.Attempt) { failures = append(failures, a) }
		rt := retryhttp.New(limited, p)
		began := time.Now()
		for _, attempts := range []int{1, 4} {
			resp, err := rt.RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
			assert.Equal(t, attempts, retryhttp.OutcomeOf(resp).Attempts)
		}
		assert.InDelta(t, 10*time.Second, time.Since(began), float64(time.Microsecond), "three refusals, and a second in the limiter")
		for _, a := range failures {
			assert.ErrorContains(t, a.Err, "would exceed context deadline")
			assert.Zero(t, a.Elapsed)
		}
	})
}

// propagating is a base that passes on how much time is left, as gRPC does.
type propagating struct{ base http.RoundTripper }

func (p propagating) RoundTrip(req *http.Request) (*http.Response, error) {
	own := req.Clone(req.Context())
	own.Header.Set("Timeout", deadlineIn(req.Context()).String())
	return p.base.RoundTrip(own)
}

func TestDeadlineIsPassedOnPerAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script.New(script.Status(503), script.Status(503), script.Status(200))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		p := retryhttp.Policy{AttemptTimeout: time.Second, Backoff: retryhttp.Constant(1200 * ms)}
		resp, err := retryhttp.New(propagating{base}, p).RoundTrip(get(t, ctx))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		var timeouts []string
		for _, req := range base.Requests() {
			timeouts = append(timeouts, req.Header.Get("Timeout"))
		}
		assert.Equal(t, []string{"1s", "1s", "600ms"}, timeouts)
	})
}

// A hedge has an AttemptTimeout of its own, and the same caller.
func TestDeadlineOfAHedgeIsItsOwn(t *testing.T) {
	for name, c := range map[string]struct{ caller, first, hedge time.Duration }{
		"no deadline of the caller": {0, 80 * ms, 80 * ms},
		"a later one":               {time.Second, 80 * ms, 80 * ms},
		"one in between":            {100 * ms, 80 * ms, 50 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var had []time.Duration
				see := func(req *http.Request) {
					mu.Lock()
					defer mu.Unlock()
					had = append(had, deadlineIn(req.Context()))
				}
				p := hedging()
				p.AttemptTimeout = 80 * ms
				ctx, cancel := endingIn(t.Context(), c.caller)
				defer cancel()
				r := newTrack(lap{do: see}, lap{after: ms, code: 200, do: see})
				f := r.runOn(t, p, get(t, ctx))
				assert.Equal(t, []time.Duration{c.first, c.hedge}, had)
				assert.True(t, f.out.HedgeWon)
				want, _ := ctx.Deadline()
				got, _ := r.attempts()[1].req.Context().Deadline()
				assert.Equal(t, want, got)
			})
		})
	}
}

func TestDeadlineThroughNestedTransports(t *testing.T) {
	for name, c := range map[string]struct{ outer, inner, want time.Duration }{
		"the outer is earlier": {time.Second, time.Minute, time.Second},
		"the inner is earlier": {time.Minute, time.Second, time.Second},
		"the outer alone":      {time.Second, 0, time.Second},
		"the inner alone":      {0, time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var had time.Duration
				var sent context.Context
				base := script.New(func(req *http.Request) (*http.Response, error) {
					sent, had = req.Context(), deadlineIn(req.Context())
					return script.Respond(200, &bodies.Hooked{OnRead: strings.NewReader("x").Read})(req)
				})
				inner := retryhttp.New(base, retryhttp.Policy{AttemptTimeout: c.inner})
				resp, err := retryhttp.New(inner, retryhttp.Policy{AttemptTimeout: c.outer}).RoundTrip(get(t, t.Context()))
				require.NoError(t, err)
				assert.Equal(t, c.want, had)
				assert.Zero(t, deadlineIn(sent))
				time.Sleep(time.Hour)
				assert.NoError(t, sent.Err())
				require.NoError(t, resp.Body.Close())
			})
		})
	}
}

// The inner Transport does not begin a wait that the outer AttemptTimeout would end.
func TestNestedTransportDoesNotWaitForLongerThanTheAttemptTimeoutAbove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script.New(script.Status(503, "Retry-After", "20"))
		inner := retryhttp.New(base, retryhttp.Policy{})
		began := time.Now()
		resp, err := retryhttp.New(inner, retryhttp.Policy{AttemptTimeout: 10 * time.Second}).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		assert.Equal(t, 503, resp.StatusCode)
		assert.Equal(t, retryhttp.StopNested, retryhttp.OutcomeOf(resp).Stop)
		assert.Zero(t, time.Since(began))
	})
}

// The race detector checks that Deadline may be called at any time.
func TestDeadlineMayBeReadWhileTheHeaderArrives(t *testing.T) {
	for range 200 {
		var reading sync.WaitGroup
		done := make(chan struct{})
		base := script.New(func(req *http.Request) (*http.Response, error) {
			reading.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
						_ = deadlineIn(req.Context())
						_ = fmt.Sprint(req.Context())
					}
				}
			})
			return script.Response(req, 200), nil
		})
		resp, err := retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Minute}).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		close(done)
		reading.Wait()
	}
}
