package retryhttp

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
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
// Classify never runs for both attempts at once. The turn is not a sync.Mutex: a testing/synctest bubble
// hangs while a goroutine waits for a sync.Mutex.
type race struct {
	exchange         // of the hedge
	next     attempt // the hedge
	paid     bool    // the allowance has paid for a hedge that is not sent yet
	first    bounds
	timer    *time.Timer
	refused  atomic.Bool // the Budget refused the hedge

	mu    sync.Mutex // guards taken; never held while user code runs
	turn  sync.Cond  // the turn is given
	taken bool       // the turn is taken, which guards the fields below

	state    raceState
	failed   bool // the first attempt has failed
	panicked any  // what the hedge panicked with; nil: it has called runtime.Goexit

	// These fields are set when the hedge is sent.
	second *bounds
	got    *result       // of the hedge; the call's once the hedge has won
	judged chan struct{} // closed when the hedge has won, has failed, or has panicked
	detach func() bool   // stops the caller's context from ending the hedge
}

// raceState is the state of a race.
type raceState int

const (
	undecided   raceState = iota
	hedgeFailed           // the first attempt's result will count
	firstWon              // the first attempt has won
	notSent               // the first attempt has ended before a hedge was sent
	hedgeWon              // the hedge has won with a Final response
	abandoned             // the call no longer waits for the hedge
	panicking             // the hedge's goroutine has panicked, or has called runtime.Goexit
)

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
	if r.takeTurn(); r.state == undecided {
		r.state = abandoned
		r.endHedge()
		if r.keyed.Context().Err() == nil {
			r.observe(&r.next)
		}
	}
	return r.state
}

// observe records the time that an attempt has had which is given up for the other.
func (r *race) observe(given *attempt) {
	r.tail.Observe(r.core.now()-given.begins, false)
}

// takeTurn waits for the turn, and reports whether a result still counts.
func (r *race) takeTurn() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.taken {
		r.turn.Wait()
	}
	r.taken = true
	return r.state == undecided || r.state == hedgeFailed
}

func (r *race) giveTurn() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken = false
	r.turn.Signal()
}

// goesOn reports whether a result still counts.
func (r *race) goesOn() bool {
	defer r.giveTurn()
	return r.takeTurn()
}

// clear reads the rest of the hedge's response, which nobody receives, so that its connection can be
// reused. Then it ends the hedge.
func (r *race) clear() {
	defer r.second.end(ErrSuperseded)
	resp := r.response
	r.response = nil
	if resp != nil {
		wanted := r.second.ctx.Err() == nil // else a Read would fail
		r.core.drains.Start(resp, wanted).Join(context.Background(), new(timer.Timer), respbody.MaxDrainTime)
	}
}

// lose ends the hedge, which has lost to a result. Ending the hedge at once would cost its
// connection over HTTP/1. So the hedge gets a little time to end by itself.
func (r *race) lose(to *result) {
	r.second.unwanted.Store(true)
	if to.Response == nil || to.Response.ProtoMajor > 1 || !r.mayEndByItself() {
		r.endHedge()
		return
	}
	r.detach()
	time.AfterFunc(respbody.MaxDrainTime, func() { r.second.end(ErrSuperseded) })
}

// mayEndByItself reports whether the losing hedge does no harm if it continues for a moment. A
// harmless hedge has a connection, and will not read a long response. It also reads no body from
// a GetBody, because the caller may use the GetBody again.
func (r *race) mayEndByItself() bool {
	return !r.second.connecting.Load() && !(r.withBody && r.keyed.GetBody != nil) &&
		!(r.second.buffering.Load() && r.policy.BufferBytes > respbody.MaxDrainBytes)
}

// endHedge ends the hedge at once. If the caller's context has ended, no attempt has won, and the
// context's cause is the hedge's cause.
func (r *race) endHedge() {
	r.second.end(cmp.Or(context.Cause(r.keyed.Context()), ErrSuperseded))
}

