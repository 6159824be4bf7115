package migrating_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHowLongARetryAfterOfTenSecondsIsWaitedFor(t *testing.T) {
	forEach(t, map[string]time.Duration{
		"go-retryablehttp": 10 * time.Second, "rehttp": wait, "heimdall": wait, "resty": 10 * time.Second,
		"failsafehttp": 10 * time.Second, "backoff": wait,
		"retryhttp": 10 * time.Second,
	}, func(t *testing.T, build func(http.RoundTripper) doer, want time.Duration) {
		base := answering(http.StatusServiceUnavailable, "Retry-After", "10")
		_, _ = get(t, t.Context(), build(base))
		waited := base.at[1].Sub(base.at[0])
		assert.GreaterOrEqual(t, waited, want)
		assert.LessOrEqual(t, waited, want+want/2)
	})
}

func TestHowLongARetryAfterOfAnHourKeepsTheCaller(t *testing.T) {
	forEach(t, map[string]time.Duration{
		"go-retryablehttp": 3 * time.Hour, "rehttp": 3 * wait, "heimdall": 4 * wait, "resty": 3 * time.Hour,
		"failsafehttp": 3 * time.Hour, "backoff": 3 * wait,
		"retryhttp": 0,
	}, func(t *testing.T, build func(http.RoundTripper) doer, want time.Duration) {
		start := time.Now()
		_, _ = get(t, t.Context(), build(answering(http.StatusServiceUnavailable, "Retry-After", "3600")))
		assert.Equal(t, want, time.Since(start))
	})
}

// The deadline comes during the first wait. heimdall ignores it.
func TestHowLongAWaitPastTheDeadlineKeepsTheCaller(t *testing.T) {
	forEach(t, map[string]time.Duration{
		"go-retryablehttp": wait / 2, "rehttp": wait / 2, "heimdall": 4 * wait, "resty": wait / 2,
		"failsafehttp": wait / 2, "backoff": wait / 2,
		"retryhttp": 0,
	}, func(t *testing.T, build func(http.RoundTripper) doer, want time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), wait/2)
		defer cancel()
		start := time.Now()
		_, err := get(t, ctx, build(answering(http.StatusServiceUnavailable)))
		assert.Equal(t, want, time.Since(start))
		assert.Equal(t, want == 0, err == nil)
	})
}

func TestWhetherTheErrorOfACanceledWaitIsTheContexts(t *testing.T) {
	forEach(t, map[string]bool{
		"go-retryablehttp": true, "rehttp": false, "heimdall": false, "resty": true, "failsafehttp": true,
		"backoff":   true,
		"retryhttp": true,
	}, func(t *testing.T, build func(http.RoundTripper) doer, want bool) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(wait/2, cancel)
		_, err := get(t, ctx, build(answering(http.StatusServiceUnavailable)))
		require.Error(t, err)
		assert.Equal(t, want, errors.Is(err, context.Canceled))
	})
}
