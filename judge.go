package retryhttp

import (
	"net/http"

	"github.com/retryhttp/retryhttp/internal/durations"
	"github.com/retryhttp/retryhttp/internal/outage"
	"github.com/retryhttp/retryhttp/internal/respbody"
)

// conclude judges an attempt, and reports its result to the Budget, to the Gate and to the Hedge. The
// Budget is first: the Gate lets a retry in line ask for what a success has earned. Of failures, only
// timeouts have latencies that count. The others are quick, and hedges would be sent too soon.
func (x *exchange) conclude(made *attempt, got *result) {
	x.judge(made, got)
	success := got.stands()
	if success { // the call ends with it, so it is deposited once
		x.policy.Budget.Deposit(x.req)
	}
	x.endAttempt(got)
	if x.tail != nil && (success || is[*attemptTimeoutError](got.Err)) {
		x.tail.Observe(got.Elapsed, success)
	}
}

// judge sets the result's class, and records a nested Transport's Outcome. A success that no
// hook observes is Final, and needs neither the clock nor a copy of the Attempt.
func (x *exchange) judge(made *attempt, got *result) {
	resp := got.answer()
	if x.policy.observed { // Classify and RetryAfter may be the user's: they may read, or panic
		defer respbody.Seal(resp).Unseal(resp)
	}
	if x.policy.observed || got.status >= 400 || !got.responded {
		got.until = x.core.now()
		got.Elapsed = got.until - made.begins
		if !got.judged || !got.responded {
			got.class = x.policy.Classify(got.Attempt)
		}
	}
	switch {
	case got.class == Unprocessed && got.brokeOff:
		got.class = Retryable // the server has answered
	case got.class != Retryable && got.class != Unprocessed:
		got.class = Final
	}
	if got.Err != nil || resp.Request != got.Request { // else no Transport is below
		got.inner = innerOutcome(&got.Attempt, resp)
	}
	switch got.hear(x.policy); {
	case got.asked == 0:
	case got.asked > x.policy.MaxRetryAfter:
		got.until = never
	default: // a date in Retry-After was compared with the clock just now
		got.until = min(durations.Add(x.core.now(), got.asked), never-1)
	}
}

// hear records how long the server asks the client to wait. Several decisions need it, and RetryAfter is
// called once: a hostile header takes time to read, and the caller's own function may count. Most
// successes ask for nothing, and cost two lookups in the header. With a negative MaxRetryAfter, nobody
// listens.
func (r *result) hear(p *resolved) {
	resp := r.answer()
	if resp == nil || p.MaxRetryAfter < 0 {
		return
	}
	if r.class == Final && !outage.MayClose(resp) {
		return
	}
	a := r.Attempt
	a.Response = resp
	if asked, ok := p.RetryAfter(a); ok {
		r.asked = max(asked, 0)
	}
	r.closes = outage.Closes(resp, r.asked, p.MaxRetryAfter)
}

// endAttempt reports the attempt's result to the Gate. A success has nothing to report while
// the Gate is calm and the response closes no key.
func (x *exchange) endAttempt(got *result) {
	gate := x.policy.Gate
	if got.succeeded() && got.closes == 0 && !x.pass.UnderWay() && gate.hosts.Calm() {
		return
	}
	if got.closes > 0 {
		gate.close(x.req, got.closes, got.status == http.StatusServiceUnavailable)
	}
	x.mark = gate.end(x.req, x.pass, got.verdict(x.req), got.Number == 1)
	x.pass = outage.Pass{}
}