// abandon ends a race whose call panics.
func (r *race) abandon() {
	r.timer.Stop()
	defer r.giveTurn()
	if r.takeTurn(); r.state == undecided {
		r.state = abandoned
	}
	r.first.end(ErrSuperseded)
	if r.second != nil {
		r.second.end(ErrSuperseded)
	}
	if r.state == hedgeWon && r.got != nil { // the call has not taken the response
		closing.Response(r.got.answer())
	}
}

// fire sends the hedge, unless there is a reason not to send it.
func (r *race) fire() {
	exits := true
	defer func() {
		if panicked := recover(); exits {
			r.end(panicked)
		}
	}()
	defer r.giveBack()
	if r.ownRequest() && r.prepare() && r.goesOn() {
		r.policy.reportHedge(r.req, r.next.number, r.core.now()-r.next.decided)
		if r.begin() { // a Logger may take its time
			r.transmit(&r.next, r.got, r.second)
			if !r.judgeHedge() {
				r.clear()
			}
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
	defer r.giveTurn()
	if !r.takeTurn() {
		return false
	}
	own := r.keyed.Clone(r.keyed.Context())
	r.req, r.keyed = own, own
	return true
}

// prepare takes a hedge from the allowance and a token from the Budget, and opens the hedge's
// body. It reports whether the hedge may be sent.
func (r *race) prepare() bool {
	if ended(r.req) || r.room(r.core.now()) < 0 || r.policy.Gate.blocks(r.req) ||
		r.tail.Compute() == 0 || // the answers are no longer recent
		!r.tail.Withdraw() {
		return false
	}
	r.paid = true
	if r.withdraw(&Retry{Request: r.req}); !r.token.taken {
		r.refused.Store(true)
		return false
	}
	return r.openHedge()
}

// openHedge makes the hedge's request, with its body. It returns false if the body cannot be
// opened.
func (r *race) openHedge() bool {
	r.next.request = r.copyForAttempt(r.next.number, true)
	if !r.withBody {
		return true
	}
	opened, err := r.openBodyBeside(r.next.request, r.first.body.Upload)
	if err != nil {
		return false
	}
	r.next.reading, r.unsent = opened, r.next.request
	return true
}

// begin reports whether the first attempt is still under way and alone. If so, the hedge counts
// as sent.
func (r *race) begin() bool {
	defer r.giveTurn()
	if !r.takeTurn() {
		return false
	}
	r.second, r.got = new(bounds), &result{Attempt: Attempt{Hedge: true}}
	r.detach = r.second.beginDetachable(r.next.request.Context(), r.next.reading)
	r.judged, r.next.begins = make(chan struct{}), r.core.now()
	r.paid, r.spent, r.token = false, r.token, receipt{}
	return true
}

// giveBack gives back what a hedge has taken, if the hedge was not sent or was not judged.
func (r *race) giveBack() {
	if r.paid {
		r.tail.Refund()
	}
	r.exchange.giveBack()
}

// end makes a panic in the hedge's goroutine surface in the caller's goroutine, unless the race
// is decided. It treats a runtime.Goexit, with the value nil, the same way.
func (r *race) end(panicked any) {
	defer r.giveTurn()
	if r.takeTurn(); r.state != undecided {
		return
	}
	r.state, r.panicked = panicking, panicked
	if r.second != nil {
		close(r.judged)
	}
	r.first.end(ErrSuperseded)
}

// judgeHedge judges the hedge's result unless the race is decided, and reports whether the hedge has
// won. A Final error is no result: the first attempt may not meet it.
func (r *race) judgeHedge() (won bool) {
	defer r.giveTurn()
	if !r.takeTurn() {
		r.pass.Abandon()
		r.pass = outage.Pass{}
		return false
	}
	r.conclude(&r.next, r.got)
	defer close(r.judged)
	if !r.got.stands() {
		r.state = hedgeFailed
		return false
	}
	r.state, r.response = hedgeWon, nil // the call has the response now
	if !r.failed {
		r.first.end(ErrSuperseded)
	}
	return true
}
