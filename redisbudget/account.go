package redisbudget

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// account holds the books of one key in this process. They are the view of the shared balance,
// the own bucket, the amounts to report, and the times of calls.
//
// Each deposit is a success of a request, so deposits are only counted. fold computes
// everything else that depends on them.
type account struct {
	deposits atomic.Uint64 // deposits ever made
	due      atomic.Bool   // deposits will be looked at soon: after a call, or before one
	// Separates the fields that each deposit writes from the fields that the lock guards.
	_ [48]byte

	bucket   *Bucket
	settings *settings
	key      string // the key in Redis

	mu       sync.Mutex
	gone     bool   // a was dropped
	silent   bool   // nothing is reported any more
	folded   uint64 // deposits that the fields below include
	foldedAt time.Time
	used     time.Time // the last known use; deposits have no clock

	own        ownBucket
	view       view
	unreported unreported
	health     health
	weighed    uint64  // deposits that the health includes
	overdrawn  float64 // what overdrafts have granted, and successes have not paid yet

	drawn  time.Time // the last failure, retry or refund of this process; zero if there was none
	spent  uint64    // deposits that were folded then
	since  time.Time // the last success, or the last rest without a success
	vain   int       // the next rest without a success comes 1<<vain Windows after since
	rested bool      // a has had a rest since the last retry
	paid   bool      // a rest has paid for the last retry

	timer *time.Timer // nil before a call was first scheduled
	// watch reports a call that takes Intervals. It is nil if there is no OnError, or was no call.
	watch   *time.Timer
	calling chan struct{} // closed when the call under way has ended; nil if there is none
	failing bool          // the last call failed
	// A Withdraw was granted after the last call began, and the calls do not fail.
	granted bool
	refused bool          // another Withdraw came after the last call began
	began   time.Time     // when the last call began
	brought time.Time     // when the last call that a refused Withdraw brought forward began
	limiter limiter       // of the calls that granted Withdraws bring forward
	spread  time.Duration // the delay of the next regular call, so that processes spread
}

// unreported holds the amounts that have not been reported. After fading, they may be
// fractions of a success.
type unreported struct {
	deposits    float64
	earned      float64 // by the deposits
	withdrawals float64 // minus refunds
}

func (u unreported) any() bool { return u.deposits != 0 || u.withdrawals != 0 }

// faded returns u with its amounts multiplied by a factor. Less than half of a success, or of the
// cheapest retry, is dropped, so that a process without traffic stops calling.
func (u unreported) faded(by float64) unreported {
	u.deposits *= by
	u.earned *= by
	u.withdrawals *= by
	if u.deposits < 0.5 {
		u.deposits, u.earned = 0, 0
	}
	if math.Abs(u.withdrawals) < invitedPrice/2 {
		u.withdrawals = 0
	}
	return u
}

func newAccount(b *Bucket, key string, now time.Time) *account {
	s := &b.settings
	a := &account{
		bucket:   b,
		settings: s,
		key:      s.prefix + ":{" + key + "}",
		foldedAt: now,
	}
	a.own.burst = min(s.burst, 1)
	a.own.tokens = a.own.burst
	return a
}

// silence ends all reports of a. The caller holds the lock, or no other goroutine knows a.
func (a *account) silence() {
	a.silent = true
	a.due.Store(true)
}

// update runs f with the lock held. If a was dropped, update reports false and does not run f.
func (a *account) update(f func(*account, time.Time)) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		return false
	}
	now := time.Now()
	a.fold(now)
	a.used = now
	f(a, now)
	a.arm(now)
	return true
}

// doubt is as in a TokenBucket: the first rest without a success comes 1<<doubt Windows after the last success.
// Otherwise processes that send little would never have a retry again if only a retry were missing.
const doubt = 5

// hasRested reports whether this process has not drawn on the balance for a Window, and has either had a
// success since, or has had none for long.
func (a *account) hasRested(now time.Time) bool {
	s := a.settings
	if a.drawn.IsZero() || now.Sub(a.drawn) <= s.fade || s.healthyRatio <= s.ratio || s.burst <= 0 {
		return false
	}
	return a.folded > a.spent || now.Sub(a.since)>>a.vain >= s.fade
}

// draw records that a is drawn on.
func (a *account) draw(now time.Time) {
	rested := a.hasRested(now)
	switch {
	case a.folded > a.spent || a.drawn.IsZero():
		a.since, a.vain = now, doubt
	case rested:
		a.since = now
		a.vain++
	}
	a.rested = a.rested || rested
	a.drawn, a.spent = now, a.folded
}

// withdraw takes what a retry costs. After a rest, the process itself adds what is missing, because the balance of a
// fleet may never rest. The balance is asked for all the same.
func (a *account) withdraw(now time.Time, terms terms) (cost float64, granted bool) {
	tokens, rested := a.balance(now), a.rested
	a.rested, a.paid = false, false
	granted = tokens >= round(terms.price)
	limited := granted && a.viewDecides(now) && !a.view.withinShare(a.share(now), terms.price)
	if limited {
		granted, tokens = false, 0 // the rest is for the others, until the next answer
	}
	if short := terms.price - max(tokens, 0); !granted && round(a.overdrawn+short) <= round(terms.overdraft) {
		a.overdrawn += short
		granted = true
	}
	a.granted = a.granted || granted && !a.failing
	// The withdrawals before a limited one have brought a call forward.
	a.refused = a.refused || !granted && !limited || a.failing
	switch {
	case granted:
		cost = terms.price
	case rested:
		cost, a.paid = max(tokens, 0), true
	default:
		return 0, false
	}
	a.own.take(cost, a.settings)
	a.book(cost)
	return cost, true
}

