package retryhttp_test

import (
	"context"
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
