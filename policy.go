package retryhttp

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"
)

// Policy configures when a Transport retries, how long it waits, and what it reports. A zero field
// means its default, so the zero Policy is a sound choice for most clients. The fields that many
// programs set come first. Functions may run concurrently.
type Policy struct {
	// MaxAttempts is how often a request is sent at most, including the first attempt and any hedge.
	// 0 means 4, 1 means that nothing is retried, and a negative number sets no limit. Raise it if many
	// attempts fail by chance. To outlast an outage, raise Gate.Hold. A client that sends little needs
	// more attempts or a longer Backoff, because a Gate holds no lone request. With Resume, the count
	// starts again whenever the time of MaxElapsed does.
	MaxAttempts int

	// MaxElapsed limits the time from the call of RoundTrip to the start of the last attempt. An
	// attempt that has begun may take longer. With Resume, the time starts again when a body first
	// breaks off, and each time a body breaks off after another 1 MiB has come. 0 or less sets no
	// limit. A deadline on the context is usually better, because it also ends the attempts.
	MaxElapsed time.Duration

	// AttemptTimeout limits each attempt, from its start to the response header, with BufferBytes to
	// the end of a buffered body, and with PeekBytes to the event of another body that Classify decides
	// on. Until then, the attempt's context has this end as its deadline. The timeout's error is
	// Retryable and matches [context.DeadlineExceeded]. 0 or less sets no limit. Set it when servers may hang, below your
	// callers' patience: without it, a hanging attempt uses up all of the time. Response bodies are then
	// wrapped.
	AttemptTimeout time.Duration

	// Backoff returns the wait before each retry. Nil means FullJitter(250ms, 30s). Choose a backoff
	// with jitter, or the clients of a server that has failed return in step.
	Backoff Backoff

	// Budget limits retries across requests, so that retries die out in an outage. A retry that it
	// refuses may wait a few seconds for a success. Otherwise its request ends after the Backoff. Nil
	// means a [TokenBucket] of the Transport's own. Share one Budget among Transports to limit their sum.
	// [Unlimited] sets no limit, which is safe only if something else limits the retries.
	Budget Budget

	// OnRetry, if not nil, is called before the wait that precedes each retry, but not for a hedge. For a
	// retry that waits in line, it is called after that wait. It may read the failed response's body.
	OnRetry func(Attempt)

	// OnDone, if not nil, is called once for each RoundTrip, with the last attempt.
	OnDone func(Attempt, Outcome)

	// Logger, if not nil, logs each retry and each hedge at level Info, and each hold at Debug, once it is
	// over. It logs at Warn each request that is given up, unless its result is Final, and each response body
	// that is given up. It logs neither with [StopCanceled]. URLs are logged without userinfo, query
	// and fragment. Their paths are logged, and what the errors of your RoundTrippers quote.
	Logger *slog.Logger

	// MaxRetryAfter is the longest Retry-After that is waited for. A longer one ends the retries with
	// [StopRetryAfter]. The wait is never shorter than the server asked: the backoff is added, or
	// jitter of up to half if that is longer. 0 means a minute. A negative value ignores the header.
	// Lower it where someone is waiting, because failing fast beats succeeding late.
	MaxRetryAfter time.Duration

	// RetryAfter returns how long the server asks the client to wait, and whether it asks, about a
	// failed attempt or a limit. It is called at most once for an attempt, and only
	// with a Response, also beside the Err of a body that broke off. It must not read Response.Body, but
	// may look at [Attempt.Body]. A negative wait is no wait. Nil means the function [RetryAfter] of the
	// header, which your own function can call first. Set it where a server says it elsewhere: in its
	// JSON, or in a field of its own.
	RetryAfter func(Attempt) (time.Duration, bool)

	// Classify decides what a result means. Nil means the function [Classify], which your own function
	// can call for the cases that it leaves alone. It must not read Response.Body, but may look at
	// [Attempt.Body] and [Attempt.Peek]. It is called once for an attempt, with Resume again when its body
	// breaks off, and with PeekBytes again for each event that it leaves [Undecided], and for a failure after it.
	Classify func(Attempt) Class

	// Idempotent decides whether a request may be repeated. It is asked before the first attempt, and
	// again if IdempotencyKey has made a key. Nil means the function [Idempotent]. Set it where your
	// server's methods mean something else, such as a POST that only reads.
	Idempotent func(*http.Request) bool

	// IdempotencyKey makes an Idempotency-Key for a request that is not idempotent, and all of its
	// attempts carry this key. An empty key adds none. Nil means that no keys are made. Set it, to
	// [RandomKey] for example, only for servers that honor the header.
	IdempotencyKey func(*http.Request) string

	// RetryUnprocessed also retries a request that is not idempotent, but only after an attempt that
	// the server provably did not process, such as a 429. See [Unprocessed]. Set it for a POST that must arrive, if you
	// trust the servers and proxies to know what they have processed.
	RetryUnprocessed bool

	// RecordBytes is how many bytes are recorded of a request body that can be read only once. After
	// more of it has been read, the request is not retried and ends with [StopBody]. 0 means 64 KiB, and
	// a negative value records nothing. Raise it for large bodies that come from a stream, or set
	// Request.GetBody, which needs no memory.
	RecordBytes int64

	// BufferBytes reads response bodies of up to this many bytes within the attempt, so that a body
	// that breaks off is retried. After the last attempt, the body's Read returns the error. Streams
	// are never buffered. A 408, 429 or 5xx is read for at most 250 ms. 0 or less buffers nothing.
	// Set it for JSON APIs, but not for a watch that is sent as application/json: it would be held
	// back.
	BufferBytes int64

	// PeekBytes makes the first event of a response body that is not buffered whole a part of the
	// attempt, streams included. [Attempt.Peek] ends with the first event of a text/event-stream, of JSON
	// lines or of an event stream of AWS, and has what the first Read brings of other bodies. It has up to
	// PeekBytes, and 64 KiB at most. While Classify answers [Undecided], one more event is awaited, and
	// Peek has all of them. An attempt has failed if its body breaks off before that, if a stream of events
	// ends before its first byte, or if AttemptTimeout is over. Later bytes are not delayed. After the last
	// attempt, the caller gets the body as it came. 0 or less awaits nothing. Set it for a language
	// model's stream, to 4096 for example, and let Classify look for an error in the first event. Do not
	// set it where the first byte waits for what the client does once it has the header, such as a
	// subscription to events: it would be held back.
	PeekBytes int64

	// Resume continues the body of a GET that breaks off, within its Read, with Range, If-Range and
	// If-Match (RFC 9110, section 14). If it gives up, the Read returns an [*Error]. If the server does
	// not let the body be continued, the error matches [ErrChanged] or [ErrNotResumable], and need not
	// be an *Error. The response must have a Content-Length, and a strong ETag, or no ETag and an old
	// Last-Modified. Set it for downloads. Bodies are then wrapped, and requests are sent after
	// RoundTrip has returned, so sign them below the Transport.
	Resume bool

	// StallTimeout limits how long a Read of a response body may wait for bytes. A Read that receives
	// nothing for this long fails with a timeout. With PeekBytes and an AttemptTimeout, it begins after
	// the events that the attempt awaits. 0 or less sets no limit. Set it for downloads and streams, whose
	// total time has no sensible limit.
	StallTimeout time.Duration

	// Gate holds retries back while their host is down, and releases them when the host answers. Nil
	// means a Gate of the Transport's own. Share one Gate among Transports that call the same hosts.
	Gate *Gate

	// Hedge sends a second attempt beside an attempt that is slow. Nil means that there are no hedges.
	// Set it for reads whose slowest answers matter, from servers that have room for them.
	Hedge *Hedge
}

