package retryhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
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

// attempts sends a request with ctx through rt, which gets only 503s, and returns
// how many attempts were made.
func attempts(t *testing.T, rt http.RoundTripper, ctx context.Context) int {
	t.Helper()
	resp, err := rt.RoundTrip(get(t, ctx))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return retryhttp.OutcomeOf(resp).Attempts
}

func TestWithPolicyChangesOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := retryhttp.New(script.New(script.Status(503)), retryhttp.Policy{MaxAttempts: 2, Budget: retryhttp.Unlimited{}})
		ctx := retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) { p.MaxAttempts = 7 })
		assert.Equal(t, 7, attempts(t, rt, ctx))
		assert.Equal(t, 2, attempts(t, rt, t.Context()))
	})
}

func TestWithPolicyEditsTheResolvedPolicy(t *testing.T) {
	rt := retryhttp.New(script.New(script.Status(503)), retryhttp.Policy{})
	var seen retryhttp.Policy
	ctx := retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) {
		seen = *p
		p.MaxAttempts = 1
	})
	assert.Equal(t, 1, attempts(t, rt, ctx))
	assert.Equal(t, 4, seen.MaxAttempts)
	assert.Equal(t, time.Minute, seen.MaxRetryAfter)
	assert.Equal(t, int64(64<<10), seen.RecordBytes)
	assert.IsType(t, &retryhttp.TokenBucket{}, seen.Budget)
	assert.NotNil(t, seen.Backoff)
	assert.NotNil(t, seen.Classify)
	assert.NotNil(t, seen.Idempotent)
	assert.LessOrEqual(t, seen.Backoff(1, 0), 250*time.Millisecond)
	for _, unset := range []string{
		"MaxElapsed", "AttemptTimeout", "IdempotencyKey", "RetryUnprocessed", "OnRetry", "OnDone", "Logger",
	} {
		assert.True(t, reflect.ValueOf(seen).FieldByName(unset).IsZero(), unset)
	}
}

func TestWithPolicySettingAFieldToZeroMeansItsDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := &retryhttp.TokenBucket{Burst: 1}
		policy := retryhttp.Policy{
			MaxAttempts: 9, Budget: own, Classify: func(retryhttp.Attempt) retryhttp.Class { return retryhttp.Final },
		}
		rt := retryhttp.New(script.New(script.Status(503)), policy)
		zero := func(p *retryhttp.Policy) { *p = retryhttp.Policy{} }
		assert.Equal(t, 4, attempts(t, rt, retryhttp.WithPolicy(t.Context(), zero)))
		assert.Equal(t, 3, attempts(t, rt, retryhttp.WithPolicy(t.Context(), zero)),
			"the Transport's own bucket had 5 tokens, for all of its requests")
		assert.Equal(t, 1.0, own.Status(get(t, t.Context())).Tokens)
	})
}

func TestWithPolicyNestsOutermostFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := retryhttp.New(script.New(script.Status(503)), retryhttp.Policy{MaxAttempts: 10, Budget: retryhttp.Unlimited{}})
		ctx := retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) { p.MaxAttempts = 2 })
		ctx = retryhttp.WithPolicy(ctx, func(p *retryhttp.Policy) { p.MaxAttempts *= 3 })
		assert.Equal(t, 6, attempts(t, rt, ctx))

		var seen int
		ctx = retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) { p.MaxAttempts = 0 })
		ctx = retryhttp.WithPolicy(ctx, func(p *retryhttp.Policy) { seen = p.MaxAttempts })
		assert.Equal(t, 4, attempts(t, rt, ctx))
		assert.Equal(t, 4, seen, "each edit sees a resolved policy")
	})
}

func TestWithPolicyReachesEveryTransportBelow(t *testing.T) {
	edits := 0
	ctx := retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) { edits++; p.MaxAttempts = 1 })
	rt := retryhttp.New(retryhttp.New(script.New(script.Status(503)), retryhttp.Policy{}), retryhttp.Policy{})
	assert.Equal(t, 1, attempts(t, rt, ctx))
	assert.Equal(t, 2, edits)
}

func TestWithPolicyOfNothing(t *testing.T) {
	assert.Equal(t, t.Context(), retryhttp.WithPolicy(t.Context(), nil))
}

func TestWithPolicyEditThatPanicsClosesTheBody(t *testing.T) {
	body := &bodies.Tracked{Reader: strings.NewReader("x")}
	ctx := retryhttp.WithPolicy(t.Context(), func(*retryhttp.Policy) { panic(http.ErrAbortHandler) })
	req, _ := http.NewRequestWithContext(ctx, "POST", "http://server/", body)
	assert.Panics(t, func() { retryhttp.New(script.New(script.Status(503)), retryhttp.Policy{}).RoundTrip(req) })
	assert.Equal(t, int32(1), body.Closes.Load())
}

