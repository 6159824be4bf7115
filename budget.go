package retryhttp

import (
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/bucket"
)

// Budget bounds retries across requests. A Transport withdraws after all other checks, before each
// retry's wait and before each hedge. The methods are called from many goroutines at once.
//
// A retry that a Budget refuses may wait in line for a success of its host. Withdraw is then asked again
// for it. A [Gate] may send a retry in line without asking: as a probe, or while the host recovers and
// eight or more wait. After a refusal with an infinite cost, no retry is sent.
//
// A Budget may wrap another one, for example to count. If it passes on each [Retry] as it is, and each
// cost, the Budget inside works as it does alone.
type Budget interface {
	// Withdraw takes the cost of a retry or a hedge, and reports true. Or it takes nothing, and reports
	// false. The cost of a refusal is ignored, but an infinite one says that the Budget will never grant
	// the retry, which then does not wait in line. Withdraw does not block, and does not read the body
	// of a response. It is also called for a failure that is not retried: see [Retry.Stop].
	Withdraw(r Retry) (cost float64, ok bool)

	// Refund gives back the cost of a Withdraw. It is called at most once for each Withdraw: if the
	// retry was not sent, if a hedged request got a Final response, or if a resumption brought 1 MiB.
	Refund(req *http.Request, cost float64)

	// Deposit credits a success: a RoundTrip that ended in a Final response, or a resumption that
	// brought the last byte of a body.
	Deposit(req *http.Request)
}

// Retry is what a Budget is asked for. It may gain fields.
type Retry struct {
	// Request is the caller's request.
	Request *http.Request

	// Failed is the attempt that failed. It is zero for a hedge.
	Failed Attempt

	// Status is the status of the failed attempt's response, even if its body broke off. 0 means that
	// there was no response.
	Status int

	// Asked is how long the server asked the client to wait, according to Policy.RetryAfter. 0 means
	// that the server did not ask, or that MaxRetryAfter is negative.
	Asked time.Duration

	// Again says that the Budget has refused this retry before, and that the retry waits in line. The
	// failure counts once.
	Again bool

	// Down says that the Gate has the host down: the failure belongs to an outage, and not to an
	// overload.
	Down bool

	// Stop says why no retry follows the failure. It is "" for a retry or a hedge. With a Stop, Withdraw
	// is only there to count the failure: if it takes something, the cost is given back at once. It is
	// StopNotIdempotent, StopBody or StopDeadline. Other values may be added.
	Stop Stop

	// bucket is where a TokenBucket leaves which of its buckets has refused the retry. It may be nil.
	bucket *atomic.Pointer[bucketID]
}

// Unlimited is a Budget that never refuses.
type Unlimited struct{}

func (Unlimited) Withdraw(Retry) (cost float64, ok bool) { return 0, true }
func (Unlimited) Refund(*http.Request, float64)          {}
func (Unlimited) Deposit(*http.Request)                  {}

// TokenBucket is a Budget that successes fill and retries empty. The zero value is ready to use.
// Share a TokenBucket among Transports to bound the sum of their retries. It must not be changed or
// copied after first use.
//
// Results are successes, and failures that say that the host is down, even of requests that must not be
// repeated. The last of MaxAttempts does not count, because its retries have counted, nor does a failure
// that ends with [StopRetryAfter]. While at least half of the results of a host are successes, each
// success earns HealthyRatio of a retry: enough for the failures of a server that is partly broken. When
// most are failures, and until three in five are successes again, a success earns Ratio, so that retries
// die out in an outage and do not keep up an overload. If fewer succeed again within a minute, the
// retries themselves may be what the server cannot bear: a success then earns Ratio for at least 20 s.
// While the [Gate] has the host down, failures count for nothing: an outage is no overload. A retry
// takes one token, or a third if a 429 has said when to retry. If an attempt has taken long, its retry
// may overdraw the bucket by one for each success that is usual in that time, unless successes earn
// nothing.
//
// A retry that is refused may wait until a success earns it, for as long as the [Gate] may hold it.
// When a trouble begins, any retry may wait. In lasting trouble, at most one more may wait than have lately
// been served. A request that may not wait ends, without a retry, when the backoff is over, so that a loop
// of requests does not turn hot.
//
// A bucket holds at most max(Burst, Ratio · rate · Window) tokens, where rate is an exponentially
// weighted mean of the successes per second.
//
// A client with few requests would use up its Burst for ever if its service needs retries after each pause, because
// a success earns less than its retry costs. So if HealthyRatio is more than Ratio, a bucket with a Burst has at
// least a token after a rest: a success has come since the last failure, and for a Window there was neither a failure
// nor a hedge. A negative Window counts as 20 s here. While retries help after four rests of five, a rest gives the
// whole Burst. Without any success, a bucket has its Burst again after 32 Windows, then after 64 more, and so on.
//
// There are at most 4,096 buckets: full buckets make room first, then the longest unused. See "Fixing
// retries with token buckets and circuit breakers", Marc Brooker.
type TokenBucket struct {
	// Ratio is how many retries each success earns while most attempts fail. 0 means 0.1. Negative or
	// NaN means none, ever, and only Burst and MinPerSecond are left. Set it to bound retries to this
	// share of the successes at all times: HealthyRatio is then the same, unless it is set too.
	Ratio float64

	// HealthyRatio is how many retries each success earns while most attempts succeed. 0 means 0.5, or
	// Ratio if that is set. Less than Ratio, or NaN, means Ratio. A larger HealthyRatio helps more
	// requests when half of the backends are gone, and adds load when the servers reject because they
	// are full.
	HealthyRatio float64

	// Burst is the number of tokens at the start, and the least number of tokens that the bucket has
	// room for. 0 means 5, and a negative number means none. Lower it if you run very many processes,
	// because each of them has this reserve.
	Burst int

	// Window gives the bucket room for what successes at the recent rate earn in this time, at Ratio.
	// 0 means 20 s, and a negative value means no room beyond Burst. Raise it to save up for longer
	// outages.
	Window time.Duration

	// MinPerSecond is how many retries each bucket grants per second beyond what was earned, and saves for
	// a second, or for one retry. 0 or less, or NaN, means none. Set it for clients with few requests,
	// which earn too little.
	MinPerSecond float64

	// Key returns which bucket a request draws on. Nil means one bucket per URL.Host. Set it if one
	// host serves several services that fail independently.
	Key func(*http.Request) string

	buckets bucket.Table
}

