package bucket

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// tokenUnits is the number of units per token to which amounts are rounded when they are compared.
// Ten times 0.1 is one token, although not in binary fractions.
const tokenUnits = 1e9

// bucket holds one key's tokens.
type bucket struct {
	key     string
	evicted atomic.Bool // written with mu held, like sampled
	sampled atomic.Bool // one deposit in foldEvery counts for all

	// A cache line lies between what a deposit reads and what it writes. Otherwise a deposit would have
	// to fetch what it reads from the processor of the last one.
	_        [64]byte
	deposits atomic.Uint64

	mu        sync.Mutex
	settings  Settings
	used      time.Time // the last known use; a deposit counts when it is folded
	drawn     time.Time // the last withdrawal, refund or failure; zero if there was none
	listed    time.Time // the value of used when the bucket was listed for eviction
	tokens    float64
	folded    uint64 // number of deposits that tokens and perSecond include
	spent     uint64 // of these, when b was last drawn on
	foldedAt  time.Time
	perSecond float64 // the mean rate of deposits
	share     share
	rests     rests

	floor *rate.Limiter // the source of MinPerSecond; nil if there is none
}

func newBucket(key string, s Settings, now time.Time) *bucket {
	b := &bucket{key: key, settings: s, used: now, foldedAt: now, tokens: s.Burst,
		rests: rests{vain: doubt, since: now},
	}
	if s.MinPerSecond > 0 {
		most := max(1, int(math.Ceil(s.MinPerSecond)))
		b.floor = rate.NewLimiter(rate.Limit(s.MinPerSecond), most)
	}
	return b
}

// Failure is what a failed attempt says to the budget of its retry. The zero Failure is for a hedge,
// before which nothing has failed.
type Failure struct {
	Down    bool          // the host is down, for all that the attempt shows
	Outage  bool          // it is Down, and the Gate holds retries back, because all attempts fail
	Invited bool          // the server has said when to come again
	Took    time.Duration // how long the attempt took
}

// invitedPrice is the cost of a retry whose moment the server has named. Such a retry is cheap to
// refuse. Without it, docs/simulation.md, "What each mechanism pays for", has what a quota costs.
const invitedPrice = 1.0 / 3

// failed counts a failure.
func (b *bucket) failed(f Failure, now time.Time) {
	switch {
	case f.Outage:
		b.share.sufferOutage(now)
	case f.Down:
		b.share.downs++
	}
}

// inUse reports whether b was drawn on recently. Later deposits do not count, because the bucket
// of a host that answers has nothing to pass on.
func (b *bucket) inUse(now time.Time) bool {
	return now.Sub(b.drawn) <= b.settings.IdleAfter
}

// inherit limits b to what old has left, if old is in use. Otherwise retries would not die out
// in an outage of more hosts than there are buckets.
func (b *bucket) inherit(old *bucket, now time.Time) {
	if old.inUse(now) {
		b.tokens = min(b.tokens, old.tokens)
		b.share = old.share
		b.floor = old.floor
	}
}

// fold brings tokens and the mean rate up to date. The caller holds b.mu.
func (b *bucket) fold(now time.Time) {
	total := b.deposits.Load()
	n := float64(total - b.folded)
	b.folded = total
	if n > 0 {
		b.used = now
	}
	b.decay(n, max(now.Sub(b.foldedAt), 0).Seconds())
	if now.After(b.foldedAt) {
		b.foldedAt = now
	}
	b.share.ups += n
	b.share.weigh(now)
	b.tokens = min(b.tokens+b.earns()*n, b.capacity())
}

// earns returns how many tokens a deposit earns now.
func (b *bucket) earns() float64 {
	if b.share.poor {
		return b.settings.Ratio
	}
	return b.settings.HealthyRatio
}

// decay adds n deposits to the mean rate. It assumes that they were spread evenly over the given
// number of seconds.
func (b *bucket) decay(n, seconds float64) {
	window := b.settings.Window.Seconds()
	if window == 0 {
		return
	}
	x := seconds / window
	kept := 1.0 // the part of n/window that has not decayed yet: (1-e^-x)/x, which is 1 at 0
	if x > 0 {
		kept = -math.Expm1(-x) / x
	}
	b.perSecond = b.perSecond*math.Exp(-x) + kept*n/window
}

func (b *bucket) capacity() float64 {
	return max(b.settings.Burst, b.settings.Ratio*b.perSecond*b.settings.Window.Seconds())
}

// asNew reports whether a new bucket would be worth as much as b.
func (b *bucket) asNew(now time.Time) bool {
	burst := b.settings.Burst
	return !b.share.poor && round(b.tokens) >= burst && round(b.capacity()) <= burst &&
		(b.floor == nil || round(b.floorTokens(now)) >= float64(b.floor.Burst()))
}

// withdraw takes what the retry after f costs. Each success in the time that the failed attempt took
// allows an overdraft of one: a connection that dies with a minute of slow answers is no storm, and
// later successes pay. Where successes earn nothing, there is no overdraft.
func (b *bucket) withdraw(now time.Time, f Failure) (cost float64, granted bool) {
	cost = 1
	if f.Invited {
		cost = invitedPrice
	}
	overdraft := 0.0
	if b.settings.HealthyRatio > 0 {
		overdraft = b.perSecond * max(f.Took, 0).Seconds()
	}
	switch {
	case round(b.tokens+overdraft) >= round(cost):
		b.tokens -= cost
		b.rests.retried = true
		return cost, true
	case round(b.floorTokens(now)) >= 1:
		b.floor.ReserveN(now, 1)
		return 1, true
	}
	return 0, false
}

// refund gives back the cost of a withdrawal to what was earned, even if the floor granted it.
func (b *bucket) refund(cost float64) {
	if cost > 0 { // and no NaN
		b.tokens = min(b.tokens+cost, b.capacity())
	}
}

// balance returns how many whole tokens withdraw would grant, plus the larger of the two
// remaining fractions. A token comes whole from one of the two accounts.
func (b *bucket) balance(now time.Time) float64 {
	worth, _ := b.rest(now)
	earned, earnedRest := math.Modf(max(round(b.tokens), worth, 0))
	floor, floorRest := math.Modf(round(b.floorTokens(now)))
	return earned + floor + max(earnedRest, floorRest)
}

// floorTokens returns what MinPerSecond allows at now.
func (b *bucket) floorTokens(now time.Time) float64 {
	if b.floor == nil {
		return 0
	}
	return max(b.floor.TokensAt(now), 0)
}

// round removes the error of binary fractions from an amount.
func round(tokens float64) float64 {
	return math.Round(tokens*tokenUnits) / tokenUnits
}
