package retryhttp

import (
	"cmp"
	"math"
	"net/http"
	"reflect"
	"time"

	"github.com/retryhttp/retryhttp/internal/bucket"
)

// Budget bounds retries across requests. A Transport withdraws after all other checks, before each
// retry's wait and before each hedge. It refunds at most once for each Withdraw: if the retry was
// never sent, if a hedged request got a Final response, or if a resumption brought 1 MiB. It
// deposits again if a resumption brings the last byte of a body. The methods are called from many
// goroutines at once.
//
// A Budget may also have a method Failed(*http.Request, Attempt). It is called with the failed
// attempt right before the first Withdraw of its retry. A retry that such a Budget refuses may wait
// for a success of its host, and Withdraw is then asked again for it. When a trouble begins, or while
// eight or more wait, the [Gate] sends some without asking: one at a time to find out whether the host
// is back. If eight or more wait, more follow while no first attempt succeeds.
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

// failureBudget is a Budget that hears of failures, and may be asked again.
type failureBudget interface {
	Budget
	Failed(req *http.Request, a Attempt)
}

// mayBeAskedAgain reports whether b may grant later what it refuses now. A bucket that earns nothing
// never does.
func mayBeAskedAgain(b Budget) bool {
	if own, ok := b.(*TokenBucket); ok {
		return own.most() > 0 || own.MinPerSecond > 0
	}
	_, ok := b.(failureBudget)
	return ok
}

// TokenBucket is a Budget that successes fill and retries empty. The zero value is ready to use.
// Share a TokenBucket among Transports to bound the sum of their retries. It must not be changed or
// copied after first use.
//
// Results are successes, and failures that say that the host is down, even of requests that are not
// retried. While at least half of the results of a host are successes, each success earns Most of a retry:
// enough for the failures of a server that is partly broken. When most are failures, and until
// three in five are successes again, a success earns Ratio, so that retries die out in an outage and
// do not keep up an overload. If fewer succeed again within 15 s, the retries themselves may be what
// the server cannot bear: a success then earns Ratio for at least 10 s. While the [Gate] has the host
// down, failures count for nothing: an outage is no overload. A retry takes one token, or a
// third if a 429 has said when to retry. If an attempt has taken long, its retry may overdraw the
// bucket by one for each success that is usual in that time.
//
// A retry that is refused may wait until a success earns it, for as long as the [Gate] may hold it.
// When a trouble begins, any retry may wait. In lasting trouble, no more may wait than have lately
// been served, and one. A request that may not wait ends after the backoff of its retry, so that a loop
// of requests does not turn hot.
//
// A bucket holds at most max(Burst, Ratio · rate · Window) tokens, where rate is an exponentially
// weighted mean of the successes per second. There are at most 4,096 buckets: full buckets make room
// first, then the longest unused. See "Fixing retries with token buckets and circuit breakers", Marc
// Brooker.
type TokenBucket struct {
	// Ratio is how many retries each success earns while most attempts fail. 0 means 0.1. Negative or
	// NaN means none, ever, and only Burst and MinPerSecond are left. Set it to bound retries to this
	// share of the successes at all times: Most is then the same, unless it is set too.
	Ratio float64

	// Most is how many retries each success earns while most attempts succeed. 0 means 0.5, or Ratio if
	// that is set. Less than Ratio, or NaN, means Ratio. A larger Most helps more requests when half of
	// the backends are gone, and adds load when the servers reject because they are full.
	Most float64

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
	defaultMost   = 0.5
	defaultBurst  = 5
	defaultWindow = 20 * time.Second
)

// Failed records a failed attempt of req. If the next Withdraw is for its retry, the retry has the
// cost and the overdraft that the attempt allows. Failed is for a Budget that wraps this bucket, and
// knows of a wait only what the header says. A Transport reports Policy.RetryAfter to its bucket.
func (b *TokenBucket) Failed(req *http.Request, a Attempt) {
	b.buckets.Failed(keyOf(req, b.Key), b.settings, failureOf(&a))
}

