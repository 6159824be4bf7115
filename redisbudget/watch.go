package redisbudget

import (
	"fmt"
	"time"
)

// The watch reports a call under way once per Interval. A client whose packets are lost takes half a
// minute until its call fails, and a Cluster's client takes minutes. The process decides alone
// meanwhile, and somebody should know. A call that ends within an Interval reports its time itself.

// startWatch begins with the call. The caller holds the lock.
func (a *account) startWatch() {
	switch wait := max(a.settings.interval, a.settings.patience); {
	case a.bucket.OnError == nil:
	case a.watch == nil:
		a.watch = time.AfterFunc(wait, a.reportOverdue)
	default:
		a.watch.Reset(wait)
	}
}

// stopWatch ends with the call. The caller holds the lock.
func (a *account) stopWatch() {
	if a.watch != nil {
		a.watch.Stop()
	}
}

// reportOverdue reports the call under way, and goes on watching it. It runs in a goroutine of its own.
func (a *account) reportOverdue() {
	began, overdue := a.overdue()
	if !overdue {
		return
	}
	defer a.watchOn() // even if OnError ends this goroutine
	a.bucket.report(fmt.Errorf("%w: no answer for %v, and the process decides alone after %v",
		ErrSlow, time.Since(began).Round(time.Millisecond), a.settings.patience))
}

// overdue returns when the call under way began, and whether it is an Interval ago. The timer may
// have fired when the previous call ended.
func (a *account) overdue() (began time.Time, overdue bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.began, a.calling != nil && !a.silent && time.Since(a.began) >= a.settings.interval
}

// watchOn watches the call under way, if there is one, for another Interval. The Interval begins after
// the report, or the hook's limit would drop every other report.
func (a *account) watchOn() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.calling != nil {
		a.watch.Reset(a.settings.interval)
	}
}