func TestPolicyBudgetThatIsANilBucketIsTheDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var none *retryhttp.TokenBucket
		rt := retryhttp.New(script.New(script.Status(503)), retryhttp.Policy{Budget: none})
		assert.Equal(t, 4, attempts(t, rt, t.Context()))
		assert.Equal(t, 3, attempts(t, rt, t.Context()))
	})
}

func TestPolicyDefaultBudgetIsTheTransportsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script.New(script.Status(503))
		one, other := retryhttp.New(base, retryhttp.Policy{}), retryhttp.New(base, retryhttp.Policy{})
		assert.Equal(t, 4, attempts(t, one, t.Context()))
		assert.Equal(t, 3, attempts(t, one, t.Context()))
		assert.Equal(t, 4, attempts(t, other, t.Context()))
	})
}

// asks is a Policy.RetryAfter for servers that name a wait in a header of their own.
func asks(a retryhttp.Attempt) (time.Duration, bool) {
	d, err := time.ParseDuration(a.Response.Header.Get("Reset"))
	return d, err == nil
}

// heeds is a Policy whose backoff is short, so that a wait is the server's.
func heeds() retryhttp.Policy {
	return retryhttp.Policy{RetryAfter: asks, Backoff: retryhttp.Constant(time.Millisecond), Budget: retryhttp.Unlimited{}}
}

// requireAsked requires a wait as the server has asked for it, with half of it added at most.
func requireAsked(t *testing.T, asked, waited time.Duration) {
	t.Helper()
	require.GreaterOrEqual(t, waited, asked)
	require.LessOrEqual(t, waited, asked+asked/2+time.Millisecond)
}

func TestPolicyRetryAfterSaysHowLongTheServerAsks(t *testing.T) {
	for name, c := range map[string]struct {
		header   []string
		asked    time.Duration
		stop     retryhttp.Stop
		attempts int
	}{
		"in a field of its own":         {[]string{"Reset", "5s"}, 5 * time.Second, retryhttp.StopFinal, 2},
		"beside a Retry-After":          {[]string{"Reset", "5s", "Retry-After", "50"}, 5 * time.Second, retryhttp.StopFinal, 2},
		"not at all":                    {[]string{"Retry-After", "50"}, 0, retryhttp.StopFinal, 2},
		"no wait":                       {[]string{"Reset", "0s"}, 0, retryhttp.StopFinal, 2},
		"a time that has passed":        {[]string{"Reset", "-5s"}, 0, retryhttp.StopFinal, 2},
		"for longer than MaxRetryAfter": {[]string{"Reset", "61s"}, 0, retryhttp.StopRetryAfter, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := script.New(script.Status(503, c.header...), script.Status(200))
				began := time.Now()
				resp, err := retryhttp.New(base, heeds()).RoundTrip(get(t, t.Context()))
				require.NoError(t, err)
				requireAsked(t, c.asked, time.Since(began))
				assert.Equal(t, c.stop, retryhttp.OutcomeOf(resp).Stop)
				assert.Len(t, base.Requests(), c.attempts)
			})
		})
	}
}

func TestPolicyRetryAfterThatIsNotAskedCountsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := heeds()
		p.RetryAfter = func(retryhttp.Attempt) (time.Duration, bool) { return time.Hour, false }
		p.Gate = &retryhttp.Gate{}
		p.OnRetry = func(retryhttp.Attempt) {
			closed := p.Gate.Status(get(t, t.Context())).Closed
			assert.Zero(t, closed)
		}
		began := time.Now()
		resp, err := retryhttp.New(script.New(script.Status(429), script.Status(200)), p).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, time.Millisecond, time.Since(began))
	})
}

// Google's APIs name the wait in the details of an error.
func TestPolicyRetryAfterReadsABufferedBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := heeds()
		p.BufferBytes = 100
		p.RetryAfter = func(a retryhttp.Attempt) (time.Duration, bool) {
			d, err := time.ParseDuration(string(a.Body))
			return d, err == nil
		}
		base := script.New(sends(503, "7s", io.EOF), script.Status(200))
		began := time.Now()
		_, err := download(t, base, p)
		require.NoError(t, err)
		requireAsked(t, 7*time.Second, time.Since(began))
	})
}

func TestPolicyRetryAfterIsAskedAboutABodyThatBrokeOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := heeds()
		p.BufferBytes = 100
		p.RetryAfter = func(a retryhttp.Attempt) (time.Duration, bool) {
			assert.Equal(t, errLost, a.Err)
			_, err := a.Response.Body.Read(make([]byte, 1))
			assert.ErrorContains(t, err, "must not read")
			return asks(a)
		}
		base := script.New(sends(200, "{", errLost, "Reset", "3s"), script.Status(200))
		began := time.Now()
		_, err := download(t, base, p)
		require.NoError(t, err)
		requireAsked(t, 3*time.Second, time.Since(began))
	})
}

