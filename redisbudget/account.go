package redisbudget

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// account holds the books of one key in this process: the view of the shared balance, the
// own bucket, what is to be reported, and when to call.
//
// Each deposit is a success of a request, so deposits are only counted. Everything else
// that depends on them is computed by fold.
type account struct {
	deposits atomic.Uint64 // ever made
	due      atomic.Bool   // deposits are looked at soon: after a call, or before one
	_        [48]byte      // between what each deposit writes and what the lock guards

	b   *Bucket
	s   *settings
	key string // in Redis

	mu       sync.Mutex
	gone     bool   // it was dropped
	silent   bool   // nothing is reported any more
	folded   uint64 // deposits that all below contains
	foldedAt time.Time
	used     time.Time // last, as far as is known: deposits have no clock

	own        ownBucket
	view       view
	unreported unreported

	timer   *time.Timer   // nil: there was no call yet
	calling chan struct{} // closed when the call under way has ended; nil: there is none
	failing bool          // the last call failed
	asked   bool          // a Withdraw came since the last call began
	began   time.Time     // the last call
	brought time.Time     // the last call that was brought forward
	spread  time.Duration // what the next regular call is put off by, so that processes spread
}

// unreported is what has not been reported. It may be a part of a success, after fading.
type unreported struct {
	deposits    float64
	withdrawals float64 // less refunds
}

func (u unreported) any() bool { return u.deposits != 0 || u.withdrawals != 0 }

// faded returns u after it has lost weight. Less than a half is dropped, so that a process
// without traffic stops calling.
func (u unreported) faded(by float64) unreported {
	u.deposits *= by
	u.withdrawals *= by
	if u.deposits < 0.5 {
		u.deposits = 0
	}
	if math.Abs(u.withdrawals) < 0.5 {
		u.withdrawals = 0
	}
	return u
}

func newAccount(b *Bucket, key string, now time.Time) *account {
	s := &b.settings
	a := &account{
		b:        b,
		s:        s,
		key:      s.prefix + ":{" + key + "}",
		foldedAt: now,
	}
	a.own.burst = min(s.burst, 1)
	a.own.tokens = a.own.burst
	return a
}

// silence has a report nothing any more. Its lock is held, or nobody else knows it.
func (a *account) silence() {
	a.silent = true
	a.due.Store(true)
}

// update runs f with the lock held, unless a was dropped.
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

func (a *account) withdraw(now time.Time) bool {
	a.asked = !a.silent
	if a.balance(now) < 1 {
		return false
	}
	a.take(1)
	return true
}

func (a *account) refund(time.Time) { a.take(-1) }

// take books n tokens, no matter which bucket granted them.
func (a *account) take(n float64) {
	a.own.take(n, a.s)
	a.view.take(n)
	if !a.silent {
		a.unreported.withdrawals += n
	}
}

// noteDeposit has the deposits reported that were made while none were expected. It
// reports false if a was dropped.
func (a *account) noteDeposit() bool {
	return a.update(func(*account, time.Time) {})
}

// foldEvery is after how many deposits one of them has them folded, if no call does.
const foldEvery = 64

// foldUnlessReported has the own bucket's rate follow the last Window also while no call
// folds the deposits: each fold takes them as spread evenly since the one before.
func (a *account) foldUnlessReported() {
	if !a.mu.TryLock() {
		return
	}
	defer a.mu.Unlock()
	if a.silent || a.calling != nil {
		a.fold(time.Now())
	}
}

// drop drops a and reports true, unless a has something to report or was used lately.
func (a *account) drop(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	due := a.due.Swap(false) // a deposit from here on waits for the lock, and is not lost
	a.fold(now)
	if a.calling != nil || a.unreported.any() || a.asked || now.Sub(a.used) < a.s.retire {
		a.due.Store(due)
		return false
	}
	a.gone = true
	a.stopTimer()
	return true
}

// fold brings everything up to date with the deposits, with the lock held.
func (a *account) fold(now time.Time) {
	total := a.deposits.Load()
	n := float64(total - a.folded)
	elapsed := max(now.Sub(a.foldedAt), 0)
	a.folded, a.foldedAt = total, a.foldedAt.Add(elapsed)
	if n > 0 {
		a.used = now
	}
	a.own.earn(n, elapsed, a.s)
	a.view.earn(n, a.s.ratio)
	a.view.age(now, a.s.interval)
	switch {
	case a.silent:
	case a.failing:
		by, share := decay(elapsed, a.s.fade)
		a.unreported = a.unreported.faded(by)
		a.unreported.deposits += share * n
	default:
		a.unreported.deposits += n
	}
}

// balance returns the tokens that decide now, with the lock held and all folded.
func (a *account) balance(now time.Time) float64 {
	stalled := a.calling != nil && now.Sub(a.began) > a.s.patience
	if a.view.known && !a.failing && !stalled && !a.silent {
		return round(a.view.tokens)
	}
	return round(a.own.tokens)
}

// round takes the error of binary fractions out of an amount: ten times 0.1 is a token.
func round(tokens float64) float64 {
	const units = 1e9
	return math.Round(tokens*units) / units
}

// decay returns by what an amount is multiplied after a time, and events that were spread
// evenly over that time.
func decay(elapsed, constant time.Duration) (old, recent float64) {
	x := elapsed.Seconds() / constant.Seconds()
	if x <= 0 {
		return 1, 1
	}
	return math.Exp(-x), -math.Expm1(-x) / x
}
