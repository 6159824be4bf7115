package retryhttp

import "math"

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
		x.token = receipt{true, cost}
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

// countFailure reports a failure to the Budget that is not asked for its retry. Otherwise a client of
// requests that cannot be repeated would never see an overload. If MaxAttempts were made, their
// retries have counted.
func (x *exchange) countFailure(got *result, stop Stop) {
	switch stop {
	case StopNotIdempotent, StopBody, StopDeadline:
		q := x.question()
		x.ask(&q.Retry, got)
		q.Stop = stop
		x.withdraw(&q.Retry)
		x.answered(q)
		x.refund(&x.token)
	}
}

// refund gives back what the Budget has taken, once, even if its Refund panics.
func (x *exchange) refund(r *receipt) {
	if taken := *r; taken.held {
		*r = receipt{}
		x.policy.Budget.Refund(x.req, taken.cost)
	}
}

// question is what a Budget is asked, and which bucket it has looked at. Questions are used again: a
// Retry is large for the stack of a request that sleeps afterwards, and the bucket would be an object
// for each retry.
type question struct {
	Retry
	bucket bucketID
}

func (x *exchange) question() *question {
	q, _ := x.core.asked.Get().(*question)
	if q == nil {
		q = new(question)
	}
	q.Retry.bucket = &q.bucket
	return q
}

// answered takes q back. If the Budget has panicked, q is left to the collector.
func (x *exchange) answered(q *question) {
	*q = question{}
	x.core.asked.Put(q)
}
