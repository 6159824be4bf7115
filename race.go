package retryhttp

import (
	"cmp"
	"context"
	"net/http"
	"runtime"
	"sync"
	"time"
)

// race is an attempt that is sent in its caller's goroutine, and the hedge that a timer sends
// beside it if it is slow. Until then there is nothing but the timer.
//
// Each goroutine judges the result of its own attempt, because the caller's may hang in the
// base. They take turns, so that Classify never runs for both at once. The turn is a channel:
// a bubble of testing/synctest hangs while a goroutine waits for a sync.Mutex.
type race struct {
	call           // the hedge's
	next  upcoming // the hedge
	paid  bool     // by the allowance, for a hedge that was not sent
	first bounds
	timer *time.Timer

	// These are made when the hedge is sent.
	second *bounds
	got    *result       // of the hedge; the caller may look at it once the hedge has decided the race
	turn   chan struct{} // held by the goroutine that judges
	over   chan struct{} // closed when the hedge has decided the race
	letGo  func() bool   // has the hedge no longer end with the caller's context

	mu       sync.Mutex // never held while other people's code runs
	state    raceState
	sent     bool // the hedge
	failed   bool // one of the two, and the other is awaited
	inner    *Outcome
	asked    time.Duration // until when the failed attempt's response asks to wait, by Transport.now; 0: it does not
	panicked any           // by the hedge; nil: it has called runtime.Goexit
	until    time.Time     // how long a hedge may take that has lost
}

// raceState is how a race stands.
type raceState int

const (
	undecided  raceState = iota
	firstWon             // or ended before a hedge was sent
	hedgeWon             // with a Final result
	bothFailed           // the result that came later counts
	abandoned            // the caller has gone
	panicking            // the hedge's goroutine has ended as it should not
)

// supersededError is the cause with which the context of an attempt ends that another
// attempt has made superfluous. It matches context.Canceled: a circuit breaker below should
// not count it as a failure of the host.
type supersededError struct{}

func (supersededError) Error() string        { return "another attempt has won" }
func (supersededError) Is(target error) bool { return target == context.Canceled }

// Superseded lets tracing recognize the error.
func (supersededError) Superseded() bool { return true }

// sendTimed is send with a Hedge.
func (c *call) sendTimed(next *upcoming, got *result) {
	if next.number == 1 && c.mayBeHedged() {
		c.pace = c.policy.Hedge.pace(c.req)
	}
	if next.request == nil {
		_ = c.open(next) // there is no body that could fail to open
	}
	c.arm(next)
	c.transmit(next, got)
	if c.race == nil || c.race.disarm() {
		c.judgeTimed(next, got)
	} else {
		c.settle(c.race, next, got)
	}
	c.race = nil
}

// mayBeHedged reports whether two attempts of the request may be sent side by side.
func (c *call) mayBeHedged() bool {
	return safeMethod(c.req.Method) && c.policy.Idempotent(c.keyed) && c.bodies.readableBeside(c.req) &&
		c.req.Header.Get("Upgrade") == "" && len(c.req.Trailer) == 0 // a body may set the trailer when it ends
}

// judgeTimed judges a result, and has the Hedge take note of the latency. Failures do not
// count: they are quick, and hedges would be sent too soon.
func (c *call) judgeTimed(made *upcoming, got *result) {
	c.judge(made, got)
	c.endAttempt(got)
	switch {
	case c.pace == nil:
	case got.class == Final && got.Response != nil:
		c.pace.answer(c.hedgeTime(made.begins+got.Elapsed), got.Elapsed)
	case is[*attemptTimeoutError](got.Err):
		c.pace.observe(c.hedgeTime(made.begins+got.Elapsed), got.Elapsed, false)
	}
}

// hedgeTime converts a time by Transport.now into a time by the Hedge's clock.
func (c *call) hedgeTime(now time.Duration) time.Duration {
	return c.t.epoch.Sub(c.pace.hedge.start()) + now
}

// arm starts the timer that sends a hedge beside next, if there may be one.
func (c *call) arm(next *upcoming) {
	if c.pace == nil || c.hedged || c.attemptsLeft() < 2 || AttemptNumber(c.req.Context()) > 1 {
		return
	}
	delay := time.Duration(c.pace.delay.Load())
	if delay == 0 {
		return
	}
	r := &race{
		call: call{
			t: c.t, policy: c.policy, req: c.req, keyed: c.keyed, pace: c.pace,
			start: c.start, since: c.since, owned: owned{bodies: c.bodies},
		},
		next: upcoming{number: next.number + 1, backoff: next.backoff, begins: next.begins},
	}
	r.first.begin(next.request.Context(), next.reading)
	r.race, c.race = r, r
	r.timer = time.AfterFunc(delay, r.fire)
}

// bounds returns what may end the attempt that c makes, or nil.
func (c *call) bounds() *bounds {
	switch r := c.race; {
	case r == nil:
		return nil
	case c == &r.call:
		return r.second
	default:
		return &r.first
	}
}

// hedges is for the Outcome.
func (c *call) hedges() int {
	if c.hedged {
		return 1
	}
	return 0
}

