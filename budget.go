package retryhttp

import (
	"cmp"
	"maps"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"golang.org/x/time/rate"
)

// Budget bounds retries across requests. The Transport withdraws before every
// retry's wait, after every other condition has been met, and makes no retry
// that is refused. Its methods are called with the caller's request, and from
// many goroutines at once.
type Budget interface {
	// Withdraw takes the cost of one retry of req, or reports false. It never
	// blocks.
	Withdraw(req *http.Request) bool
	// Refund gives back a Withdraw whose retry was never sent.
	Refund(req *http.Request)
	// Deposit credits a success: a RoundTrip that ended in a response that was
	// classified Final, and that no Transport underneath had given up on.
	Deposit(req *http.Request)
}

// Unlimited is a Budget that never refuses.
type Unlimited struct{}

func (Unlimited) Withdraw(*http.Request) bool { return true }
func (Unlimited) Refund(*http.Request)        {}
func (Unlimited) Deposit(*http.Request)       {}

// TokenBucket is a Budget that successes fill and retries empty: in a total
// outage nothing fills it, retries die out, and the load on the server falls
// back to one attempt per request. A retry costs one token.
//
// The zero value is ready to use. Share one among Transports to bound the sum
// of their retries. The fields must not be changed, nor the TokenBucket copied,
// after its first use.
//
// A bucket never holds more than max(Burst, Ratio · rate · Window) tokens, where
// rate is an exponentially weighted mean of the successes per second with Window
// for its time constant. So a busy client can ride out a blip, while a client
// of few requests, of which there may be thousands, is held to Burst; and in an
// outage the room shrinks with the rate.
//
// There is one bucket per key, by default per host, so that a host that fails
// does not spend what is another's. At most 4,096 buckets are kept. To make
// room, those go first that are as good as new, then the fullest, whose tokens
// its successor takes over.
//
// What the defaults do well, in simulations (docs/simulation.md): in an outage
// the load of a process that is busy falls to 1.00 attempts per request within
// seconds, and a service that retries would keep down after a spike of load
// recovers as fast as without any; a process at 1,000 requests a second loses
// none of those that 100 ms of failure hit. Where they are weak: each process
// has a Burst to spend, so that what a fleet may add to an outage grows with the
// number of processes. A hundred take 17 s to let the service recover that one
// lets recover in 8, and a thousand with a request in 25 s each take a minute
// and a half; with a Burst of 1 they take 25 s. If yours are that many and that
// small, set Burst to 1 or 2. And in a chain of services each layer has such a
// reserve: three of them raise the load to about three times in the first second
// of an outage, and to nothing above 1.00 after the fifth.
//
// The method is that of "Fixing retries with token buckets and circuit
// breakers", Marc Brooker, 2022.
type TokenBucket struct {
	// Ratio is how many retries each success earns. 0 means 0.1; with a
	// negative one, or NaN, successes earn nothing.
	Ratio float64
	// Burst is how many tokens a bucket holds at the start, and the least that
	// it has room for. 0 means 5; negative means none.
	Burst int
	// Window gives a bucket room also for what this long at the recent rate of
	// successes earns. 0 means 10s; negative means no room beyond Burst.
	Window time.Duration
	// MinPerSecond is how many retries are allowed each second, per bucket,
	// whatever was earned. It is asked when the earned tokens are spent. 0 or
	// less means none, and so does NaN.
	//
	// It keeps a client alive whose successes are few. A fleet of such clients
	// has no budget then: in an outage each goes on at this rate.
	MinPerSecond float64
	// Key tells which bucket a request draws on. nil means one per URL.Host.
	Key func(*http.Request) string

	mu      sync.Mutex // serializes changes to buckets' set of keys
	buckets sync.Map   // string to *bucket; its Load takes no lock
	count   int        // of buckets, guarded by mu
}

const (
	maxBuckets = 4096
	// foldEvery is after how many deposits one of them does the arithmetic, so
	// that the rate follows the last Window also where nothing withdraws.
	foldEvery = 64
	// tokenUnits is the fineness to which amounts are rounded when they are
	// compared: ten times 0.1 is one token, although not in binary fractions.
	tokenUnits = 1e9
)

// Withdraw takes a token from req's bucket, or reports false if there is none.
func (b *TokenBucket) Withdraw(req *http.Request) bool {
	granted := false
	b.update(req, func(k *bucket, now time.Time) { granted = k.withdraw(req, now) })
	return granted
}

// Refund gives back the token that the last Withdraw for req took. The bucket
// still never holds more than it has room for.
func (b *TokenBucket) Refund(req *http.Request) {
	b.update(req, func(k *bucket, now time.Time) { k.refund(req, now) })
}

