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
	// Ratio is how many retries each success earns. 0 means 0.1. Negative or NaN means none, and only
	// Burst and MinPerSecond are left. A larger Ratio helps more requests while some attempts fail, and
	// adds more load when all of them do.
	Ratio float64

	// Burst is the number of tokens at the start, and the least number of tokens that the bucket has
	// room for. 0 means 5, and a negative number means none. Lower it if you run very many processes,
	// because each of them has this reserve.
	Burst int

	// Window gives the bucket room for what successes at the recent rate earn in this time. 0 means
	// 20 s, and a negative value means no room beyond Burst. Raise it to save up for longer outages.
	Window time.Duration

	// MinPerSecond is how many retries each bucket grants per second beyond what was earned. 0 or
	// less, or NaN, means none. Set it for clients with few requests, which earn too little.
	MinPerSecond float64

	// Key returns which bucket a request draws on. Nil means one bucket per URL.Host. Set it if one
	// host serves several services that fail independently.
	Key func(*http.Request) string

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
