package retryhttp

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Budget bounds retries across requests. A Transport withdraws after all other checks, before each
// retry's wait and before each hedge. It refunds at most once for each Withdraw: if the retry was
// never sent, if a hedged request got a Final response, or if a resumption brought 1 MiB. The
// methods are called from many goroutines at once.
type Budget interface {
	Withdraw(req *http.Request) bool // takes the cost of one retry of req, or reports false; never blocks
	Refund(req *http.Request)        // gives back a Withdraw
	Deposit(req *http.Request)       // credits a RoundTrip that ended in a response classified Final
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

	MinPerSecond float64                    // retries per second and bucket beyond what was earned. 0 or less, or NaN: none
	Key          func(*http.Request) string // which bucket a request draws on. nil: one per URL.Host

	mu      sync.Mutex    // serializes changes to the set of keys in buckets
	buckets sync.Map      // from string to *bucket; Load takes no lock
	count   atomic.Int32  // number of buckets; written with mu held
	busy    atomic.Bool   // a bucket has stripes
	lanes   sync.Pool     // of *lane
	numbers atomic.Uint32 // number of lanes ever made
	next    []*bucket     // the buckets to evict next, in order; guarded by mu
	taken   int           // number of buckets taken from next since it was listed; guarded by mu
	passed  atomic.Uint32 // number of deposits that found neither a bucket nor room for a new bucket
}

const (
	maxBuckets = 4096
	// relistAfter is the least number of buckets taken from the list before it is rebuilt to
	// find a bucket as good as new.
	relistAfter   = maxBuckets / 8
	defaultWindow = 20 * time.Second
	// tokenUnits is the number of units per token to which amounts are rounded when they are
	// compared. Ten times 0.1 is one token, although not in binary fractions.
	tokenUnits = 1e9
)

// Withdraw takes a token from req's bucket, or reports false if there is none.
func (b *TokenBucket) Withdraw(req *http.Request) bool {
	granted := false
	b.update(req, func(k *bucket, now time.Time) { granted = k.withdraw(now) })
	return granted
}

// Refund gives req's bucket a token back, if it has room.
func (b *TokenBucket) Refund(req *http.Request) {
	b.update(req, func(k *bucket, _ time.Time) { k.refund() })
}

