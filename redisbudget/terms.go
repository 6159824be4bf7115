package redisbudget

import (
	"net/http"

	"github.com/retryhttp/retryhttp"
)

// terms are what the next withdrawal costs, and how far below zero it may take the tokens.
type terms struct {
	price, overdraft float64
}

var oneToken = terms{price: 1}

// after returns the terms of the withdrawal that follows one with t, unless a failure is recorded
// before. A withdrawal that is refused may be asked for again, at the same price.
func (t terms) after(granted bool) terms {
	if granted {
		return oneToken
	}
	return terms{price: t.price}
}

// invitedPrice is the cost of a retry whose moment the server has named.
const invitedPrice = 1.0 / 3

// fail records a failed attempt of this process, and the terms of its retry. The overdraft is one
// for each success of this process that is usual in the time that the attempt took. Other processes
// have overdrafts of their own.
func (a *account) fail(failed *retryhttp.Attempt) {
	a.terms = terms{price: 1, overdraft: a.own.rate * failed.Elapsed.Seconds()}
	if failed.Response == nil {
		a.health.downs++
		return
	}
	status := failed.Response.StatusCode
	asked, asks := retryhttp.RetryAfter(failed.Response.Header)
	if asked > 0 && status == http.StatusTooManyRequests {
		a.terms.price = invitedPrice
	}
	if !asks && status >= http.StatusInternalServerError {
		a.health.downs++
	}
}
