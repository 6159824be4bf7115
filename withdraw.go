package retryhttp

import (
	"math"
	"sync/atomic"
)

// This file has how an exchange asks its Budget.

// receipt is what a Budget has taken for an attempt.
type receipt struct {
	held bool
	cost float64
}

// withdraw asks the Budget for the token of a retry or a hedge. later reports whether the Budget may
// grant later what it refuses now.
func (x *exchange) withdraw(r *Retry) (later bool) {
	cost, ok := x.policy.Budget.Withdraw(*r)
	if ok {
		x.token = receipt{held: true, cost: cost}
	}
	return !ok && !math.IsInf(cost, 1)
}

// ask has r ask for the retry that follows got.
func (x *exchange) ask(r *Retry, got *result) {
	r.Request, r.Failed, r.Status = x.req, got.Attempt, got.status
	r.Asked = got.askedFor(x.policy.MaxRetryAfter)
	if got.Err != nil || got.status >= 500 {
		r.Down, _ = x.policy.Gate.status(x.req)
	}
}

// refund gives back what the Budget has taken, once, even if its Refund panics.
func (x *exchange) refund(r *receipt) {
	taken := *r
	*r = receipt{}
	if taken.held {
		x.policy.Budget.Refund(x.req, taken.cost)
	}
}

// question is what a Budget is asked, and which bucket has refused it. Questions are used again: a Retry
// is large for the stack of a request that sleeps afterwards. The bucket is atomic because somebody's
// Budget may ask a TokenBucket in another goroutine, and after it has answered itself.
type question struct {
	Retry
	bucket atomic.Pointer[bucketID]
}

func (x *exchange) question() *question {
	q, _ := x.core.asked.Get().(*question)
	if q == nil {
		q = new(question)
	}
	q.bucket.Store(nil)
	q.Retry.bucket = &q.bucket
	return q
}

// answered takes q back. If the Budget has panicked, q is left to the collector.
func (x *exchange) answered(q *question) {
	q.Retry = Retry{}
	x.core.asked.Put(q)
}
