package redisbudget

import "time"

// Each granted Withdraw brings a call forward. So a fleet learns within a round trip what its
// processes spend, and does not spend an old balance for a whole Interval. Such calls are at
// most as many as the granted retries. callsAtOnce of them need no pause, and callsPerInterval
// are made in an Interval after that.
const (
	callsAtOnce      = 4
	callsPerInterval = 20
)

// limiter limits the calls that granted Withdraws bring forward. Each call moves paid ahead by a
// pause, and paid may be at most callsAtOnce pauses ahead of the time.
type limiter struct{ paid time.Time }

// next returns the time of the next call, which may have passed.
func (l *limiter) next(interval time.Duration) time.Time {
	return l.paid.Add(-(callsAtOnce - 1) * pauseIn(interval))
}

// take books a call.
func (l *limiter) take(now time.Time, interval time.Duration) {
	if l.paid.Before(now) {
		l.paid = now
	}
	l.paid = l.paid.Add(pauseIn(interval))
}

func pauseIn(interval time.Duration) time.Duration { return interval / callsPerInterval }
