package redisbudget

import (
	"net/http"
	"time"

	"github.com/retryhttp/retryhttp"
)

// terms are what a withdrawal costs, and how far below zero it may take the tokens.
type terms struct {
	price, overdraft float64
}

// invitedPrice is the cost of a retry whose moment the server has named.
const invitedPrice = 1.0 / 3

// termsOf returns the terms of a retry. The overdraft is one for each success of this process that is
// usual in the time that the attempt took. Other processes have overdrafts of their own. Where successes
// earn nothing, none would pay for an overdraft.
func (a *account) termsOf(r *retryhttp.Retry) terms {
	t := terms{price: 1}
	if a.settings.healthyRatio > 0 {
		t.overdraft = a.own.rate * max(r.Failed.Elapsed, 0).Seconds()
	}
	if statusOf(r) == http.StatusTooManyRequests && r.Asked > 0 {
		t.price = invitedPrice
	}
	return t
}

// fail records a failed attempt of this process.
func (a *account) fail(r *retryhttp.Retry, now time.Time) {
	switch down := isDown(r); {
	case down && r.Down:
		a.health.sufferOutage(now)
	case down:
		a.health.downs++
	}
}

// isDown reports whether the failed attempt says that the host is down. A hedge follows no failure.
func isDown(r *retryhttp.Retry) bool {
	status := statusOf(r)
	refused := status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
	return status >= http.StatusInternalServerError || r.Failed.Err != nil && !refused
}

func statusOf(r *retryhttp.Retry) int {
	if r.Status == 0 && r.Failed.Response != nil { // somebody else's Retry
		return r.Failed.Response.StatusCode
	}
	return r.Status
}
