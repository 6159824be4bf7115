package retryhttp_test

import (
	"errors"
	"math"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// These tests build schedules of other libraries, and check them against published
// numbers.

func TestBackoffScheduleOfGoogleCoreReporting(t *testing.T) {
	// Five waits of 2^n seconds, n = 0…4, plus up to 1,000 ms drawn anew each time.
	backoff := retryhttp.Exponential(time.Second, 16*time.Second).PlusJitter(time.Second)
	for n := range 5 {
		base := time.Second << n
		requireUniform(t, base, base+time.Second, func() time.Duration { return backoff(n+1, 0) })
	}
	synctest.Test(t, func(t *testing.T) {
		const runs = 2000
		sum := 0.0
		for range runs {
			starts, outcome := outage(t, retryhttp.Policy{MaxAttempts: 6, Backoff: backoff})
			require.Len(t, starts, 6, "five waits")
			require.Equal(t, retryhttp.StopAttempts, outcome.Stop)
			for n := range 5 {
				wait := starts[n+1] - starts[n]
				require.True(t, time.Second<<n <= wait && wait <= time.Second<<n+time.Second, "wait %d: %v", n+1, wait)
			}
			// The powers of two are 31 s, and the five additions at most 5 s.
			require.True(t, 31*time.Second <= outcome.Elapsed && outcome.Elapsed <= 36*time.Second, "%v", outcome.Elapsed)
			require.Equal(t, outcome.Elapsed, outcome.Waited)
			sum += outcome.Elapsed.Seconds()
		}
		assert.InDelta(t, 31+5*0.5, sum/runs, 7*math.Sqrt(5.0/12/runs), "mean, in seconds")
	})
}

func TestBackoffScheduleOfGoogleHTTPClientForJava(t *testing.T) {
	// The interval grows by 1.5 from 500 ms to 60 s. A wait differs from it by up
	// to a half. The documentation has this table, in seconds. Its rows are
	// truncated, and each is computed from the previous row.
	table := []struct{ interval, lo, hi float64 }{
		{0.5, 0.25, 0.75},
		{0.75, 0.375, 1.125},
		{1.125, 0.562, 1.687},
		{1.687, 0.8435, 2.53},
		{2.53, 1.265, 3.795},
		{3.795, 1.897, 5.692},
		{5.692, 2.846, 8.538},
		{8.538, 4.269, 12.807},
		{12.807, 6.403, 19.210},
		{19.210, 9.605, 28.815},
	}
	interval := retryhttp.Geometric(500*time.Millisecond, time.Minute, 1.5)
	backoff := interval.Spread(0.5)
	cut := 500 // milliseconds, by the table's own arithmetic
	for i, row := range table {
		n := i + 1
		assert.InDelta(t, row.interval, float64(cut)/1000, 0.0005, "interval %d of the table", n)
		cut = cut * 3 / 2
		exact := time.Duration(0.5 * math.Pow(1.5, float64(i)) * float64(time.Second))
		assert.Equal(t, exact, interval(n, 0))
		// The truncation adds up to 0.07 % in the ninth row.
		assert.InEpsilon(t, row.interval, interval(n, 0).Seconds(), 0.0007)
		assert.InEpsilon(t, row.lo, interval(n, 0).Seconds()*0.5, 0.0015)
		assert.InEpsilon(t, row.hi, interval(n, 0).Seconds()*1.5, 0.0007)
		requireUniform(t, exact-exact/2, exact+exact/2, func() time.Duration { return backoff(n, 0) })
	}
	// The cap is on the interval, so a wait at the cap may exceed it.
	for _, n := range []int{13, 100, math.MaxInt} {
		assert.Equal(t, time.Minute, interval(n, 0))
		requireUniform(t, 30*time.Second, 90*time.Second, func() time.Duration { return backoff(n, 0) })
	}

	t.Run("stops after 15 minutes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			for range 200 {
				starts, outcome := outage(t, retryhttp.Policy{
					MaxAttempts: -1, MaxElapsed: 15 * time.Minute, Backoff: backoff, Budget: retryhttp.Unlimited{},
				})
				require.Equal(t, retryhttp.StopDeadline, outcome.Stop)
				require.LessOrEqual(t, outcome.Elapsed, 15*time.Minute)
				require.GreaterOrEqual(t, outcome.Elapsed, 15*time.Minute-90*time.Second, "stopped sooner than one wait before")
				for n := 1; n < len(starts); n++ {
					wait, mid := starts[n]-starts[n-1], interval(n, 0)
					require.True(t, mid/2 <= wait && wait <= mid+mid/2, "wait %d: %v", n, wait)
				}
			}
		})
	})
}