// Tokens returns what req could draw on now, for a gauge. It adds no bucket.
func (b *TokenBucket) Tokens(req *http.Request) float64 {
	key := keyOf(req, b.Key)
	k, ok := b.find(key)
	if !ok {
		k = b.successor(key)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	k.fold(now)
	return k.balance(now)
}

// update runs f on req's bucket, with the bucket's lock held. A bucket that was evicted
// meanwhile no longer counts: its successor would grant a token taken from it a second time.
func (b *TokenBucket) update(req *http.Request, f func(*bucket, time.Time)) {
	key := keyOf(req, b.Key)
	for {
		k := b.bucket(key)
		k.mu.Lock()
		if !k.evicted.Load() {
			now := time.Now()
			k.fold(now)
			k.used, k.drawn = now, now
			f(k, now)
			k.mu.Unlock()
			return
		}
		k.mu.Unlock()
	}
}

func (b *TokenBucket) find(key string) (*bucket, bool) {
	k, ok := b.buckets.Load(key)
	if !ok {
		return nil, false
	}
	return k.(*bucket), true
}

func (b *TokenBucket) bucket(key string) *bucket {
	if k, ok := b.find(key); ok {
		return k
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if k, ok := b.find(key); ok {
		return k
	}
	now := time.Now()
	k := newBucket(b, strings.Clone(key), now) // a host is part of a URL's string, which may be long
	if b.count.Load() >= maxBuckets {
		old := b.lockNext(now)
		k.inherit(old, now)
		b.remove(old)
		old.mu.Unlock()
	}
	b.buckets.Store(k.key, k)
	b.count.Add(1)
	return k
}

// successor returns what bucket would make for a key. It neither adds nor evicts a bucket.
func (b *TokenBucket) successor(key string) *bucket {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	k := newBucket(b, key, now)
	if b.count.Load() >= maxBuckets {
		old := b.lockNext(now)
		k.inherit(old, now)
		old.mu.Unlock()
	}
	return k
}

// lockNext returns the bucket to evict next, with the bucket's lock held. The caller holds b.mu.
//
// The list is rebuilt when all of its buckets have been evicted, or used since the last sort. It
// is also rebuilt now and then to find a bucket that has become as good as new. A bucket is
// passed over at most once for each of its uses. Therefore the search costs every use a constant
// share of the sort, however many hosts there are.
func (b *TokenBucket) lockNext(now time.Time) *bucket {
	for {
		if len(b.next) == 0 {
			b.list(now)
		}
		k := b.next[0]
		k.mu.Lock()
		k.fold(now)
		unused, asNew := k.used.Equal(k.listed), k.asNew(now)
		wanted := !asNew && k.inUse(now) && b.taken >= relistAfter
		if (unused || asNew) && !wanted {
			return k
		}
		k.mu.Unlock()
		if wanted {
			b.list(now)
		} else {
			b.take()
		}
	}
}

// take takes the first bucket from the list. The caller holds b.mu.
func (b *TokenBucket) take() {
	b.next[0] = nil // or the list would keep the bucket alive
	b.next = b.next[1:]
	b.taken++
}

// list lists all buckets in the order of eviction. The caller holds b.mu.
func (b *TokenBucket) list(now time.Time) {
	type entry struct {
		k      *bucket
		asNew  bool
		listed time.Time
	}
	entries := make([]entry, 0, maxBuckets)
	b.buckets.Range(func(_, v any) bool {
		k := v.(*bucket)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.fold(now)
		k.listed = k.used
		entries = append(entries, entry{k, k.asNew(now), k.listed})
		return true
	})
	slices.SortFunc(entries, func(x, y entry) int {
		if x.asNew != y.asNew {
			if x.asNew {
				return -1
			}
			return 1
		}
		return x.listed.Compare(y.listed)
	})
	b.next, b.taken = make([]*bucket, len(entries)), 0
	for i, e := range entries {
		b.next[i] = e.k
	}
}

// remove evicts k, which is the first bucket in the list. The caller holds b.mu and k.mu.
func (b *TokenBucket) remove(k *bucket) {
	k.evicted.Store(true)
	b.take()
	b.buckets.Delete(k.key)
	b.count.Add(-1)
}

// bucket holds one key's tokens.
type bucket struct {
	key      string
	evicted  atomic.Bool // written with mu held
	deposits atomic.Uint64
	stripes  atomic.Pointer[[]stripe] // count deposits in place of the field deposits, once there are many
	_        [cacheLine]byte          // separates what every deposit reads from what a fold writes

	mu        sync.Mutex
	used      time.Time // the last known use; a deposit counts when it is folded
	drawn     time.Time // the last Withdraw or Refund
	listed    time.Time // the value of used when the TokenBucket's list was made
	ratio     float64
	burst     float64
	window    float64       // in seconds; 0 for no room beyond burst
	idle      time.Duration // a bucket that is not drawn on for longer leaves nothing to its successor
	tokens    float64
	folded    uint64 // number of deposits that tokens and perSecond include
	foldedAt  time.Time
	perSecond float64 // the mean rate of deposits

	floor *rate.Limiter // the source of MinPerSecond; nil if there is none
}

func newBucket(b *TokenBucket, key string, now time.Time) *bucket {
	window := cmp.Or(b.Window, defaultWindow)
	k := &bucket{
		key:      key,
		ratio:    cmp.Or(b.Ratio, 0.1),
		burst:    float64(max(cmp.Or(b.Burst, 5), 0)),
		window:   max(window, 0).Seconds(),
		idle:     window,
		used:     now,
		foldedAt: now,
	}
	if k.idle < 0 {
		k.idle = defaultWindow
	}
	if !(k.ratio > 0) {
		k.ratio = 0
	}
	k.ratio = min(k.ratio, math.MaxInt32) // larger than any sensible ratio, and far from overflow
	k.tokens = k.burst
	if b.MinPerSecond > 0 {
		perSecond := min(b.MinPerSecond, math.MaxInt32)
		k.floor = rate.NewLimiter(rate.Limit(perSecond), max(1, int(math.Ceil(perSecond))))
	}
	return k
}

// inUse reports whether k was drawn on within its Window. Later deposits do not count, because
// the bucket of a host that answers has nothing to pass on.
func (k *bucket) inUse(now time.Time) bool {
	return !k.drawn.IsZero() && now.Sub(k.drawn) <= k.idle
}

// inherit limits k to what old has left, if old is in use. Otherwise retries would not die out
// in an outage of more hosts than there are buckets.
func (k *bucket) inherit(old *bucket, now time.Time) {
	if !old.inUse(now) {
		return
	}
	k.tokens = min(k.tokens, old.tokens)
	k.floor = old.floor
}

// fold brings tokens and the mean rate up to date. The caller holds k.mu.
func (k *bucket) fold(now time.Time) {
	total := k.total()
	n := float64(total - k.folded)
	k.folded = total
	if n > 0 {
		k.used = now
	}
	k.decay(n, max(now.Sub(k.foldedAt), 0).Seconds())
	if now.After(k.foldedAt) {
		k.foldedAt = now
	}
	k.tokens = min(k.tokens+k.ratio*n, k.capacity())
}

// decay adds n deposits to the mean rate. It assumes that they were spread evenly over the given
// number of seconds.
func (k *bucket) decay(n, seconds float64) {
	if k.window == 0 {
		return
	}
	x := seconds / k.window
	share := 1.0 // the part of n/window that has not decayed yet: (1-e^-x)/x, which is 1 at 0
	if x > 0 {
		share = -math.Expm1(-x) / x
	}
	k.perSecond = k.perSecond*math.Exp(-x) + share*n/k.window
}

func (k *bucket) capacity() float64 {
	return max(k.burst, k.ratio*k.perSecond*k.window)
}

// asNew reports whether a new bucket would be worth as much as k.
func (k *bucket) asNew(now time.Time) bool {
	return round(k.tokens) >= k.burst && round(k.capacity()) <= k.burst &&
		(k.floor == nil || round(k.floorTokens(now)) >= float64(k.floor.Burst()))
}

func (k *bucket) withdraw(now time.Time) bool {
	switch {
	case round(k.tokens) >= 1:
		k.tokens = max(k.tokens-1, 0)
	case round(k.floorTokens(now)) >= 1:
		k.floor.ReserveN(now, 1)
	default:
		return false
	}
	return true
}

func (k *bucket) refund() {
	k.tokens = min(k.tokens+1, k.capacity())
}

// balance returns how many whole tokens withdraw would grant, plus the larger of the two
// remaining fractions. A token comes whole from one of the two accounts.
func (k *bucket) balance(now time.Time) float64 {
	earned, earnedRest := math.Modf(round(k.tokens))
	floor, floorRest := math.Modf(round(k.floorTokens(now)))
	return earned + floor + max(earnedRest, floorRest)
}

// floorTokens returns what MinPerSecond allows at now.
func (k *bucket) floorTokens(now time.Time) float64 {
	if k.floor == nil {
		return 0
	}
	return max(k.floor.TokensAt(now), 0)
}

// round removes the error of binary fractions from an amount.
func round(tokens float64) float64 {
	return math.Round(tokens*tokenUnits) / tokenUnits
}
