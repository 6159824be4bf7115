package detour

import (
	"slices"
	"sync/atomic"
)

// Below has the Dispatchers below a Transport. Other RoundTrippers may stand between, so a Dispatcher is known only
// once an attempt with an Attempt in its context has reached it. The zero value knows none.
type Below struct {
	known   atomic.Pointer[[]*Dispatcher]
	asked   atomic.Bool // an attempt with an Attempt has ended
	wonders atomic.Bool // the next one should have an Attempt
}

// Meet records which Dispatcher an attempt has reached, or nil. Those that are not in trouble are forgotten: a
// RoundTripper may replace its Base again and again.
func (b *Below) Meet(d *Dispatcher) {
	if !b.asked.Load() {
		b.asked.Store(true)
	}
	for d != nil {
		old := b.known.Load()
		now := []*Dispatcher{d}
		if old != nil {
			if slices.Contains(*old, d) {
				return
			}
			for _, other := range *old {
				if other.InTrouble() {
					now = append(now, other)
				}
			}
		}
		if b.known.CompareAndSwap(old, &now) {
			return
		}
	}
}

// Wonder notes that an attempt without an Attempt has failed. Without retries, nothing else would ever tell whether
// there is a Dispatcher. One answer is enough: where there is none, an Attempt for each failure would cost memory.
func (b *Below) Wonder() {
	if !b.asked.Load() {
		b.wonders.Store(true)
	}
}

// MayDetour reports whether a first attempt should have an Attempt: a Dispatcher has a host in trouble, or it is not
// known yet whether there is one. It takes no lock.
func (b *Below) MayDetour() bool {
	if b.wonders.Load() && b.wonders.Swap(false) {
		return true
	}
	known := b.known.Load()
	return known != nil && slices.ContainsFunc(*known, (*Dispatcher).InTrouble)
}
