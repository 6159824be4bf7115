package outage

import "sync/atomic"

// underWay counts attempts that began in one run of failures and have not ended. The upper half
// is the number of the run: attempts of an earlier run no longer count.
type underWay struct{ atomic.Uint64 }

// enter counts an attempt, and returns its run.
func (u *underWay) enter() (run uint32) { return uint32(u.Add(1) >> 32) }

// leave stops counting an attempt, and returns how many attempts are left. An attempt of an
// earlier run is not counted.
func (u *underWay) leave(run uint32) (left uint32, counted bool) {
	for {
		old := u.Load()
		if uint32(old>>32) != run {
			return 0, false
		}
		if u.CompareAndSwap(old, old-1) {
			return uint32(old) - 1, true
		}
	}
}

// endRun starts a new count for the next run.
func (u *underWay) endRun() {
	for {
		old := u.Load()
		if u.CompareAndSwap(old, (old>>32+1)<<32) {
			return
		}
	}
}

func (u *underWay) none() bool { return uint32(u.Load()) == 0 }