// Withdraw takes a token from req's bucket, or reports false if there is none.
func (b *TokenBucket) Withdraw(req *http.Request) bool {
	return b.buckets.Withdraw(keyOf(req, b.Key), b.settings)
}

// Refund gives req's bucket back what the newest Withdraw took, if it has room.
func (b *TokenBucket) Refund(req *http.Request) {
	b.buckets.Refund(keyOf(req, b.Key), b.settings)
}

// Deposit credits a success to req's bucket.
func (b *TokenBucket) Deposit(req *http.Request) {
	b.buckets.Deposit(keyOf(req, b.Key), b.settings)
}

// retry is Failed and Withdraw in one step. With again, the bucket knows of the failure.
func (b *TokenBucket) retry(req *http.Request, f bucket.Failure, again bool) bool {
	return b.buckets.Retry(keyOf(req, b.Key), b.settings, f, again)
}

// count records a failure that no retry follows.
func (b *TokenBucket) count(req *http.Request, f bucket.Failure) {
	b.buckets.Count(keyOf(req, b.Key), b.settings, f)
}

// bucketOf returns what tells the bucket that req draws on from other buckets, as far as a Budget
// shows it.
func bucketOf(budget Budget, req *http.Request) any {
	switch b, own := budget.(*TokenBucket); {
	case own:
		return bucketID{b, keyOf(req, b.Key)}
	case reflect.ValueOf(budget).Comparable():
		return budget
	}
	return nil
}

type bucketID struct {
	bucket *TokenBucket
	key    string
}

// Tokens returns what req could draw on now, for a gauge. It adds no bucket.
func (b *TokenBucket) Tokens(req *http.Request) float64 {
	return b.buckets.Tokens(keyOf(req, b.Key), b.settings)
}

// Sparing reports, for a gauge, whether a success earns req's bucket only Ratio now, because most
// results were failures. It is never true if Most and Ratio are equal. It adds no bucket.
func (b *TokenBucket) Sparing(req *http.Request) bool {
	return b.most() > b.ratio() && b.buckets.Poor(keyOf(req, b.Key))
}

// settings returns b's settings with the defaults filled in. Without a Window, a bucket counts as
// in use for the default Window after each retry.
func (b *TokenBucket) settings() bucket.Settings {
	window := max(cmp.Or(b.Window, defaultWindow), 0)
	return bucket.Settings{
		Ratio:        b.ratio(),
		Most:         b.most(),
		Burst:        float64(max(cmp.Or(b.Burst, defaultBurst), 0)),
		Window:       window,
		IdleAfter:    cmp.Or(window, defaultWindow),
		MinPerSecond: sensible(b.MinPerSecond),
	}
}

func (b *TokenBucket) ratio() float64 { return sensible(cmp.Or(b.Ratio, defaultRatio)) }

func (b *TokenBucket) most() float64 {
	ratio := b.ratio()
	switch {
	case ratio == 0 || b.Most == 0 && b.Ratio != 0:
		return ratio
	case b.Most == 0:
		return defaultMost
	}
	return max(sensible(b.Most), ratio)
}

// failureOf returns what a failed attempt says to its retry's budget. As for a Gate, a server that
// has refused this client alone is healthy.
func failureOf(a *Attempt) bucket.Failure {
	f := bucket.Failure{Took: a.Elapsed}
	if a.Response == nil {
		f.Down = true
		return f
	}
	asked, _ := RetryAfter(a.Response.Header)
	f.Invited = asked > 0 && a.Response.StatusCode == http.StatusTooManyRequests
	f.Down = a.Response.StatusCode >= 500
	return f
}

// sensible returns x, or 0 if x is negative or NaN. The result is at most math.MaxInt32, which is
// larger than any sensible setting, and far from overflow.
func sensible(x float64) float64 {
	if !(x > 0) {
		return 0
	}
	return min(x, math.MaxInt32)
}
