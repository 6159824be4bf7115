package retryhttp_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
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
			assert.False(t, c.bucket.Sparing(req), "nothing is known")
			for range 100 {
				c.bucket.Failed(req, retryhttp.Attempt{Err: errBroken})
				time.Sleep(100 * time.Millisecond)
			}
			assert.Equal(t, c.sparing, c.bucket.Sparing(req))
			assert.False(t, c.bucket.Sparing(requestTo("other")))
			for range 200 {
				c.bucket.Deposit(req)
				time.Sleep(100 * time.Millisecond)
				c.bucket.Sparing(req) // as a gauge does
			}
			assert.False(t, c.bucket.Sparing(req), "most succeed again")
		})
	}
}
