package retryhttp

import (
	"cmp"
	"math"
	"net/http"
	"time"

	"github.com/retryhttp/retryhttp/internal/bucket"
)

// Budget bounds retries across requests. A Transport withdraws after all other checks, before each
// retry's wait and before each hedge. It refunds at most once for each Withdraw: if the retry was
// never sent, if a hedged request got a Final response, or if a resumption brought 1 MiB. The
// methods are called from many goroutines at once.
type Budget interface {
	Withdraw(req *http.Request) bool // takes the cost of a retry, or reports false; never blocks
	Refund(req *http.Request)        // gives back a Withdraw
	Deposit(req *http.Request)       // credits a RoundTrip that ended in a Final response
}

// Unlimited is a Budget that never refuses.
type Unlimited struct{}

func (Unlimited) Withdraw(*http.Request) bool { return true }
func (Unlimited) Refund(*http.Request)        {}
func (Unlimited) Deposit(*http.Request)       {}

// TokenBucket is a Budget that successes fill and retries empty, at one token each, so that
// retries die out in an outage. The zero value is ready to use. Share a TokenBucket among
// Transports to bound the sum of their retries. It must not be changed or copied after first use.
//
// A bucket holds at most max(Burst, Ratio · rate · Window) tokens, where rate is an exponentially
// weighted mean of the successes per second. There are at most 4,096 buckets: full
// buckets make room first, then the longest unused. See "Fixing retries with token buckets and
// circuit breakers", Marc Brooker.
type TokenBucket struct {
	Ratio  float64       // retries earned by each success. 0: 0.1; negative or NaN: none
	Burst  int           // tokens at the start, and the least room. 0: 5; negative: none
	Window time.Duration // room for what this long at the recent rate earns. 0: 20s; negative: none

	// MinPerSecond is the number of retries per second that each bucket grants beyond what was
	// earned. 0 or less, or NaN: none.
	MinPerSecond float64

	Key func(*http.Request) string // which bucket a request draws on. nil: one per URL.Host

	buckets bucket.Table
}

const (
	defaultRatio  = 0.1
	defaultBurst  = 5
	defaultWindow = 20 * time.Second
)

// Withdraw takes a token from req's bucket, or reports false if there is none.
func (b *TokenBucket) Withdraw(req *http.Request) bool {
	return b.buckets.Withdraw(keyOf(req, b.Key), b.settings)
}

// Refund gives req's bucket a token back, if it has room.
func (b *TokenBucket) Refund(req *http.Request) {
	b.buckets.Refund(keyOf(req, b.Key), b.settings)
}

// Deposit credits a success to req's bucket.
func (b *TokenBucket) Deposit(req *http.Request) {
	b.buckets.Deposit(keyOf(req, b.Key), b.settings)
}

// Tokens returns what req could draw on now, for a gauge. It adds no bucket.
func (b *TokenBucket) Tokens(req *http.Request) float64 {
	return b.buckets.Tokens(keyOf(req, b.Key), b.settings)
}

// settings returns b's settings with the defaults filled in. Without a Window, a bucket counts as
// in use for the default Window after each retry.
func (b *TokenBucket) settings() bucket.Settings {
	window := max(cmp.Or(b.Window, defaultWindow), 0)
	return bucket.Settings{
		Ratio:        sensible(cmp.Or(b.Ratio, defaultRatio)),
		Burst:        float64(max(cmp.Or(b.Burst, defaultBurst), 0)),
		Window:       window,
		IdleAfter:    cmp.Or(window, defaultWindow),
		MinPerSecond: sensible(b.MinPerSecond),
	}
}

// sensible returns x, or 0 if x is negative or NaN. The result is at most math.MaxInt32, which is
// larger than any sensible setting, and far from overflow.
func sensible(x float64) float64 {
	if !(x > 0) {
		return 0
	}
	return min(x, math.MaxInt32)
}
