package retryhttp

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/detour"
	"github.com/retryhttp/retryhttp/internal/replay"
)

// Attempt describes one attempt and how it went. It must not be changed. It may gain fields.
type Attempt struct {
	Number   int            // 1 for the first; 0 in OnDone if the context had ended before it
	Request  *http.Request  // as it was sent, but its context has not the attempt's deadline
	Response *http.Response // nil if Err is not; only OnRetry may read from its body
	Err      error          // nil if Response is not
	Elapsed  time.Duration  // until the response header, what is read of the body, or the error
	Wait     time.Duration  // before the next attempt; 0 in Classify
	Body     []byte         // the whole response body if [Policy.BufferBytes] had it read, or nil
	Peek     []byte         // the first events of another body, with [Policy.PeekBytes], or nil
	Hedge    bool           // sent beside another attempt, by [Policy.Hedge]
	Detour   bool           // took a connection beside the pool of its [Base]
	Offset   int64          // where in the file [Policy.Resume] continues, or 0
	Held     time.Duration  // how long a [Gate] had held the request before; 0 for a hedge
	InLine   time.Duration  // the part of Held without a token of the Budget
}

// attempt is what is planned for an attempt, until it is made. Others learn of it by an Attempt.
type attempt struct {
	number   int
	request  *http.Request // nil before it is sent, unless there is a body: a wait needs no copy
	reading  *replay.Lease // of the request's body; nil for a body that is sent as it is
	previous *replay.Lease // the previous attempt's reading; may still be running
	backoff  time.Duration // the backoff before the attempt; 0 for the first attempt
	wait     time.Duration // backoff, or longer if the server asked for a wait
	decided  time.Duration // the start of the wait; read from core.now, like begins
	begins   time.Duration
}

// AttemptOf describes the attempt that ctx belongs to, for RoundTrippers below a Transport. Only
// Number, Hedge, Held and InLine are set, and Detour once a Base below has chosen a connection. Number
// is 1 for any other context.
func AttemptOf(ctx context.Context) Attempt {
	if n, ok := ctx.Value(numberKey{}).(*numbered); ok {
		return Attempt{Number: n.number, Hedge: n.hedge, Held: n.held, InLine: n.lined, Detour: n.detour.Route().Detoured}
	}
	return Attempt{Number: 1}
}

// numbered is both the context of an attempt and the copy of the request that carries it: one
// object instead of two. A first attempt needs it only after a hold, or if a Base below may be in trouble.
type numbered struct {
	context.Context
	number  int  // goes on from the number of an attempt above
	hedge   bool // it is a hedge, or belongs to one above
	detour  detour.Attempt
	held    time.Duration
	lined   time.Duration // the part of held without a token
	request http.Request
}

type numberKey struct{}

func (n *numbered) Value(key any) any {
	switch key {
	case numberKey{}:
		return n
	case detour.Key{}:
		return &n.detour
	}
	return n.Context.Value(key)
}

// String keeps the request's headers out of logs that print the context.
func (n *numbered) String() string { return "retryhttp.attempt" }

// noteHeader returns a copy of req that sets wrote when its header was written.
func noteHeader(req *http.Request, wrote *atomic.Bool) *http.Request {
	return req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		WroteHeaders: func() { wrote.Store(true) },
	}))
}

// ErrSuperseded is the cause with which an attempt is canceled when another attempt has won, or
// takes its place. It matches context.Canceled, because a circuit breaker below should not count
// such an attempt as a failure of the host.
var ErrSuperseded error = supersededError{}

type supersededError struct{}

func (supersededError) Error() string        { return "another attempt has won" }
func (supersededError) Is(target error) bool { return target == context.Canceled }

func hasBody(req *http.Request) bool {
	return req.Body != nil && req.Body != http.NoBody
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}

// keyOf returns the key of req: what a Gate, a Hedge or a TokenBucket knows req's host by. No base
// sends a request without a URL, so a caller's function need not expect one. A nil req, which only a
// gauge can be asked about, has no URL either.
func keyOf(req *http.Request, key func(*http.Request) string) string {
	switch {
	case req == nil || req.URL == nil:
		return ""
	case key != nil:
		return key(req)
	}
	return req.URL.Host
}
