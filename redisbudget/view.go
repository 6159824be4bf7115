package redisbudget

import "time"

// view is the shared balance as this process knows it.
type view struct {
	known    bool // an answer has come
	tokens   float64
	capacity float64   // the capacity at the last answer
	asked    time.Time // when the call of the last answer was sent
	cut      bool      // the view was too old, and age has cut it
	unheard  float64   // own withdrawals after that, which the answer does not include
	advance  float64   // how many times its share the process may spend; 0 stands for 1
	limited  bool      // the share has refused a Withdraw
}

// maxViewAge is the age, in Intervals, after which a view is worth at most one token.
const maxViewAge = 10

// earn adds what successes of this process have earned, immediately.
func (v *view) earn(earned float64) {
	v.tokens = min(v.tokens+earned, v.capacity)
}

func (v *view) take(n float64) {
	v.tokens = min(v.tokens-n, v.capacity)
	v.unheard += n
}

// withinShare reports whether a process with a share of the fleet's successes may withdraw a
// retry's price from the balance now. Until the next answer, it may spend its share of the balance,
// and at least one token. So a fleet whose processes all do so spends the balance about once,
// however long the answers take. After the answer, the process may spend its share of the rest.
func (v *view) withinShare(share, price float64) bool {
	most := max(share*(v.tokens+v.unheard), 1) * max(v.advance, 1)
	within := round(v.unheard+price) <= round(most)
	v.limited = v.limited || !within
	return within
}

// follow makes v the view that follows an old one, whose process had reported withdrawals. If the
// share has limited this process, and the others have spent no more than this process, it may
// spend twice as much until the next answer. So a process that fails alone soon has the whole
// balance.
func (v *view) follow(old *view, withdrawals float64) {
	// The capacity may have fallen.
	expected := min(old.tokens+withdrawals, v.capacity) - withdrawals
	if old.limited && expected-v.tokens <= withdrawals {
		v.advance = min(2*max(old.advance, 1), v.capacity)
	}
}

// age cuts an old view to one token, once. If each Withdraw applied this limit, it would grant
// all of an old view token by token.
func (v *view) age(now time.Time, interval time.Duration) {
	if !v.cut && now.Sub(v.asked) > times(maxViewAge, interval) {
		v.cut = true
		v.tokens = min(v.tokens, 1)
	}
}

// ownBucket does a retryhttp.TokenBucket's arithmetic with a Burst of 1, and decides while the
// shared balance is not known. It is not a TokenBucket, because a TokenBucket would have to
// count each success a second time.
type ownBucket struct {
	tokens float64
	burst  float64
	rate   float64 // the mean of successes per second
}

// earn adds successes that were spread evenly over the elapsed time, and what they have earned.
func (o *ownBucket) earn(n, earned float64, elapsed time.Duration, s *settings) {
	if s.window > 0 {
		old, recent := decay(elapsed, s.window)
		o.rate = o.rate*old + recent*n/s.window.Seconds()
	}
	o.tokens = min(o.tokens+earned, o.capacity(s))
}

// take spends tokens, or gives them back if n is negative. Tokens that the shared balance
// granted are not owed here.
func (o *ownBucket) take(n float64, s *settings) {
	o.tokens = min(max(o.tokens-n, 0), o.capacity(s))
}

func (o *ownBucket) capacity(s *settings) float64 {
	return max(o.burst, s.ratio*o.rate*s.window.Seconds())
}
