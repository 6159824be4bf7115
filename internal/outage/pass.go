package outage

import "time"

// Pass is what an attempt holds from its Watch until the attempt ends. The zero Pass holds nothing.
// Passes can be compared. With a fifth field, the compiler would keep Passes in memory, and a held
// request would need a larger stack.
type Pass struct {
	health   *health // the health that counts the attempt as under way, or nil
	run      uint32  // the run of failures in which the attempt is under way
	exit     exit
	released *health // the health whose successes released the attempt, until it is sent; or nil
}

// exit is how a retry has left the queue.
type exit uint8

const (
	unheld    exit = iota // it was not in the queue, or until its hold ended
	bySuccess             // successes have released it
	asProbe
	atTheEnd // of its hold, for a retry in the line
)

// UnderWay reports whether the attempt is counted as under way.
func (p Pass) UnderWay() bool { return p.health != nil }

// GiveBack undoes Begin and Wait for an attempt that is not sent.
func (p Pass) GiveBack() {
	p.leave(false)
	if h := p.released; h != nil { // the next retry is released in its place
		h.mu.Lock()
		defer h.unlock()
		now := time.Now()
		h.credit += successesPerRelease
		h.spend(now)
		h.checkProbe(now)
	}
}

// Abandon ends what Begin began, for an attempt of which nobody wants to know the result.
func (p Pass) Abandon() { p.leave(true) }

// leave ends what Begin began, if the run lasts. If an attempt says nothing about its host, it ends silently,
// and its end postpones the next probe, as a result does.
func (p Pass) leave(silently bool) {
	h := p.health
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.unlock()
	if p.run != h.runs {
		return
	}
	h.underWay--
	now := time.Now()
	if silently {
		h.newest = now
	}
	h.checkProbe(now)
}
