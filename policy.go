package retryhttp

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"
)

// Policy says when a Transport retries, how long it waits, and whom it tells.
// The zero Policy is a sound default, and a zero field means its documented
// default.
type Policy struct {
	// MaxAttempts is how many attempts are made for one request, the first
	// included. 0 means 4; 1 means no retries; a negative number sets no bound,
	// which leaves it to MaxElapsed, the context and the Budget.
	MaxAttempts int

	// MaxElapsed bounds the time from the first attempt's start to the last
	// attempt's start; a retry that would start later is not made, and not
	// waited for. 0 or less means that only the context bounds it.
	MaxElapsed time.Duration

	// AttemptTimeout bounds each attempt, from its start to the response
	// header; it never cuts a response body. The error of an attempt that took
	// too long has Timeout() true, matches [context.DeadlineExceeded], and is
	// Retryable; what is beneath finds it as the [context.Cause] of the attempt's
	// context, which is canceled. Like the end of any context, it takes effect
	// when the base looks: net/http's HTTP/1 does not while it is in a Read of a
	// request body that came with a GetBody. 0 or less means none.
	AttemptTimeout time.Duration

	// Backoff is how long to wait before each retry.
	// nil means FullJitter(250ms, 30s).
	Backoff Backoff

	// MaxRetryAfter is the longest Retry-After that is waited for. A response
	// that asks for more is returned at once, with [StopRetryAfter]. 0 means 1
	// minute; negative means that the header is ignored.
	MaxRetryAfter time.Duration

	// Classify says what an attempt's result means. It must not read the
	// response's body. nil means the function [Classify].
	Classify func(Attempt) Class

	// Idempotent reports whether a request may be repeated although an earlier
	// attempt may have taken effect. It alone decides, and is asked about the
	// request as it was sent. nil means the function [Idempotent].
	Idempotent func(*http.Request) bool

	// IdempotencyKey makes a key for a request that is not idempotent, which
	// is then sent as its Idempotency-Key header, the same on every attempt.
	// Set it only for servers that honor the header: to the others, the
	// request is merely repeated. A key that the caller set is left alone. ""
	// adds none. nil means that no keys are made. See [RandomKey].
	IdempotencyKey func(*http.Request) string

	// RetryUnprocessed has a request that is not idempotent retried also, after
	// an attempt that was classified [Unprocessed], and after no other. An error
	// does not count as such if net/http/httptrace reported that the request's
	// header had been written, unless the server refused the stream.
	RetryUnprocessed bool

	// MaxBodyBytes is how much is kept, to be sent again, of a request body that
	// can be read only once, if a retry can follow. A body that turns out to be
	// longer is sent all the same, and not retried. It does not concern bodies with a GetBody, files,
	// and whatever else can be read from its start again: they have no limit
	// and are not copied. 0 means 64 KiB; negative means that nothing is kept.
	MaxBodyBytes int64

	// Budget bounds retries across requests. nil means a [TokenBucket] of the
	// Transport's own; Unlimited{} sets no bound.
	Budget Budget

	// OnRetry, if not nil, is called before the wait that precedes each retry.
	// It may read from the failed response's body. It must not change the
	// request or keep the Attempt's Response. The time that it takes is part of
	// the wait, and delays the retry if it is longer.
	OnRetry func(Attempt)

	// OnDone, if not nil, is called once for each RoundTrip, when its outcome is
	// known, with the last attempt. The attempt has the response that the caller
	// gets, whose body OnDone must not read, or the last error. Its Number is 0 if
	// the context had ended before the first attempt. OnDone must not change the
	// request.
	OnDone func(Attempt, Outcome)

	// Logger, if not nil, gets a record at level Info for each retry, and one
	// at level Warn for each request that was given up: one whose Stop is
	// neither final nor canceled. Of a URL they hold scheme, host and path.
	Logger *slog.Logger
}

const (
	defaultMaxAttempts   = 4
	defaultBackoffBase   = 250 * time.Millisecond
	defaultBackoffLimit  = 30 * time.Second
	defaultMaxRetryAfter = time.Minute
	defaultMaxBodyBytes  = 64 << 10
)

// resolve puts defaults in the place of zero fields. own is the Budget of a
// Policy that names none.
func (p Policy) resolve(own *TokenBucket) Policy {
	p.MaxAttempts = cmp.Or(p.MaxAttempts, defaultMaxAttempts)
	p.Backoff = p.Backoff.orDefault()
	p.MaxRetryAfter = cmp.Or(p.MaxRetryAfter, defaultMaxRetryAfter)
	p.MaxBodyBytes = cmp.Or(p.MaxBodyBytes, defaultMaxBodyBytes)
	if p.Classify == nil {
		p.Classify = Classify
	}
	if p.Idempotent == nil {
		p.Idempotent = Idempotent
	}
	if b, isBucket := p.Budget.(*TokenBucket); p.Budget == nil || isBucket && b == nil {
		p.Budget = own
	}
	return p
}

type policyKey struct{}

// policyEdit is a list of edits, innermost first.
type policyEdit struct {
	edit  func(*Policy)
	outer *policyEdit
}

// WithPolicy returns a context that changes the Policy of the requests made
// with it, for every Transport they pass through. The edit is given a copy of
// the Transport's Policy in which every default has been filled in; a field
// that it sets to zero means its default again. Of nested edits the outermost,
// made first, is applied first.
//
// The edit is called once for each request, from whichever goroutine sends it.
func WithPolicy(ctx context.Context, edit func(*Policy)) context.Context {
	if edit == nil {
		return ctx
	}
	outer, _ := ctx.Value(policyKey{}).(*policyEdit)
	return context.WithValue(ctx, policyKey{}, &policyEdit{edit, outer})
}

// apply returns a copy of p, which is resolved, after all edits.
func (e *policyEdit) apply(p *Policy, own *TokenBucket) *Policy {
	if e.outer != nil {
		p = e.outer.apply(p, own)
	}
	edited := *p
	e.edit(&edited)
	edited = edited.resolve(own)
	return &edited
}
