package redisbudget

import "time"

// view is what this process knows of the shared balance.
type view struct {
	known    bool // there was an answer
	tokens   float64
	capacity float64   // at the last answer
	asked    time.Time // when its call was sent
	cut      bool      // it was too old
}

// maxViewAge is after how many Intervals a view is worth one token at the most.
const maxViewAge = 10

// earn adds successes of this process, at once.
func (v *view) earn(n, ratio float64) {
	v.tokens = min(v.tokens+ratio*n, v.capacity)
}

func (v *view) take(n float64) {
	v.tokens = min(v.tokens-n, v.capacity)
}

// age cuts a view that is old. It is cut once: if the limit were compared with each
// Withdraw, all of an old view would be granted one by one.
func (v *view) age(now time.Time, interval time.Duration) {
	if v.known && !v.cut && now.Sub(v.asked) > times(maxViewAge, interval) {
		v.cut = true
		v.tokens = min(v.tokens, 1)
	}
}

// ownBucket is a retryhttp.TokenBucket's arithmetic with a Burst of 1, which decides while
// the shared balance is not known. It is no TokenBucket, since that would have to count
// each success once more.
type ownBucket struct {
	tokens float64
	burst  float64
	rate   float64 // the mean of successes per second
}

// earn adds successes that were spread evenly over a time.
func (o *ownBucket) earn(n float64, elapsed time.Duration, s *settings) {
	if s.window > 0 {
		old, recent := decay(elapsed, s.window)
		o.rate = o.rate*old + recent*n/s.window.Seconds()
	}
	o.tokens = min(o.tokens+s.ratio*n, o.capacity(s))
}

// take spends tokens, or gives them back. What the shared balance granted is not owed here.
func (o *ownBucket) take(n float64, s *settings) {
	o.tokens = min(max(o.tokens-n, 0), o.capacity(s))
}

func (o *ownBucket) capacity(s *settings) float64 {
	return max(o.burst, s.ratio*o.rate*s.window.Seconds())
}