// share returns this process's share of the fleet's recent successes. The capacity of the last
// answer, as it would be now without further successes, shows the fleet's rate. If that is no more
// than the Burst, the rate is not known.
func (a *account) share(now time.Time) float64 {
	if a.view.capacity <= a.settings.burst {
		return 1
	}
	aged, _ := decay(now.Sub(a.view.asked), a.settings.window)
	fleet := a.view.capacity * aged
	if fleet <= a.settings.burst {
		return 1
	}
	return min(a.own.capacity(a.settings)/fleet, 1)
}

// refund gives back the cost of a withdrawal, and its rest.
func (a *account) refund(cost float64) {
	a.rested, a.paid = a.rested || a.paid, false
	debt := min(a.overdrawn, cost)
	a.overdrawn -= debt
	a.own.take(debt-cost, a.settings)
	a.book(-cost)
}

// book takes n tokens from the shared balance, even if the own bucket has granted them.
func (a *account) book(n float64) {
	a.view.take(n)
	switch booked := a.unreported.withdrawals; {
	case a.silent:
	case a.failing && n < 0:
		// A refund cancels a withdrawal that is not reported. A part of the withdrawal may have faded, and
		// the rest of the refund would grant tokens that were not earned.
		a.unreported.withdrawals = max(booked+n, min(booked, 0))
	default:
		a.unreported.withdrawals += n
	}
}

// noteDeposit schedules a report of deposits that were made while none were expected. It
// reports false if a was dropped.
func (a *account) noteDeposit() bool {
	return a.update(func(*account, time.Time) {})
}

// foldEvery is the number of deposits after which one of them folds them all.
const foldEvery = 64

// tryFold has the health follow the last tenths of a second. It also makes the own bucket's rate
// follow the last Window while no call folds the deposits. Each fold assumes that the deposits since
// the previous fold were spread evenly.
func (a *account) tryFold() {
	if !a.mu.TryLock() {
		return
	}
	defer a.mu.Unlock()
	if now := time.Now(); a.silent || a.calling != nil {
		a.fold(now)
	} else {
		a.weigh(a.deposits.Load(), now)
	}
}

// weigh reports successes to the health.
func (a *account) weigh(total uint64, now time.Time) {
	a.health.ups += float64(total - a.weighed)
	a.weighed = total
	a.health.weigh(now)
}

// drop drops a and reports true, unless a has something to report or was used recently.
func (a *account) drop(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	due := a.due.Swap(false) // a deposit from here on waits for the lock, and is not lost
	a.fold(now)
	if a.calling != nil || a.unreported.any() || now.Sub(a.used) < a.settings.retire {
		a.due.Store(due)
		return false
	}
	a.gone = true
	a.stopTimer()
	return true
}

// fold brings everything up to date with the deposits. The caller holds the lock.
func (a *account) fold(now time.Time) {
	total := a.deposits.Load()
	n := float64(total - a.folded)
	elapsed := max(now.Sub(a.foldedAt), 0)
	a.folded, a.foldedAt = total, a.foldedAt.Add(elapsed)
	if n > 0 {
		a.used = now
	}
	a.weigh(total, now)
	earned := n * a.settings.earns(a.health.poor)
	debt := min(a.overdrawn, earned)
	a.overdrawn -= debt
	a.own.earn(n, earned-debt, elapsed, a.settings)
	a.view.earn(earned)
	a.view.age(now, a.settings.interval)
	switch {
	case a.silent:
	case a.failing:
		by, share := decay(elapsed, a.settings.fade)
		a.unreported = a.unreported.faded(by)
		a.unreported.deposits += share * n
		a.unreported.earned += share * earned
	default:
		a.unreported.deposits += n
		a.unreported.earned += earned
	}
}

// balance returns the tokens that decide now. The caller holds the lock and has folded the
// deposits.
func (a *account) balance(now time.Time) float64 {
	if a.viewDecides(now) {
		return round(a.view.tokens)
	}
	return round(a.own.tokens)
}

// viewDecides reports whether the view decides now. Otherwise the own bucket does.
func (a *account) viewDecides(now time.Time) bool {
	stalled := a.calling != nil && now.Sub(a.began) > a.settings.patience
	return a.view.known && !a.failing && !stalled && !a.silent
}

// round removes the error of binary fractions from an amount: ten times 0.1 is one token.
func round(tokens float64) float64 {
	const units = 1e9
	return math.Round(tokens*units) / units
}

// decay returns two factors for the end of an elapsed time. old is for an amount from its
// beginning, and recent is for events that were spread evenly over it.
func decay(elapsed, constant time.Duration) (old, recent float64) {
	x := elapsed.Seconds() / constant.Seconds()
	if x <= 0 {
		return 1, 1
	}
	return math.Exp(-x), -math.Expm1(-x) / x
}