// Deposit credits a success to req's bucket. It counts, which is one atomic
// addition, and leaves the arithmetic to Withdraw.
func (b *TokenBucket) Deposit(req *http.Request) {
	k := b.bucket(req)
	if k.deposits.Add(1)%foldEvery == 0 && k.mu.TryLock() {
		k.fold(time.Now())
		k.mu.Unlock()
	}
}

// Tokens returns what req could draw on now: the earned tokens and what
// MinPerSecond allows. It makes no bucket, so a gauge may ask for any request.
func (b *TokenBucket) Tokens(req *http.Request) float64 {
	k, ok := b.find(req)
	if !ok {
		k = newBucket(b, b.key(req), time.Now())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	k.fold(now)
	return round(k.tokens + k.floorTokens(now))
}

// update runs f on req's bucket, with its lock held. If an eviction came in
// between, the bucket that was found is no longer the one that counts, and a
// token taken from it would be granted a second time by its successor.
func (b *TokenBucket) update(req *http.Request, f func(*bucket, time.Time)) {
	for {
		k := b.bucket(req)
		k.mu.Lock()
		if !k.evicted {
			now := time.Now()
			k.fold(now)
			f(k, now)
			k.mu.Unlock()
			return
		}
		k.mu.Unlock()
	}
}

func (b *TokenBucket) key(req *http.Request) string {
	switch {
	case b.Key != nil:
		return b.Key(req)
	case req.URL != nil:
		return req.URL.Host
	}
	return ""
}

func (b *TokenBucket) find(req *http.Request) (*bucket, bool) {
	k, ok := b.buckets.Load(b.key(req))
	if !ok {
		return nil, false
	}
	return k.(*bucket), true
}

func (b *TokenBucket) bucket(req *http.Request) *bucket {
	if k, ok := b.find(req); ok {
		return k
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if k, ok := b.find(req); ok {
		return k
	}
	now := time.Now()
	k := newBucket(b, b.key(req), now)
	if b.count >= maxBuckets {
		if old := b.evict(now); old != nil {
			k.inherit(old)
		}
	}
	b.buckets.Store(k.key, k)
	b.count++
	return k
}

// evict makes room for one bucket at least, with b.mu held. It returns the bucket
// that went, if that was worth something: its successor must not grant anew what
// it has spent already, or retries would not die out in an outage of more hosts
// than there are buckets.
//
// It looks at all of them, and so takes along every one that is as good as new:
// a crawler that meets a new host each time pays for the search once in a while
// only.
func (b *TokenBucket) evict(now time.Time) *bucket {
	for b.count >= maxBuckets {
		fullest, least := b.sweep(now)
		if b.count < maxBuckets {
			break
		}
		fullest.mu.Lock()
		fullest.fold(now)
		if !least.less(fullest.worth(now)) { // else a Withdraw came in between, and it is no longer the one
			b.remove(fullest)
			fullest.mu.Unlock()
			return fullest
		}
		fullest.mu.Unlock()
	}
	return nil
}

// sweep removes the buckets that are as good as new, and returns the fullest of
// the others.
func (b *TokenBucket) sweep(now time.Time) (fullest *bucket, least worth) {
	b.buckets.Range(func(_, v any) bool {
		k := v.(*bucket)
		k.mu.Lock()
		defer k.mu.Unlock() // not before it is gone, or a Withdraw might come in between
		k.fold(now)
		if w := k.worth(now); w == (worth{}) {
			b.remove(k)
		} else if fullest == nil || w.less(least) {
			fullest, least = k, w
		}
		return true
	})
	return fullest, least
}

// remove takes k out, with b.mu and k.mu held.
func (b *TokenBucket) remove(k *bucket) {
	k.evicted = true
	b.buckets.Delete(k.key)
	b.count--
}

// worth is what would be lost with a bucket, the zero worth being nothing.
type worth struct {
	missing float64 // tokens that a new bucket would grant anew
	earned  float64 // tokens, and room for them, that a new one would lack
}

func (w worth) less(other worth) bool {
	return cmp.Or(cmp.Compare(w.missing, other.missing), cmp.Compare(w.earned, other.earned)) < 0
}

// bucket holds one key's tokens.
type bucket struct {
	key      string
	deposits atomic.Uint64 // ever made

	mu        sync.Mutex
	evicted   bool
	ratio     float64
	burst     float64
	window    float64 // seconds; 0: no room beyond burst
	tokens    float64
	folded    uint64 // deposits that tokens and rate contain
	foldedAt  time.Time
	perSecond float64 // the mean rate of deposits

	floor     *rate.Limiter                           // nil: none
	returned  float64                                 // tokens given back to floor
	floorPaid map[weak.Pointer[http.Request]]struct{} // whose last token came from floor
	sweepAt   int                                     // the size of floorPaid at which the dead are taken out
}

func newBucket(b *TokenBucket, key string, now time.Time) *bucket {
	k := &bucket{
		key:      key,
		ratio:    cmp.Or(b.Ratio, 0.1),
		burst:    float64(max(cmp.Or(b.Burst, 5), 0)),
		window:   max(cmp.Or(b.Window, 10*time.Second), 0).Seconds(),
		foldedAt: now,
	}
	if !(k.ratio > 0) {
		k.ratio = 0
	}
	k.ratio = min(k.ratio, math.MaxInt32) // beyond all sense, and far from overflowing
	k.tokens = k.burst
	if b.MinPerSecond > 0 {
		perSecond := min(b.MinPerSecond, math.MaxInt32)
		k.floor = rate.NewLimiter(rate.Limit(perSecond), max(1, int(math.Ceil(perSecond))))
		k.floorPaid = make(map[weak.Pointer[http.Request]]struct{})
	}
	return k
}

// inherit lets k start with what old, which has been evicted, had left.
func (k *bucket) inherit(old *bucket) {
	old.mu.Lock()
	defer old.mu.Unlock()
	k.tokens = min(k.tokens, old.tokens)
	k.floor, k.returned = old.floor, old.returned
}

// fold brings tokens and rate up to date, with k.mu held.
func (k *bucket) fold(now time.Time) {
	total := k.deposits.Load()
	n := float64(total - k.folded)
	k.folded = total
	k.decay(n, max(now.Sub(k.foldedAt), 0).Seconds())
	if now.After(k.foldedAt) {
		k.foldedAt = now
	}
	k.tokens = min(k.tokens+k.ratio*n, k.capacity())
}

// decay folds n deposits, taken as spread evenly over the last seconds, into
// the mean rate.
func (k *bucket) decay(n, seconds float64) {
	if k.window == 0 {
		return
	}
	x := seconds / k.window
	share := 1.0 // of n/window, for what has decayed since: (1-e^-x)/x, which is 1 at 0
	if x > 0 {
		share = -math.Expm1(-x) / x
	}
	k.perSecond = k.perSecond*math.Exp(-x) + share*n/k.window
}

func (k *bucket) capacity() float64 {
	return max(k.burst, k.ratio*k.perSecond*k.window)
}

func (k *bucket) worth(now time.Time) worth {
	w := worth{
		missing: max(k.burst-round(k.tokens), 0),
		earned:  round(k.capacity() - k.burst),
	}
	if k.floor != nil {
		w.missing += round(float64(k.floor.Burst()) - k.floorTokens(now))
	}
	return w
}

func (k *bucket) withdraw(req *http.Request, now time.Time) bool {
	if round(k.tokens) >= 1 {
		k.tokens = max(k.tokens-1, 0)
		k.notePayer(req, false)
		return true
	}
	if !k.withdrawFloor(now) {
		return false
	}
	k.notePayer(req, true)
	return true
}

func (k *bucket) refund(req *http.Request, now time.Time) {
	if _, ok := k.floorPaid[weak.Make(req)]; ok {
		k.returned++
		k.notePayer(req, false)
		return
	}
	k.tokens = min(k.tokens+1, k.capacity())
}

func (k *bucket) withdrawFloor(now time.Time) bool {
	if k.floor == nil {
		return false
	}
	total := k.floorTokens(now)
	if round(total) < 1 {
		return false
	}
	k.returned = total - k.floor.TokensAt(now)
	k.floor.ReserveN(now, 1) // may leave it in debt, by no more than what was returned
	return true
}

// floorTokens is what MinPerSecond allows at now: what the limiter has, which
// takes nothing back, and what was returned, up to its burst.
func (k *bucket) floorTokens(now time.Time) float64 {
	if k.floor == nil {
		return 0
	}
	return max(min(k.floor.TokensAt(now)+k.returned, float64(k.floor.Burst())), 0)
}

// notePayer notes whether it was floor that paid for req's token, so that a
// Refund goes to the same place. The pointers are weak because nobody tells
// when a request has ended whose retry was sent.
func (k *bucket) notePayer(req *http.Request, floor bool) {
	if k.floor == nil {
		return
	}
	if !floor {
		delete(k.floorPaid, weak.Make(req))
		return
	}
	if len(k.floorPaid) >= k.sweepAt {
		maps.DeleteFunc(k.floorPaid, func(p weak.Pointer[http.Request], _ struct{}) bool { return p.Value() == nil })
		k.sweepAt = 2*len(k.floorPaid) + 64
	}
	k.floorPaid[weak.Make(req)] = struct{}{}
}

// round takes the binary fractions' error out of an amount.
func round(tokens float64) float64 {
	return math.Round(tokens*tokenUnits) / tokenUnits
}