// Withdraw takes a token from the bucket of r's request, or a third of a token if a 429 has said when
// to retry, and reports false if the bucket has too little. If the bucket can earn nothing, the cost of
// a refusal is infinite.
func (b *TokenBucket) Withdraw(r Retry) (cost float64, ok bool) {
	key, failure := keyOf(r.Request, b.Key), failureOf(&r)
	if r.Stop != "" {
		b.buckets.Count(key, b.settings, failure)
		return 0, false
	}
	cost, ok = b.buckets.Withdraw(key, b.settings, failure, r.Again)
	if !ok && r.bucket != nil {
		r.bucket.Store(&bucketID{b, key})
	}
	if !ok && !b.settings().MayEarn() {
		cost = math.Inf(1)
	}
	return cost, ok
}

// bucketID distinguishes a bucket from all others.
type bucketID struct {
	bucket *TokenBucket
	key    string
}

// Refund gives req's bucket back a cost, if it has room. A cost of 0 or less, or NaN, is nothing.
func (b *TokenBucket) Refund(req *http.Request, cost float64) {
	b.buckets.Refund(keyOf(req, b.Key), b.settings, cost)
}

// Deposit credits a success to req's bucket.
func (b *TokenBucket) Deposit(req *http.Request) {
	b.buckets.Deposit(keyOf(req, b.Key), b.settings)
}

// BucketStatus is the state of a bucket. It may gain fields.
type BucketStatus struct {
	Tokens  float64       // what a request could draw on now
	Sparing bool          // a success earns only Ratio now, because most results were failures
	Fleet   bool          // processes share the balance, as with package redisbudget
	Shared  bool          // of a Fleet: the balance decides now, and not the process alone
	Age     time.Duration // of a Fleet: the age of what the process knows; 0 if it knows nothing
}

// Status returns the state of the bucket that req draws on, for gauges. It adds no bucket. Sparing is
// never true if HealthyRatio and Ratio are equal.
func (b *TokenBucket) Status(req *http.Request) BucketStatus {
	tokens, poor := b.buckets.Status(keyOf(req, b.Key), b.settings)
	s := b.settings()
	return BucketStatus{Tokens: tokens, Sparing: poor && s.HealthyRatio > s.Ratio}
}

func (b *TokenBucket) settings() bucket.Settings {
	return bucket.SettingsOf(b.Ratio, b.HealthyRatio, b.Burst, b.Window, b.MinPerSecond)
}

// failureOf returns what r says about the failed attempt. As for a Gate, a server that has refused
// this client alone is healthy.
func failureOf(r *Retry) bucket.Failure {
	status := r.Status
	if resp := r.Failed.Response; resp != nil { // somebody else's Retry has no Status
		status = resp.StatusCode
	}
	down := status >= 500 || r.Failed.Err != nil && !refuses(status)
	return bucket.Failure{
		Down:    down,
		Outage:  down && r.Down,
		Invited: status == http.StatusTooManyRequests && r.Asked > 0,
		Took:    r.Failed.Elapsed,
	}
}
