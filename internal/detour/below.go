package detour

import "sync/atomic"

// Below is the Dispatcher below a Transport. Other RoundTrippers may stand between, so it is known only once an
// attempt with an Attempt in its context has reached it.
type Below struct {
	reached atomic.Pointer[Dispatcher]
	asked   atomic.Bool // an attempt with an Attempt has ended
	ask     atomic.Bool // the next first attempt should have one
}

// NoteReached records which Dispatcher an attempt has reached, or nil. Of several, the one in trouble counts: while it
// is in trouble, all first attempts have an Attempt. A RoundTripper may replace its Base again and again, so no other
// is kept.
func (b *Below) NoteReached(d *Dispatcher) {
	b.asked.Store(true)
	if d != nil && !b.reached.Load().InTrouble() {
		b.reached.Store(d)
	}
}

// NoteFailure records that an attempt without an Attempt has failed. Without retries, nothing else would ever show
// whether there is a Dispatcher. One answer is enough: where there is none, an Attempt for each failure would cost
// memory.
func (b *Below) NoteFailure() {
	if !b.asked.Load() {
		b.ask.Store(true)
	}
}

// MayDetour reports whether a first attempt should have an Attempt: the Dispatcher has a host in trouble, or it is not
// known yet whether there is one. In the second case, it is true for one attempt only. It takes no lock.
func (b *Below) MayDetour() bool {
	return b.ask.Load() && b.ask.Swap(false) || b.reached.Load().InTrouble()
}
