package retryhttp

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"
)

// Policy configures when a Transport retries, how long it waits, and what it reports.
// The zero Policy is a sound default; a zero field means its default. The functions are
// called from the goroutines that send requests, read bodies (with Resume) or send hedges, at
// the same time.
type Policy struct {
	MaxAttempts int           // the first and hedges included. 0: 4; 1: no retries; negative: no bound
	MaxElapsed  time.Duration // first attempt's start to last attempt's start. 0 or less: only the context bounds it

	// AttemptTimeout bounds each attempt, from its start to the response header, and to the
	// end of what BufferBytes reads. It never cuts what the caller reads. It cancels the
	// attempt's context. Its error is Retryable, has Timeout() true and matches
	// [context.DeadlineExceeded]. 0 or less means none.
	AttemptTimeout time.Duration

	Backoff       Backoff                  // the wait before each retry. nil: FullJitter(250ms, 30s)
	MaxRetryAfter time.Duration            // a longer Retry-After ends the retries. 0: 1m; negative: header ignored
	Classify      func(Attempt) Class      // must not read Response.Body. nil: the function Classify
	Idempotent    func(*http.Request) bool // whether it may be repeated, as it was sent. nil: the function Idempotent

	// IdempotencyKey makes the Idempotency-Key of a request that is not idempotent,
	// the same for every attempt; "" adds none. Set it, to [RandomKey] say, only for
	// servers that honor the header. A caller's key that is not empty is kept. nil: none.
	IdempotencyKey func(*http.Request) string

	// RetryUnprocessed allows retrying a request that is not idempotent, but only after
	// an attempt classified [Unprocessed]. An error is believed only if the request's
	// header was not written, or the server refused the stream.
	RetryUnprocessed bool

	// MaxBodyBytes is how much is recorded of a request body that can be read only once.
	// A longer body is sent, and not retried. 0 means 64 KiB; negative means nothing.
	MaxBodyBytes int64

	// BufferBytes has response bodies of up to this many bytes, decompressed, read within
	// the attempt. A body that breaks off is then retried, and Classify may look into
	// [Attempt.Body]. If no retry follows, the caller gets the response, what came of its
	// body, and the error. A longer body is handed over as it comes. Never read: bodies of
	// HEAD, CONNECT, 101, 204 and 304, server-sent events, gRPC, Connect, JSON by lines, and
	// multipart/x-mixed-replace. A watch that is sent as application/json is held back, and
	// a full-duplex HTTP/2 exchange may deadlock: leave BufferBytes off. 0 or less: none.
	BufferBytes int64

	// Resume continues the body of a GET that breaks off, within its Read, with Range and
	// If-Range (RFC 9110, section 14). The response must have a length, and a strong ETag
	// or, without an ETag, a Last-Modified at least 60 s before its Date. A break is
	// retried like a failed attempt: MaxAttempts counts from the last attempt that brought
	// 1 MiB, and MaxElapsed from its break. Unless the server sends the same
	// representation, the Read returns the original error in an [*Error]. Resume wraps
	// bodies, sends requests after RoundTrip has returned, and trusts ETags. It adds headers
	// that a signature made above the Transport does not cover.
	Resume bool

	// StallTimeout is the longest that a Read of a response body may get nothing. The time
	// between Reads does not count. The error has Timeout() true and matches
	// [context.DeadlineExceeded]. A stall costs the connection, or the HTTP/2 stream. The
	// body of a 101 has no limit. 0 or less: no bound.
	StallTimeout time.Duration

	Budget Budget // bounds retries across requests. nil: a TokenBucket of its own. Unlimited{}: no bound
	Gate   *Gate  // holds retries back while their host is down. nil: a Gate of its own
	Hedge  *Hedge // sends a second attempt beside one that is slow. nil: never

	// OnRetry, if not nil, is called before the wait that precedes each retry, and not for
	// a hedge. It may read from the failed response's body, but must not keep the response.
	// Its time is part of the wait, and delays the retry if it is longer.
	OnRetry func(Attempt)

	// OnDone, if not nil, is called once for each RoundTrip, with the last attempt. It
	// must not read the response's body, which is the caller's. If a buffered body broke
	// off, the Attempt has the error, and the caller gets the response.
	OnDone func(Attempt, Outcome)

	// Logger, if not nil, gets a record at level Info for each retry and each hedge. It gets a
	// record at level Debug for each time that the Gate held the request. It gets a record at level Warn
	// for each request whose Stop is neither final nor canceled, and for each body that
	// Resume gave up. Logged URLs contain only scheme, host and path.
	Logger *slog.Logger
}

const (
	defaultMaxAttempts   = 4
	defaultBackoffBase   = 250 * time.Millisecond
	defaultBackoffLimit  = 30 * time.Second
	defaultMaxRetryAfter = time.Minute
	defaultMaxBodyBytes  = 64 << 10
)

// resolved is a Policy with its defaults in the place of zero fields.
type resolved struct {
	Policy
	observed bool // somebody may look at Elapsed after a success
}

// shared is what the requests of a Transport share if its Policy names nothing else.
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

// WithPolicy returns a context that changes the Policy of the requests made with it, in
// every Transport. The edit gets a copy with the defaults filled in, once for each
// request; a field that it sets to zero means the default again. Edits nest: the
// outermost is applied first.
func WithPolicy(ctx context.Context, edit func(*Policy)) context.Context {
	if edit == nil {
		return ctx
	}
	outer, _ := ctx.Value(policyKey{}).(*policyEdit)
	return context.WithValue(ctx, policyKey{}, &policyEdit{edit, outer})
}

// apply returns a copy of p, which is resolved, after all edits.
func (e *policyEdit) apply(p *resolved, own *shared) *resolved {
	if e.outer != nil {
		p = e.outer.apply(p, own)
	}
	edited := p.Policy
	e.edit(&edited)
	resolved := edited.resolve(own)
	return &resolved
}
