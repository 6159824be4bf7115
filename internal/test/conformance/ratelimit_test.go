package conformance_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
)

type rateLimitCase struct {
	vector
	Clock   time.Time  `json:"clock"`
	Headers fieldLines `json:"headers"`
	Expect  struct {
		Remaining        *int64 `json:"remaining"`
		RemainingAtLeast *int64 `json:"remaining_at_least"`
		ResetMs          *int64 `json:"reset_ms"`
		BeyondAnyCap     bool   `json:"beyond_any_cap"`
		None             bool   `json:"none"`
	} `json:"expect"`
}

func testRateLimitVectors(t *testing.T) {
	for _, c := range vectors[rateLimitCase](t, "ratelimit.json").Cases {
		t.Run(c.Name, func(t *testing.T) { synctest.Test(t, c.run) })
	}
}

func (c *rateLimitCase) run(t *testing.T) {
	time.Sleep(time.Until(c.Clock))
	remaining, reset, ok := retryhttp.RateLimit(c.Headers.received())
	want := c.Expect
	assert.Equal(t, !want.None, ok, "%d, %v; %s", remaining, reset, c.Because)
	switch {
	case want.None:
		return
	case want.Remaining != nil:
		assert.Equal(t, *want.Remaining, remaining, c.Because)
	case want.RemainingAtLeast != nil:
		assert.GreaterOrEqual(t, remaining, *want.RemainingAtLeast, c.Because)
	default:
		assert.Fail(t, "the case expects no remaining quota")
	}
	switch {
	case want.ResetMs != nil:
		assert.Equal(t, millis(*want.ResetMs), reset, c.Because)
	case want.BeyondAnyCap:
		assert.GreaterOrEqual(t, reset, beyondAnyCap, c.Because)
	default:
		assert.Fail(t, "the case expects no reset")
	}
}
