package retryhttp

import (
	"github.com/retryhttp/retryhttp/internal/durations"
	"github.com/retryhttp/retryhttp/internal/outage"
)

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
	if r.withdraw(&Retry{Request: r.req}); !r.token.held {
		r.noteRefusal()
		return false
	}
	return r.openHedge()
}

// noteRefusal records that the Budget refused the hedge, unless the first attempt has ended.
func (r *race) noteRefusal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = r.state == undecided
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
	r.onTheWay = r.leg
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
	r.judgeTimed(&r.next, r.got)
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
	if asked := r.got.askedFor(r.policy.MaxRetryAfter); asked > 0 {
		r.asked = durations.Add(r.core.now(), asked)
	}
}
