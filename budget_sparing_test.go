package retryhttp_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

func TestSparingIsWhileABucketEarnsRatio(t *testing.T) {
	for _, c := range []struct {
		bucket  *retryhttp.TokenBucket
		sparing bool
	}{
		{new(retryhttp.TokenBucket), true},
		{&retryhttp.TokenBucket{Ratio: 0.2}, false}, // Most is the same
	} {
		synctest.Test(t, func(t *testing.T) {
			req := requestTo("host")
			assert.False(t, c.bucket.Status(req).Sparing, "nothing is known")
			for range 100 {
				countFailure(c.bucket, req, retryhttp.Attempt{Err: errBroken})
				time.Sleep(100 * time.Millisecond)
			}
			assert.Equal(t, c.sparing, c.bucket.Status(req).Sparing)
			assert.False(t, c.bucket.Status(requestTo("other")).Sparing)
			for range 200 {
				c.bucket.Deposit(req)
				time.Sleep(100 * time.Millisecond)
				c.bucket.Status(req) // as a gauge does
			}
			assert.False(t, c.bucket.Status(req).Sparing, "most succeed again")
		})
	}
}

// A Transport reports its failures to a TokenBucket.
func TestSparingFollowsTheResultsOfATransport(t *testing.T) {
	for status, sparing := range map[int]bool{503: true, 200: false} {
		synctest.Test(t, func(t *testing.T) {
			b := new(retryhttp.TokenBucket)
			rt := retryhttp.New(script.New(script.Status(status)), retryhttp.Policy{
				Budget: b, Gate: &retryhttp.Gate{Hold: -1}, Backoff: retryhttp.Constant(0),
			})
			req := get(t, t.Context())
			for range 100 {
				resp, err := rt.RoundTrip(req)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				time.Sleep(100 * time.Millisecond)
			}
			assert.Equal(t, sparing, b.Status(req).Sparing, "%d", status)
		})
	}
}
