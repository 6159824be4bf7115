package retryhttp

import (
	"context"
	"math"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
	"github.com/retryhttp/retryhttp/internal/durations"
	"github.com/retryhttp/retryhttp/internal/outage"
	"github.com/retryhttp/retryhttp/internal/respbody"
	"github.com/retryhttp/retryhttp/internal/timer"
)

// race is an attempt that is sent in its call's goroutine, and the hedge that a timer sends beside
// the attempt if it is slow. Before the hedge is sent, there is only the timer. A race begins and
// ends within call.send, so the rest of a call knows one attempt and one result.
//
// Each goroutine judges the result of its own attempt, because the call's goroutine may hang in
// the base, and only Classify knows which result is final. The goroutines take turns, so that
// Classify never runs for both attempts at once. The turn is a channel and not a sync.Mutex: a
// testing/synctest bubble hangs while a goroutine waits for a sync.Mutex.
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
	got      *result       // of the hedge; the call's once the hedge has won
	turn     chan struct{} // held by the goroutine that is judging
	judged   chan struct{} // closed when the hedge has won, has failed, or has panicked
	detach   func() bool   // stops the caller's context from ending the hedge
	reported bool          // the hedge goes to the base; its own goroutine's

	mu       sync.Mutex // never held while user code runs
	state    raceState
	sent     bool          // the hedge was sent
	refused  bool          // the Budget refused the hedge; final after disarm
	failed   bool          // the first attempt has failed, and the hedge is awaited
	asked    time.Duration // until when a hedge that has failed asks to wait, by core.now; or 0
	inner    *Outcome      // of a hedge that has failed
	panicked any           // what the hedge panicked with; nil: it has called runtime.Goexit
}

// raceState is the state of a race.
type raceState int

const (
	undecided   raceState = iota
	hedgeFailed           // the first attempt's result will count
	firstWon              // the first attempt has won, or has ended before a hedge was sent
	hedgeWon              // the hedge has won with a Final response
	abandoned             // the call no longer waits for the hedge
	panicking             // the hedge's goroutine has panicked, or has called runtime.Goexit
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

// await waits until the hedge is judged, for limit at most, or until the caller's context ends.
func (r *race) await(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-r.judged:
	case <-timer.C:
	case <-r.keyed.Context().Done():
	}
}

// callOff returns how the hedge has ended. If the hedge has not, callOff ends it, and returns
// abandoned. It does not return while the hedge is judged, because Classify must not run after
// RoundTrip has returned, or for two attempts at once.
func (r *race) callOff() raceState {
	defer r.giveTurn()
	r.takeTurn()
	state := r.become(abandoned)
	if state == abandoned {
		r.endHedge()
		if r.keyed.Context().Err() == nil {
			r.observe(&r.next)
		}
	}
	return state
}

// observe records the time that an attempt has had which is given up for the other.
func (r *race) observe(given *attempt) {
	now := r.core.now()
	r.tail.observe(r.hedgeTime(now), now-given.begins, false)
}

// takeTurn waits for the turn to judge, and reports whether a result still counts.
func (r *race) takeTurn() bool {
	r.turn <- struct{}{}
	state := r.current()
	return state == undecided || state == hedgeFailed
}

func (r *race) giveTurn() { <-r.turn }

// surface repeats the hedge's panic or runtime.Goexit in the call's goroutine, if there was one.
func (r *race) surface() {
	if r.current() != panicking {
		return
	}
	if r.panicked == nil {
		runtime.Goexit()
	}
	panic(r.panicked)
}

// supersede ends a first attempt beside which the hedge has won. If the attempt has failed before,
// discard clears its response away.
func (r *race) supersede() {
	r.mu.Lock()
	failed := r.failed
	r.mu.Unlock()
	if !failed {
		r.first.end(ErrSuperseded)
	}
}

// discard clears away the response of a first attempt beside which the hedge has won. Nobody waits.
func (r *race) discard(resp *http.Response) {
	if resp == nil {
		r.first.end(ErrSuperseded)
		return
	}
	go func() {
		defer func() { _ = recover() }() // drops a panic of Close
		r.clear(&r.first, resp)
	}()
}

// clear reads the rest of resp, which nobody receives, so that its connection can be reused. Then
// it ends the attempt.
func (r *race) clear(b *bounds, resp *http.Response) {
	defer b.end(ErrSuperseded)
	if resp != nil {
		wanted := b.ctx.Err() == nil // else a Read would fail
		r.core.drains.Start(resp, wanted).Join(context.Background(), new(timer.Timer), respbody.MaxDrainTime)
	}
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
	return !r.second.connecting.Load() && !r.next.reading.UsesGetBody() &&
		!(buffering && r.policy.BufferBytes > respbody.MaxDrainBytes)
}

// endHedge ends the hedge at once. If the caller's context has ended, no attempt has won, and the
// context's cause is the hedge's cause.
func (r *race) endHedge() {
	var cause error = ErrSuperseded
	if ctx := r.keyed.Context(); ctx.Err() != nil {
		cause = context.Cause(ctx)
	}
	r.second.end(cause)
}

// abandon ends a race whose call panics.
func (r *race) abandon() {
	r.timer.Stop()
	state := r.become(abandoned)
	r.first.end(ErrSuperseded)
	if r.second != nil {
		r.second.end(ErrSuperseded)
	}
	if state == hedgeWon && r.got != nil { // the call has not taken the response
		closing.Response(r.got.answer())
	}
}

