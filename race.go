package retryhttp

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
	"github.com/retryhttp/retryhttp/internal/durations"
	"github.com/retryhttp/retryhttp/internal/respbody"
	"github.com/retryhttp/retryhttp/internal/timer"
)

// race is an attempt that is sent in its caller's goroutine, and the hedge that a timer sends
// beside the attempt if it is slow. Before the hedge is sent, there is only the timer.
//
// Each goroutine judges the result of its own attempt, because the caller's goroutine may hang in
// the base. The goroutines take turns, so that Classify never runs for both attempts at once. The
// turn is a channel and not a sync.Mutex: a testing/synctest bubble hangs while a goroutine waits
// for a sync.Mutex.
type race struct {
	exchange         // of the hedge
	next     attempt // the hedge
	paid     bool    // the allowance has paid for a hedge that is not sent yet
	bought   receipt // what the Budget has taken for a hedge that was sent
	first    bounds
	timer    *time.Timer

	// These fields are set when the hedge is sent.
	second   *bounds
	onTheWay *numbered
	got      *result            // of the hedge; the caller's once the hedge has decided the race
	turn     chan struct{}      // held by the goroutine that is judging
	waiting  context.Context    // of a caller that waits beside the hedge; ends with the caller's
	wake     context.CancelFunc // ends waiting: the hedge has decided, or the race is over
	detach   func() bool        // stops the caller's context from ending the hedge
	reported bool               // the hedge goes to the base; its own goroutine's

	mu       sync.Mutex // never held while user code runs
	state    raceState
	sent     bool // the hedge was sent
	failed   bool // one attempt has failed, and the other is awaited
	refused  bool // the Budget refused the hedge; final after disarm
	inner    *Outcome
	asked    time.Duration // until when a failed response asks to wait, by core.now; or 0
	panicked any           // what the hedge panicked with; nil: it has called runtime.Goexit
	until    time.Time     // the deadline of a hedge that has lost
}

// raceState is the state of a race.
type raceState int

const (
	undecided  raceState = iota
	firstWon             // the first attempt has won, or has ended before a hedge was sent
	hedgeWon             // the hedge has won with a Final response
	bothFailed           // both attempts have failed, and the later result counts
	abandoned            // the caller no longer waits for the hedge
	panicking            // the hedge's goroutine has panicked, or has called runtime.Goexit
)

// disarm reports whether the first attempt has ended before a hedge was sent. If so, no hedge
// will be sent.
func (r *race) disarm() bool {
	r.timer.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == panicking || r.sent {
		return false
	}
	r.state = firstWon
	return true
}

// decide records a result, and returns the resulting state of the race. A Final result wins, but
// not an error of the hedge, which the first attempt may not meet. If the first result is a
// failure, the other attempt decides the race.
func (r *race) decide(got *result, win raceState) raceState {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.state != undecided:
		// Too late: the caller stopped waiting, or the hedge panicked, while this result was
		// judged.
		return abandoned
	case got.class == Final && (win == firstWon || got.Response != nil):
		r.state, r.until = win, time.Now().Add(respbody.MaxDrainTime)
	case r.failed:
		r.state = bothFailed
	default:
		r.failed = true
		r.noteFailure(got)
	}
	return r.state
}

// noteFailure records what the first of two failures means for a retry. A Final error of the
// hedge means nothing.
func (r *race) noteFailure(got *result) {
	if got.class == Final {
		return
	}
	r.inner = got.inner
	if asked := got.askedFor(r.policy.MaxRetryAfter); asked > 0 {
		r.asked = durations.Add(r.core.now(), asked)
	}
}

// firstBounds returns the bounds of the attempt that a hedge may be sent beside, or nil.
func (r *race) firstBounds() *bounds {
	if r == nil {
		return nil
	}
	return &r.first
}

// discard clears away resp, which may be nil, and ends its attempt with bounds b. Nobody waits.
func (r *race) discard(b *bounds, resp *http.Response) {
	if resp == nil {
		b.end(ErrSuperseded)
		return
	}
	go func() {
		// Drops a panic of Close: the attempt has lost, or has failed.
		defer func() { _ = recover() }()
		r.clear(b, resp, respbody.MaxDrainTime)
	}()
}

// clear reads the rest of resp, which nobody receives, so that its connection can be reused. Then
// it ends the attempt.
func (r *race) clear(b *bounds, resp *http.Response, limit time.Duration) {
	defer b.end(ErrSuperseded)
	if resp != nil {
		r.core.drains.Start(resp, limit > 0).Join(context.Background(), new(timer.Timer), limit)
	}
}

// conclude returns how the hedge has decided the race. If the hedge has not, conclude ends the
// hedge, and returns abandoned. It does not return while the hedge is judged, because Classify
// must not run after RoundTrip has returned, or for two attempts at once.
func (r *race) conclude() raceState {
	defer r.giveTurn()
	r.takeTurn()
	if r.become(abandoned) {
		r.endHedge()
		if r.req.Context().Err() == nil {
			now := r.core.now()
			r.tail.observe(r.hedgeTime(now), now-r.next.begins, false)
		}
	}
	r.surface()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// takeTurn waits for the turn to judge, and reports whether the race is undecided.
func (r *race) takeTurn() bool {
	r.turn <- struct{}{}
	return r.is(undecided)
}

func (r *race) giveTurn() { <-r.turn }

// surface repeats the hedge's panic or runtime.Goexit in the caller's goroutine, if there was
// one.
func (r *race) surface() {
	if !r.is(panicking) {
		return
	}
	if r.panicked == nil {
		runtime.Goexit()
	}
	panic(r.panicked)
}

// lose ends the hedge, which has lost to a result. Ending the hedge at once would cost its
// connection over HTTP/1. So the hedge gets a little time to end by itself.
func (r *race) lose(to *result) {
	buffering := r.second.demand.end()
	if to.Response == nil || to.Response.ProtoMajor > 1 || !r.mayEndByItself(buffering) {
		r.endHedge()
		return
	}
	r.detach()
	time.AfterFunc(respbody.MaxDrainTime, func() { r.second.end(ErrSuperseded) })
}

// mayEndByItself reports whether the losing hedge does no harm if it continues for a moment. A
// harmless hedge has a connection, and will not read a long response. It also reads no body from
// a GetBody, because the caller may use the GetBody again.
func (r *race) mayEndByItself(buffering bool) bool {
	return !r.second.connecting.Load() && !r.next.reading.usesGetBody() &&
		!(buffering && r.policy.BufferBytes > respbody.MaxDrainBytes)
}

// endHedge ends the hedge at once. If the caller's context has ended, no attempt has won, and the
// context's cause is the hedge's cause.
func (r *race) endHedge() {
	var cause error = ErrSuperseded
	if ctx := r.req.Context(); ctx.Err() != nil {
		cause = context.Cause(ctx)
	}
	r.second.end(cause)
}

// abandon ends a race whose caller panics.
func (r *race) abandon() {
	if r == nil {
		return
	}
	r.timer.Stop()
	r.mu.Lock()
	state, sent := r.state, r.sent
	r.state = abandoned
	r.mu.Unlock()
	r.first.end(ErrSuperseded)
	if sent {
		r.wake()
		r.second.end(ErrSuperseded)
		if state == hedgeWon || state == bothFailed {
			closing.Response(r.got.answer()) // the caller has not taken the response
		}
	}
}

// become sets the state of an undecided race. It returns false if the race is already decided.
func (r *race) become(state raceState) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state != undecided {
		return false
	}
	r.state = state
	return true
}

func (r *race) is(state raceState) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state == state
}