func TestBackoffSchedulesThatAreNamedElsewhere(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		policy retryhttp.Policy
		starts []time.Duration
	}{
		"ConstantBackOff":   {retryhttp.Policy{Backoff: retryhttp.Constant(2 * s)}, []time.Duration{0, 2 * s, 4 * s, 6 * s}},
		"ZeroBackOff":       {retryhttp.Policy{Backoff: retryhttp.Constant(0)}, []time.Duration{0, 0, 0, 0}},
		"StopBackOff":       {retryhttp.Policy{Backoff: retryhttp.Constant(s), MaxAttempts: 1}, []time.Duration{0}},
		"WithMaxRetries(2)": {retryhttp.Policy{Backoff: retryhttp.Constant(s), MaxAttempts: 3}, []time.Duration{0, s, 2 * s}},
		"linear delay": {
			retryhttp.Policy{Backoff: retryhttp.Linear(s, time.Minute)}, []time.Duration{0, s, 3 * s, 6 * s},
		},
		"exponential delay": {
			retryhttp.Policy{Backoff: retryhttp.Exponential(s, time.Minute)}, []time.Duration{0, s, 3 * s, 7 * s},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				starts, outcome := outage(t, c.policy)
				assert.Equal(t, c.starts, starts)
				assert.Equal(t, retryhttp.StopAttempts, outcome.Stop)
			})
		})
	}
	t.Run("Permanent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			open, attempts := errors.New("circuit breaker is open"), 0
			rt := retryhttp.New(script.Step(func(*http.Request) (*http.Response, error) {
				attempts++
				return nil, retryhttp.Permanent(open)
			}), retryhttp.Policy{})
			req, err := http.NewRequest("GET", "http://example.test/", nil)
			require.NoError(t, err)
			_, err = rt.RoundTrip(req)
			assert.ErrorIs(t, err, open)
			assert.Equal(t, 1, attempts)
		})
	})
}

func TestBackoffScheduleOfAWSJitters(t *testing.T) {
	// The article "Exponential Backoff And Jitter" simulates base 5 ms and cap
	// 2,000 ms. Its counter starts at 1, so its first exponential is 10 ms.
	const limit = 2000 * time.Millisecond
	full := retryhttp.FullJitter(10*time.Millisecond, limit)
	equal := retryhttp.EqualJitter(10*time.Millisecond, limit)
	for n := 1; n <= 12; n++ {
		expo := min(limit, 5*time.Millisecond<<n)
		requireUniform(t, 0, expo, func() time.Duration { return full(n, 0) })
		requireUniform(t, expo/2, expo, func() time.Duration { return equal(n, 0) })
	}
	decorrelated := retryhttp.DecorrelatedJitter(5*time.Millisecond, limit)
	requireUniform(t, 5*time.Millisecond, 15*time.Millisecond, func() time.Duration { return decorrelated(1, 0) })
	for _, prev := range []time.Duration{5, 15, 100, 600, 666} {
		prev *= time.Millisecond
		requireUniform(t, 5*time.Millisecond, 3*prev, func() time.Duration { return decorrelated(2, prev) })
	}
	for _, prev := range []time.Duration{667, 1000, 2000} {
		prev *= time.Millisecond
		requireUniform(t, 5*time.Millisecond, limit, func() time.Duration { return decorrelated(2, prev) })
	}
}

// outage sends one GET to a server that answers 503 at once. It returns when each
// attempt started, counted from the first. It must run in a bubble.
func outage(t *testing.T, p retryhttp.Policy) ([]time.Duration, retryhttp.Outcome) {
	t.Helper()
	began := time.Now()
	var starts []time.Duration
	rt := retryhttp.New(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		starts = append(starts, time.Since(began))
		return script.Status(http.StatusServiceUnavailable)(req)
	}), p)
	req, err := http.NewRequest("GET", "http://example.test/", nil)
	require.NoError(t, err)
	resp, err := rt.RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	outcome := retryhttp.OutcomeOf(resp)
	require.Equal(t, len(starts), outcome.Attempts)
	require.Equal(t, starts[len(starts)-1], outcome.Elapsed)
	require.Equal(t, time.Since(began), outcome.Elapsed)
	return starts, outcome
}