func (r *race) current() raceState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// become decides an undecided race, and returns its state. The first attempt may still win after
// the hedge has failed.
func (r *race) become(state raceState) raceState {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == undecided || r.state == hedgeFailed && state == firstWon {
		r.state = state
	}
	return r.state
}

// fail records that the first attempt has failed, and returns the race's state.
func (r *race) fail() raceState {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
	return r.state
}

// fire sends the hedge, unless there is a reason not to send it.
func (r *race) fire() {
	exits := true
	defer func() { r.end(recover(), exits) }()
	defer r.giveBack()
	if r.ownRequest() && r.prepare() && r.begin() {
		r.report()
		r.reported = true
		r.transmit(&r.next, r.got, r.second)
		if r.judgeHedge() == hedgeWon {
			r.supersede()
		} else {
			resp := r.response
			r.response = nil
			r.clear(r.second, resp)
		}
	}
	exits = false
}

// ownRequest gives the hedge a copy of the caller's request while the first attempt is under way.
// The caller may change the request as soon as the response is closed, and the hedge may continue
// for longer.
//
// A base must not change the header that it is given. A base that does so anyway may change the
// header during this copy. Copying the header of every request that is never hedged would cost
// more than this risk justifies.
func (r *race) ownRequest() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state != undecided {
		return false
	}
	own := r.keyed.WithContext(r.keyed.Context())
	own.Header = own.Header.Clone()
	if own.URL != nil {
		url := *own.URL
		own.URL = &url
	}
	r.req, r.keyed = own, own
	return true
}

// prepare takes a hedge from the allowance and a token from the Budget, and opens the hedge's
// body. It reports whether the hedge may be sent.
func (r *race) prepare() bool {
	now := r.core.now()
	switch {
	case ended(r.req), r.room(now) < 0, r.policy.Gate.blocks(r.req):
		return false
	case r.tail.compute(r.hedgeTime(now)) == 0: // the answers are no longer recent
		return false
	case !r.tail.withdraw():
		return false
	}
	r.paid = true
	if r.withdraw(&Retry{Request: r.req}); !r.token.taken {
		r.noteRefusal()
		return false
	}
	return r.openHedge()
}

// noteRefusal records that the Budget refused the hedge, unless the first attempt has ended.
func (r *race) noteRefusal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == undecided {
		r.refused = true
	}
}

// openHedge makes the hedge's request, with its body. It returns false if the body cannot be
// opened.
func (r *race) openHedge() bool {
	r.next.request = r.copyForAttempt(r.next.number, true)
	if !r.withBody {
		return true
	}
	opened, err := r.bodies.openBeside(r.keyed, r.next.request, r.first.reading)
	if err != nil {
		return false
	}
	r.next.reading, r.unsent = opened, r.next.request
	return true
}

// begin reports whether the first attempt is still under way and alone. If so, the hedge counts
// as sent.
func (r *race) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state != undecided {
		return false
	}
	r.second, r.got = new(bounds), &result{Attempt: Attempt{Hedge: true}}
	r.detach = r.second.beginDetachable(r.next.request.Context(), r.next.reading)
	if r.turn == nil {
		r.turn = make(chan struct{}, 1)
	}
	r.judged = make(chan struct{})
	r.onTheWay = r.newest
	r.sent, r.next.begins = true, r.core.now()
	r.paid, r.bought, r.token = false, r.token, receipt{}
	return true
}

// report reports that the hedge is sent. A Logger may take its time. If the race is decided
// meanwhile, the hedge is not left to end by itself, because it has not begun.
func (r *race) report() {
	r.policy.reportHedge(r.req, r.next.number, r.next.begins-r.next.decided)
	if r.second.demand.ended() {
		r.endHedge()
	}
}

// giveBack gives back what a hedge has taken, if the hedge was not sent or was not judged.
func (r *race) giveBack() {
	if r.paid {
		r.tail.refund()
	}
	r.exchange.giveBack()
}

// end makes a panic in the hedge's goroutine surface in the caller's goroutine, unless the race
// is decided. It treats a runtime.Goexit in the hedge's goroutine the same way.
func (r *race) end(panicked any, exits bool) {
	if panicked == nil && !exits {
		return
	}
	r.panicked = panicked
	if r.become(panicking) != panicking {
		return
	}
	if r.second != nil {
		if !r.reported { // the Logger has panicked
			r.refund(&r.bought)
			r.tail.refund()
		}
		close(r.judged)
	}
	r.first.end(ErrSuperseded)
}

// judgeHedge judges the hedge's result unless the race is decided, and returns the race's state. A
// Final error is no result: the first attempt may not meet it.
func (r *race) judgeHedge() raceState {
	defer r.giveTurn()
	if !r.takeTurn() {
		r.pass.Abandon()
		r.pass = outage.Pass{}
		return abandoned
	}
	r.conclude(&r.next, r.got)
	state := hedgeFailed
	if r.got.class == Final && r.got.Response != nil {
		state = hedgeWon
	} else if r.got.class != Final {
		r.noteFailure()
	}
	if state = r.become(state); state == hedgeWon {
		r.response = nil // the call has the response now
	}
	close(r.judged)
	return state
}

// noteFailure records what the failure of the hedge means for a retry.
func (r *race) noteFailure() {
	r.inner = r.got.inner
	switch asked := r.got.askedFor(r.policy.MaxRetryAfter); {
	case asked > max(r.policy.MaxRetryAfter, 0): // later, less would be left
		r.asked = math.MaxInt64
	case asked > 0:
		r.asked = durations.Add(r.core.now(), asked)
	}
}
