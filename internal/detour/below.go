package detour

import (
	"slices"
	"sync/atomic"
)

// Below has the Dispatchers below a Transport. Other RoundTrippers may stand between, so a Dispatcher is known only
// once an attempt with an Attempt in its context has reached it. The zero value knows none.
type Below struct {
	known   atomic.Pointer[[]*Dispatcher]
	wonders atomic.Bool // whether an unknown Dispatcher is in trouble
}

// Meet makes d known. It may be nil. Those that are not in trouble are forgotten: a RoundTripper may replace its Base
// again and again.
func (b *Below) Meet(d *Dispatcher) {
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

// Wonder notes that an attempt without an Attempt has failed.
func (b *Below) Wonder() { b.wonders.Store(true) }

// MayDetour reports whether a first attempt should have an Attempt: a Dispatcher has a host in trouble, or the
// last attempt without one has failed. It takes no lock.
func (b *Below) MayDetour() bool {
	if b.wonders.Load() && b.wonders.Swap(false) {
		return true
	}
	known := b.known.Load()
	return known != nil && slices.ContainsFunc(*known, (*Dispatcher).InTrouble)
}
