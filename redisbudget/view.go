package redisbudget

import "time"

// view is the shared balance as this process knows it.
type view struct {
	known    bool // an answer has come
	tokens   float64
	capacity float64   // the capacity at the last answer
	asked    time.Time // when the call of the last answer was sent
	cut      bool      // the view was too old, and age has cut it
}

// maxViewAge is the age, in Intervals, after which a view is worth at most one token.
const maxViewAge = 10

// earn adds successes of this process immediately.
func (v *view) earn(n, ratio float64) {
	v.tokens = min(v.tokens+ratio*n, v.capacity)
}

func (v *view) take(n float64) {
	v.tokens = min(v.tokens-n, v.capacity)
}

// age cuts an old view to one token, once. If each Withdraw applied this limit, it would grant
// all of an old view token by token.
func (v *view) age(now time.Time, interval time.Duration) {
	if v.known && !v.cut && now.Sub(v.asked) > times(maxViewAge, interval) {
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

// earn adds successes that were spread evenly over the elapsed time.
func (o *ownBucket) earn(n float64, elapsed time.Duration, s *settings) {
	if s.window > 0 {
		old, recent := decay(elapsed, s.window)
		o.rate = o.rate*old + recent*n/s.window.Seconds()
	}
	o.tokens = min(o.tokens+s.ratio*n, o.capacity(s))
}

// take spends tokens, or gives them back if n is negative. Tokens that the shared balance
// granted are not owed here.
func (o *ownBucket) take(n float64, s *settings) {
	o.tokens = min(max(o.tokens-n, 0), o.capacity(s))
}

func (o *ownBucket) capacity(s *settings) float64 {
	return max(o.burst, s.ratio*o.rate*s.window.Seconds())
}
