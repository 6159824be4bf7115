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
// retry's wait and before each hedge. The methods are called from many goroutines at once.
type Budget interface {
	Withdraw(req *http.Request) bool // takes the cost of one retry of req, or reports false; never blocks
	Refund(req *http.Request)        // gives back a Withdraw whose retry was never sent
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
// weighted mean of the successes per second. There are at most 4,096 buckets; the one unused for
// longest makes room. See "Fixing retries with token buckets and circuit breakers", Marc Brooker.
type TokenBucket struct {
	Ratio  float64       // retries earned by each success. 0: 0.1; negative or NaN: none
	Burst  int           // tokens at the start, and the least room. 0: 5; negative: none
	Window time.Duration // room for what this long at the recent rate earns. 0: 20s; negative: none

	MinPerSecond float64                    // retries per second and key beyond what was earned. 0 or less, or NaN: none
	Key          func(*http.Request) string // which bucket a request draws on. nil: one per URL.Host

	mu      sync.Mutex    // serializes changes to buckets' set of keys
	buckets sync.Map      // string to *bucket; its Load takes no lock
	count   atomic.Int32  // of buckets, written with mu held
	busy    atomic.Bool   // a bucket has stripes
	lanes   sync.Pool     // of *lane
	numbers atomic.Uint32 // of lanes
	next    []*bucket     // which go next, in order; guarded by mu
	taken   int           // from next since it was listed; guarded by mu
	passed  atomic.Uint32 // deposits that found neither a bucket nor room for one
}

const (
	maxBuckets = 4096
	// relistAfter is how many buckets are taken from the list at least before it is
	// made anew for one that is as good as new.
	relistAfter   = maxBuckets / 8
	defaultWindow = 20 * time.Second
	// tokenUnits is the fineness to which amounts are rounded when they are
	// compared: ten times 0.1 is one token, although not in binary fractions.
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
	key := b.key(req)
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

// update runs f on req's bucket, with its lock held. If an eviction came in
// between, the bucket that was found is no longer the one that counts, and a
// token taken from it would be granted a second time by its successor.
func (b *TokenBucket) update(req *http.Request, f func(*bucket, time.Time)) {
	key := b.key(req)
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

func (b *TokenBucket) key(req *http.Request) string {
	switch {
	case b.Key != nil:
		return b.Key(req)
	case req.URL != nil:
		return req.URL.Host
	}
	return ""
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
	k := newBucket(b, strings.Clone(key), now) // a host is a part of a URL, which may be long
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

// successor returns what bucket would make for a key, and changes nothing.
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

// lockNext returns the bucket that goes next, with its lock held; b.mu is held.
//
// The list is made anew when all of it has gone or been used since, and now and
// then for a bucket that has become as good as new. A bucket is passed over once for
// each time that it was used at the most, so the search costs every use a constant
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

// take takes the first bucket from the list, with b.mu held.
func (b *TokenBucket) take() {
	b.next[0] = nil // or the list would keep it alive
	b.next = b.next[1:]
	b.taken++
}

// list lists all buckets in the order in which they go, with b.mu held.
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

// remove takes out the bucket that goes next, with b.mu and its own lock held.
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
	stripes  atomic.Pointer[[]stripe] // count deposits in its place, once there are many
	_        [cacheLine]byte          // between what every deposit reads and what a fold writes

	mu        sync.Mutex
	used      time.Time // as far as is known: a deposit counts when it is folded
	drawn     time.Time // when a Withdraw or a Refund came last
	listed    time.Time // used, when the TokenBucket's list was made
	ratio     float64
	burst     float64
	window    float64       // seconds; 0: no room beyond burst
	idle      time.Duration // unused for longer, it leaves nothing
	tokens    float64
	folded    uint64 // deposits that tokens and rate contain
	foldedAt  time.Time
	perSecond float64 // the mean rate of deposits

	floor *rate.Limiter // nil: none
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
	k.ratio = min(k.ratio, math.MaxInt32) // beyond all sense, and far from overflowing
	k.tokens = k.burst
	if b.MinPerSecond > 0 {
		perSecond := min(b.MinPerSecond, math.MaxInt32)
		k.floor = rate.NewLimiter(rate.Limit(perSecond), max(1, int(math.Ceil(perSecond))))
	}
	return k
}

// inUse reports whether k was drawn on within its Window. What it earned since does
// not count: a host that answers has nothing to hand on.
func (k *bucket) inUse(now time.Time) bool {
	return !k.drawn.IsZero() && now.Sub(k.drawn) <= k.idle
}

// inherit has k start with what old had left, if old was in use until now: else
// retries would not die out in an outage of more hosts than there are buckets.
func (k *bucket) inherit(old *bucket, now time.Time) {
	if !old.inUse(now) {
		return
	}
	k.tokens = min(k.tokens, old.tokens)
	k.floor = old.floor
}

// fold brings tokens and rate up to date, with k.mu held.
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

// asNew reports whether a new bucket would be worth as much.
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

// balance is how many tokens withdraw would grant, and the greater of what is left
// beside them: a token comes whole from one of the two accounts.
func (k *bucket) balance(now time.Time) float64 {
	earned, earnedRest := math.Modf(round(k.tokens))
	floor, floorRest := math.Modf(round(k.floorTokens(now)))
	return earned + floor + max(earnedRest, floorRest)
}

// floorTokens is what MinPerSecond allows at now.
func (k *bucket) floorTokens(now time.Time) float64 {
	if k.floor == nil {
		return 0
	}
	return max(k.floor.TokensAt(now), 0)
}

// round takes the binary fractions' error out of an amount.
func round(tokens float64) float64 {
	return math.Round(tokens*tokenUnits) / tokenUnits
}
