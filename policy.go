package retryhttp

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"
)

// Policy configures when a Transport retries, how long it waits, and what it reports. A zero field
// means its default. Functions may run concurrently.
type Policy struct {
	MaxAttempts int           // the first and hedges included. 0: 4; 1: no retries; negative: no bound
	MaxElapsed  time.Duration // first attempt's start to last attempt's start, or from a break with Resume. 0 or less: none

	// AttemptTimeout bounds each attempt, from its start to the response header or the end of a
	// buffered body. Until then, the attempt's context has its end as the deadline. Its error is
	// Retryable and matches [context.DeadlineExceeded]. 0 or less: none.
	AttemptTimeout time.Duration

	Backoff       Backoff                  // the wait before each retry. nil: FullJitter(250ms, 30s)
	MaxRetryAfter time.Duration            // a longer Retry-After ends the retries; jitter of up to half is added. 0: 1m; negative: header ignored
	Classify      func(Attempt) Class      // must not read Response.Body. nil: the function Classify
	Idempotent    func(*http.Request) bool // whether it may be repeated; asked before the first attempt. nil: the function Idempotent

	// IdempotencyKey makes an Idempotency-Key for a request that is not idempotent; "" adds none.
	// Set it, to [RandomKey] say, only for servers that honor the header. nil: none.
	IdempotencyKey func(*http.Request) string

	RetryUnprocessed bool  // also retry what is not idempotent, but only after an attempt that is Unprocessed
	MaxBodyBytes     int64 // recorded of a body that can be read only once. 0: 64 KiB; negative: nothing

	// BufferBytes reads response bodies of up to this many bytes within the attempt, except streams.
	// A body that breaks off is retried. After the last attempt, its Read returns the error. Classify
	// may look at [Attempt.Body]. A 408, 429 or 5xx is read for 250 ms at most. A watch sent as
	// application/json is held back. 0 or less: none.
	BufferBytes int64

	// Resume continues the body of a GET that breaks off, within its Read, with Range, If-Range and
	// If-Match (RFC 9110, section 14). If it gives up, the Read returns an [*Error]. The response must
	// have a Content-Length, and a strong ETag, or no ETag and an old Last-Modified. Bodies are wrapped.
	// Requests are sent after RoundTrip has returned. Sign them below the Transport. See also
	// [ErrChanged] and [ErrNotResumable].
	Resume bool

	StallTimeout time.Duration // the longest that a Read of a response body may get nothing, before it is a timeout. 0 or less: no bound

	Budget Budget // bounds retries across requests. nil: a TokenBucket of its own. Unlimited{}: no bound
	Gate   *Gate  // holds retries back while their host is down. nil: a Gate of its own
	Hedge  *Hedge // sends a second attempt beside one that is slow. nil: never

	OnRetry func(Attempt)          // if not nil, called before the wait that precedes each retry, and not for a hedge
	OnDone  func(Attempt, Outcome) // if not nil, called once for each RoundTrip, with the last attempt
	Logger  *slog.Logger           // if not nil: Info per retry or hedge, Debug per hold, Warn per request or body given up, unless Final or canceled
}

const (
	defaultMaxAttempts   = 4
	defaultBackoffBase   = 250 * time.Millisecond
	defaultBackoffLimit  = 30 * time.Second
	defaultMaxRetryAfter = time.Minute
	defaultMaxBodyBytes  = 64 << 10
)

// resolved is a Policy whose zero fields are replaced by their defaults.
type resolved struct {
	Policy
	observed bool // Elapsed may be read after a success
}

// shared is what the requests of a Transport share if its Policy sets no Budget or no Gate.
type shared struct {
	budget TokenBucket
	gate   Gate
}

// resolve fills in the defaults.
func (p Policy) resolve(own *shared) resolved {
	observed := p.Classify != nil || p.OnDone != nil || p.Hedge != nil
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
		p.Budget = &own.budget
	}
	if p.Gate == nil {
		p.Gate = &own.gate
	}
	return resolved{p, observed}
}

type policyKey struct{}

// policyEdit is a list of edits, innermost first.
type policyEdit struct {
	edit  func(*Policy)
	outer *policyEdit
}

// WithPolicy returns a context that changes the Policy of its requests, in every Transport. Edits
// nest, outermost first, and get a copy with the defaults filled in. Make no Budget, Gate or Hedge
// in them.
func WithPolicy(ctx context.Context, edit func(*Policy)) context.Context {
	if edit == nil {
		return ctx
	}
	outer, _ := ctx.Value(policyKey{}).(*policyEdit)
	return context.WithValue(ctx, policyKey{}, &policyEdit{edit, outer})
}

// apply returns a copy of the resolved Policy p after all edits.
func (e *policyEdit) apply(p *resolved, own *shared) *resolved {
	if e.outer != nil {
		p = e.outer.apply(p, own)
	}
	edited := p.Policy
	e.edit(&edited)
	resolved := edited.resolve(own)
	return &resolved
}
