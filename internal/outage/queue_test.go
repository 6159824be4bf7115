package outage

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/timer"
)

// joined lets n retries join the queue.
func joined(t *testing.T, h *health, n int) (all []*waiter) {
	for range n {
		w, _ := h.join(nil, new(Turn))
		require.NotNil(t, w)
		h.look(w, time.Now().Add(time.Minute), false)
		all = append(all, w)
	}
	return all
}

func (h *health) locked(do func(now time.Time)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	do(time.Now())
}

// A probe counts as under way before its goroutine runs. Otherwise the next would be sent as well.
func TestProbeIsUnderWayAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		h := fail(&w)
		held := joined(t, h, 2)
		time.Sleep(firstPause)
		h.locked(h.checkProbe)
		assert.True(t, held[0].left)
		assert.True(t, held[0].pass.UnderWay())
		time.Sleep(longestPause)
		h.locked(h.checkProbe)
		assert.False(t, held[1].left)
	})
}

// A retry that leaves its turn leaves it to the next, and the one behind looks when it is probed. A
// retry that was sent has used its turn.
func TestTurnIsPassedOnUnlessItIsUsed(t *testing.T) {
	for _, how := range []exit{bySuccess, asProbe} {
		synctest.Test(t, func(t *testing.T) {
			var w Watch
			h := fail(&w)
			held := joined(t, h, 4)
			h.endRun() // the newest result is a success
			h.locked(func(now time.Time) { h.release(held[0], now, how) })
			w.Begin(host, held[0].pass).GiveBack()
			assert.False(t, held[1].left, "it was sent")
			held[0].pass.GiveBack()
			assert.True(t, held[1].left)
			assert.False(t, held[2].left)
			at, _, _ := h.look(held[2], time.Now().Add(time.Minute), false)
			assert.Less(t, time.Until(at), longestPause, "the next probe")
		})
	}
}

// The retry behind one that got the turn of another looks when it is probed, although nothing else
// wakes it.
func TestNextIsWokenForItsProbeWhenATurnIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		h := fail(&w)
		held := joined(t, h, 3)
		h.endRun()
		h.locked(func(now time.Time) { h.release(held[0], now, bySuccess) })
		held[0].pass.GiveBack()
		assert.True(t, held[1].left)
		assert.Less(t, time.Until(held[2].armed), longestPause)
	})
}

// A retry may be released while its context ends.
func TestCanceledRetryThatHasLeftIsNotRemovedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		h := fail(&w)
		held := joined(t, h, 2)
		h.locked(func(now time.Time) { h.release(held[0], now, asProbe) })
		_, _, over := h.look(held[0], time.Now().Add(time.Minute), true)
		assert.True(t, over)
		assert.Same(t, held[1], h.next())
		assert.Equal(t, 1, h.queued())
	})
}

// The last one may leave at the very moment of its probe. Nobody is left to be the probe.
func TestCanceledRetryLeavesNoProbeBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		h := fail(&w)
		h.line.trouble = time.Now() // a probe needs no token
		held := joined(t, h, 1)
		time.Sleep(shortLinePause)
		_, asks, over := h.look(held[0], time.Now().Add(time.Minute), true)
		assert.True(t, over)
		assert.Equal(t, unheld, asks)
		assert.Zero(t, h.queued())
	})
}

// A retry whose context has ended is not sent, so that others do not take it for one that was.
func TestCanceledRetryDoesNotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		h := fail(&w)
		mark := h.mark
		h.look(joined(t, h, 1)[0], time.Now().Add(time.Minute), true)
		assert.Equal(t, mark, h.mark)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		req := new(http.Request).WithContext(ctx)
		p, held, ok := w.Wait(req, host, nil, new(timer.Timer), &Turn{Mark: mark, Limit: time.Minute})
		assert.Equal(t, Pass{}, p)
		assert.False(t, held)
		assert.False(t, ok)
		assert.Equal(t, mark, h.mark)
	})
}

// The successes of a host that is closed release one retry when the closure is over, not one each.
func TestCreditDoesNotGrowWhileTheHostIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		h := fail(&w)
		held := joined(t, h, 4)
		w.Close(host, time.Second, nil, WholeHost)
		for range 10 * successesPerRelease {
			w.End(host, Pass{}, Up, true, hold)
		}
		assert.False(t, held[0].left)
		time.Sleep(time.Second)
		w.End(host, Pass{}, Up, true, hold)
		assert.True(t, held[0].left)
		assert.Equal(t, 3, h.queued())
	})
}

// A closure postpones the next probe. It brings no probe forward, and if the clock went back, it is over.
func TestProbeWaitsForTheEndOfAClosure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		h := fail(&w)
		due := h.newest.Add(firstPause)
		now := time.Now()
		dueAt := func(now time.Time) time.Time {
			due, ok := h.probeDue(now)
			assert.True(t, ok)
			return due
		}
		w.Close(host, firstPause/2, nil, WholeHost)
		assert.Equal(t, due, dueAt(now))
		w.Close(host, 2*firstPause, nil, WholeHost)
		assert.Equal(t, now.Add(2*firstPause), dueAt(now))
		assert.Equal(t, due, dueAt(now.Add(-time.Hour)))
	})
}

// A 429 says nothing about the host, but its retry knows that nothing has begun since.
func TestRetryOfANeutralResultIsTheProbeIfNothingCameBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		fail(&w)
		req := new(http.Request)
		mark := w.End(host, w.Begin(host, Pass{}), Nothing, true, hold)
		p, held, _ := w.Wait(req, host, nil, new(timer.Timer), &Turn{Mark: mark, Limit: hold, Heed: true})
		assert.False(t, held)
		assert.True(t, p.UnderWay())
	})
}

// A retry was held although the closure in which its hold ended let it wait no longer.
func TestHoldThatEndsInAClosureIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		req := &http.Request{Header: http.Header{"Authorization": {"x"}}}
		fail(&w)
		go func() {
			time.Sleep(firstPause / 2)
			w.Close(host, time.Minute, req.Header, SameCredentials)
		}()
		start := time.Now()
		_, held, _ := w.Wait(req, host, nil, new(timer.Timer), &Turn{Mark: 0, Limit: firstPause * 3 / 4, Heed: true})
		assert.True(t, held)
		assert.Equal(t, firstPause*3/4, time.Since(start))
	})
}

// An attempt that hangs holds probes back for a part of the window in the first window of a run, and a
// probe that hangs does as well.
func TestHangHoldsProbesBackForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		h := fail(&w)
		w.Begin(host, Pass{})
		time.Sleep(firstPause)
		w.Begin(host, Pass{}) // the newest counts
		for _, held := range joined(t, h, 2) {
			at, _, _ := h.look(held, time.Now().Add(soon), false)
			assert.Equal(t, hold/blockedPart, time.Until(at), "it looks at the clock by itself")
			time.Sleep(hold/blockedPart - 1)
			h.locked(h.checkProbe)
			assert.False(t, held.left)
			time.Sleep(time.Nanosecond)
			h.locked(h.checkProbe)
			assert.True(t, held.left)
		}
	})
}

// In a long run an attempt holds probes back for as long as it lasts.
func TestHangInALongRunHoldsProbesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		h := fail(&w)
		time.Sleep(time.Until(h.since.Add(hold)))
		hangs := w.Begin(host, Pass{})
		held := joined(t, h, 1)[0]
		time.Sleep(time.Minute)
		h.locked(h.checkProbe)
		assert.False(t, held.left)
		w.End(host, hangs, Nothing, true, hold)
		time.Sleep(firstPause)
		h.locked(h.checkProbe)
		assert.True(t, held.left)
	})
}