// disarm reports whether the first attempt has ended before a hedge was sent. Then none will
// be.
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

// decide takes note of a result, and returns how the race stands after it. A Final result
// wins. A failure that comes first leaves the decision to the other attempt.
func (r *race) decide(got *result, win raceState) raceState {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.state != undecided:
		return abandoned // the hedge comes too late: its caller has gone while it was judged
	case got.class == Final:
		r.state, r.until = win, time.Now().Add(maxDrainTime)
	case r.failed:
		r.state = bothFailed
	default:
		r.failed, r.inner = true, got.inner
		if asked := askedFor(&r.policy.Policy, got.answer()); asked > 0 {
			r.asked = addSaturating(r.t.now(), asked)
		}
	}
	return r.state
}

// settle judges the first attempt if the hedge has not won, and waits for the hedge if it
// may still win. It leaves the result that counts in next and got.
func (c *call) settle(r *race, next *upcoming, got *result) {
	r.surface()
	c.sent, c.hedged = r.next.number, true
	switch c.judgeFirst(r, next, got) {
	case firstWon:
		r.lose(got)
		return
	case bothFailed:
		r.next.reading.cut() // a retry may follow
		got.alsoFailed(r)
		return
	}
	r.discardFirst(c, got)
	if !r.await(c.req.Context()) {
		r.endHedge()
		return
	}
	r.surface()
	*next, *got = r.next, *r.got
	c.response, c.mark = got.answer(), r.mark
	if r.is(bothFailed) {
		got.alsoFailed(r)
	}
}

// judgeFirst judges the first attempt unless the hedge has won, and returns how the race
// stands.
func (c *call) judgeFirst(r *race, next *upcoming, got *result) raceState {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	if r.is(undecided) {
		c.judgeTimed(next, got)
		return r.decide(got, firstWon)
	}
	c.pass.leave(true)
	c.pass = pass{}
	now := c.t.now()
	c.pace.observe(c.hedgeTime(now), now-next.begins, false)
	return hedgeWon
}

// alsoFailed adds what the failure of the other attempt means for what follows.
func (r *result) alsoFailed(other *race) {
	r.notBefore, r.inner = other.asked, cmp.Or(r.inner, other.inner)
}

// discardFirst clears away what the first attempt has brought. Nobody waits for that.
func (r *race) discardFirst(c *call, got *result) {
	resp := got.answer()
	if got.responded {
		got.Err = statusError(got.status) // in case that the caller goes before the hedge answers
	}
	got.Response, got.Body, got.broken, c.response = nil, nil, nil, nil
	if resp == nil {
		r.first.end(supersededError{})
		return
	}
	go func() {
		defer func() { _ = recover() }() // by Close: the attempt has lost, or has failed
		r.clear(&r.first, resp, maxDrainTime)
	}()
}

// clear reads what is left of resp, which nobody gets, so that its connection may serve
// again. Then it ends the attempt.
func (r *race) clear(b *bounds, resp *http.Response, limit time.Duration) {
	defer b.end(supersededError{})
	if resp != nil {
		startDrain(&r.t.drains, resp, limit > 0).join(context.Background(), &r.t.drains, new(timer), limit)
	}
}

// await waits until the hedge decides the race. It returns false if the caller goes first,
// but not while the hedge is judged: Classify must not run when RoundTrip has returned.
func (r *race) await(ctx context.Context) bool {
	select {
	case <-r.over:
	case <-ctx.Done():
		r.turn <- struct{}{}
		defer func() { <-r.turn }()
	}
	return !r.become(abandoned)
}

// surface panics if the hedge has.
func (r *race) surface() {
	if !r.is(panicking) {
		return
	}
	if r.panicked == nil {
		runtime.Goexit()
	}
	panic(r.panicked)
}

// lose ends the hedge, which has lost to a result. Over HTTP/1 that would cost its
// connection, so that the hedge gets a little time to end by itself.
func (r *race) lose(to *result) {
	r.second.unwanted.Store(true)
	if to.Response == nil || to.Response.ProtoMajor > 1 || !r.mayEndByItself() {
		r.endHedge()
		return
	}
	r.letGo()
	time.AfterFunc(maxDrainTime, func() { r.second.end(supersededError{}) })
}

// mayEndByItself reports whether the hedge, which has lost, does no harm if it goes on for a
// moment. It has a connection, and is not going to read a long response. It does not read a
// body from a GetBody, which the caller may use again.
func (r *race) mayEndByItself() bool {
	return !r.second.connecting.Load() && r.next.reading.reopening == nil &&
		!(r.second.buffering.Load() && r.policy.BufferBytes > maxDrainBytes)
}

// endHedge ends the hedge at once. If the caller's context has ended, no attempt has won.
func (r *race) endHedge() {
	var cause error = supersededError{}
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
	r.first.end(supersededError{})
	if sent {
		r.second.end(supersededError{})
		if state == hedgeWon {
			closeResponse(r.got.answer()) // nobody has taken it
		}
	}
}

// become decides the race, unless it is decided.
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