// The function may be slow, or count. It is not needed for a success.
func TestPolicyRetryAfterIsCalledOnceForAFailedAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var about []int
		p := heeds()
		p.Budget = &retryhttp.TokenBucket{}
		p.RetryAfter = func(a retryhttp.Attempt) (time.Duration, bool) {
			about = append(about, a.Response.StatusCode)
			return asks(a)
		}
		exhausted := []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1"}
		rt := retryhttp.New(script.New(
			script.Status(429, exhausted...), script.Fail(errors.New("lost")), script.Status(503), script.Status(200),
			script.Status(404), script.Status(200, exhausted...),
		), p)
		for range 3 {
			_, err := rt.RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
		}
		assert.Equal(t, []int{429, 503, 200}, about)
	})
}

func TestPolicyRetryAfterKnowsHowLongASuccessTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := heeds()
		p.RetryAfter = func(a retryhttp.Attempt) (time.Duration, bool) {
			assert.Equal(t, time.Second, a.Elapsed)
			return 0, false
		}
		_, err := download(t, script.New(func(req *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return script.Status(200, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1")(req)
		}), p)
		require.NoError(t, err)
	})
}

func TestPanicOfPolicyRetryAfterSurfaces(t *testing.T) {
	p := heeds()
	gate, budget := &retryhttp.Gate{}, &countingBudget{}
	p.Gate, p.Budget = gate, budget
	p.RetryAfter = func(retryhttp.Attempt) (time.Duration, bool) { panic("no") }
	body := &closeCounter{}
	base := script.New(script.Respond(503, body))
	assert.PanicsWithValue(t, "no", func() { _, _ = retryhttp.New(base, p).RoundTrip(requestTo("host")) })
	assert.Equal(t, 1, body.closes)
	assert.Zero(t, retryhttp.InTrouble(gate, "host"))
	assert.Zero(t, budget.withdrawn)
}

// closeCounter is an empty body that counts its closes.
type closeCounter struct{ closes int }

func (*closeCounter) Read([]byte) (int, error) { return 0, io.EOF }
func (b *closeCounter) Close() error           { b.closes++; return nil }

func TestGateHeedsPolicyRetryAfter(t *testing.T) {
	for _, code := range []int{503, 429} {
		synctest.Test(t, func(t *testing.T) {
			p := heeds()
			p.Gate, p.MaxAttempts = &retryhttp.Gate{}, 1
			resp, err := retryhttp.New(script.New(script.Status(code, "Reset", "4s")), p).RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			want := retryhttp.GateStatus{Closed: 4 * time.Second}
			assert.Equal(t, want, p.Gate.Status(get(t, t.Context())), "%d", code)
		})
	}
}

// A server that asks for a wait is not down, and a retry that it has invited costs a third.
func TestBudgetHeedsPolicyRetryAfter(t *testing.T) {
	for _, code := range []int{503, 429} {
		synctest.Test(t, func(t *testing.T) {
			p := heeds()
			bucket := &retryhttp.TokenBucket{}
			p.Budget = bucket
			req := get(t, t.Context())
			before := bucket.Status(req).Tokens
			p.OnRetry = func(retryhttp.Attempt) {
				paid := map[int]float64{503: 1, 429: 1. / 3}[code]
				assert.InDelta(t, before-paid, bucket.Status(req).Tokens, 1e-9, "%d", code)
			}
			resp, err := retryhttp.New(script.New(script.Status(code, "Reset", "1s"), script.Status(200)), p).RoundTrip(req)
			require.NoError(t, err)
			assert.Equal(t, 2, retryhttp.OutcomeOf(resp).Attempts)
		})
	}
}

func TestHedgeHeedsPolicyRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := heeds()
		p.Hedge = &retryhttp.Hedge{After: 10 * time.Millisecond, Share: 1}
		slowly := func(req *http.Request) (*http.Response, error) {
			time.Sleep(20 * time.Millisecond)
			return script.Status(503)(req)
		}
		base := script.New(slowly, script.Status(503, "Reset", "6s"), script.Status(200))
		began := time.Now()
		resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		requireAsked(t, 6*time.Second, time.Since(began)-10*time.Millisecond)
	})
}

func TestResumptionHeedsPolicyRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := heeds()
		p.Resume = true
		base := script.New(cutAfter(9), script.Status(503, "Reset", "8s"), rest(9))
		began := time.Now()
		got, err := download(t, base, p)
		require.NoError(t, err)
		assert.Equal(t, object, got)
		requireAsked(t, 8*time.Second, time.Since(began)-time.Millisecond)
	})
}

// An edit may fall back on the function that it finds.
func TestWithPolicyFindsARetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) {
			found := p.RetryAfter
			p.RetryAfter = func(a retryhttp.Attempt) (time.Duration, bool) {
				d, ok := found(a)
				return d + time.Second, ok
			}
		})
		base := script.New(script.Status(503, "Retry-After", "2"), script.Status(200))
		began := time.Now()
		_, err := retryhttp.New(base, retryhttp.Policy{Backoff: retryhttp.Constant(time.Millisecond)}).RoundTrip(get(t, ctx))
		require.NoError(t, err)
		requireAsked(t, 3*time.Second, time.Since(began))
	})
}