const (
	defaultMaxAttempts   = 4
	defaultMaxRetryAfter = time.Minute
	defaultRecordBytes   = 64 << 10
)

// resolved is a Policy whose zero fields are replaced by their defaults.
type resolved struct {
	Policy
	observed bool // a function of the user's may see a success, or a Hedge needs its Elapsed
}

// shared is what the requests of a Transport share if its Policy sets no Budget or no Gate.
type shared struct {
	budget TokenBucket
	gate   Gate
}

func (p Policy) resolve(own *shared) resolved {
	observed := p.Classify != nil || p.RetryAfter != nil || p.OnDone != nil || p.Hedge != nil
	p.MaxAttempts = cmp.Or(p.MaxAttempts, defaultMaxAttempts)
	p.Backoff = p.Backoff.orDefault()
	p.MaxRetryAfter = cmp.Or(p.MaxRetryAfter, defaultMaxRetryAfter)
	p.RecordBytes = cmp.Or(p.RecordBytes, defaultRecordBytes)
	if p.Classify == nil {
		p.Classify = Classify
	}
	if p.RetryAfter == nil {
		p.RetryAfter = headersRetryAfter
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

// WithPolicy returns a context that changes the Policy of its requests, in every Transport. The edit
// gets a copy of the Policy that has the defaults in its zero fields. Edits nest: the parent context's edit
// comes first. A nil edit changes nothing. Make no Budget, Gate or Hedge in an edit, because it would be new
// for each request.
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
