package latency

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/keyed"
)

// Settings are what a [Tail] is made with. Share is more than 0 and at most 1, Window is positive, and
// the other fields are not negative.
type Settings struct {
	Share  float64       // the share of hedged attempts, and so their quantile
	After  time.Duration // the time after which an attempt is hedged; 0: the quantile
	Min    time.Duration // the shortest time after which an attempt is hedged
	Window time.Duration // how far back latencies count
}

const (
	// answersBeyond is how many answers must lie beyond a quantile for it to be meaningful.
	answersBeyond = 5
	// The allowance is counted in billionths of a hedge.
	oneHedge      = 1_000_000_000
	mostHedges    = 10 * oneHedge
	refreshEvery  = 64 // number of observations after which the delay is recomputed
	refreshWithin = 32 // the delay is also recomputed after Window/refreshWithin
)

// Tails has a Tail for each of at most [keyed.Most] keys. The zero value is ready to use. Its methods are
// safe for concurrent use.
type Tails struct {
	tails   keyed.Map[Tail]
	crowded atomic.Bool // keys may have been forgotten
}

// Find returns key's Tail, or nil if there is neither a Tail nor room for a new one. It then makes room, if
// it can, by the Tails without an answer in their Window.
func (t *Tails) Find(key string, s Settings) *Tail {
	return t.tails.FindOrAdd(key, func() *Tail { return newTail(s, !t.crowded.Load()) }, t.idle)
}

func (t *Tails) idle(tail *Tail, now time.Time) bool {
	t.crowded.Store(true)
	return tail.recent.Answers(now.Sub(tail.epoch)) == 0
}

// Delay returns key's [Tail.Compute], and adds no Tail.
func (t *Tails) Delay(key string, s Settings) time.Duration {
	tail := t.tails.Find(key)
	if tail == nil {
		tail = newTail(s, false)
	}
	return tail.Compute()
}

// Tail decides when an attempt is hedged: it holds the recent latencies of one key, and the hedges that the
// key's answers have earned.
type Tail struct {
	settings Settings
	epoch    time.Time // the moment from which it measures time
	recent   *Recent

	allowance atomic.Int64
	delay     atomic.Int64 // time until a hedge, as of the newest refresh. 0: no hedge
	observed  atomic.Int64 // observations since the newest refresh
	stale     atomic.Int64 // when the delay is due for a refresh
}

// newTail returns a Tail without answers. It begins with a hedge, unless keys may have been forgotten: each
// of many keys would get a hedge whenever the key is added again.
func newTail(s Settings, withHedge bool) *Tail {
	t := &Tail{settings: s, epoch: time.Now(), recent: New(s.Window)}
	if withHedge {
		t.allowance.Store(oneHedge)
	}
	t.delay.Store(int64(t.Compute()))
	return t
}

// Delay returns the delay after which an attempt is hedged, as of a while ago, or 0 for no hedge.
func (t *Tail) Delay() time.Duration { return time.Duration(t.delay.Load()) }

// Compute returns the delay as of now.
func (t *Tail) Compute() time.Duration {
	delay, now := t.settings.After, time.Since(t.epoch)
	if delay <= 0 {
		if float64(t.recent.Answers(now)) < answersBeyond/t.settings.Share {
			return 0
		}
		delay = t.recent.Quantile(now, 1-t.settings.Share)
	}
	return max(delay, t.settings.Min, 1)
}

// Observe records the latency of an answer, which earns a part of a hedge, or of an attempt that was given up
// for being slow. It refreshes the delay now and then. A refresh is cheap until there are enough answers.
func (t *Tail) Observe(latency time.Duration, answer bool) {
	now := time.Since(t.epoch)
	if answer {
		t.allow(int64(math.Round(t.settings.Share * oneHedge)))
	}
	t.recent.Record(now, latency, answer)
	if t.observed.Add(1) < refreshEvery && t.delay.Load() > 0 && now < time.Duration(t.stale.Load()) {
		return
	}
	t.observed.Store(0)
	t.stale.Store(int64(now + t.settings.Window/refreshWithin))
	t.delay.Store(int64(t.Compute()))
}

// Withdraw takes a hedge from the allowance, or reports false.
func (t *Tail) Withdraw() bool { return t.allow(-oneHedge) }

// Refund gives back a hedge that was not sent.
func (t *Tail) Refund() { t.allow(oneHedge) }

// allow adds to the allowance, up to mostHedges. It adds nothing, and returns false, if too little is left.
func (t *Tail) allow(more int64) bool {
	for {
		had := t.allowance.Load()
		has := min(had+more, mostHedges)
		if has < 0 {
			return false
		}
		if has == had || t.allowance.CompareAndSwap(had, has) {
			return true
		}
	}
}
