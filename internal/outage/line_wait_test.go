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

const soon = time.Minute // a deadline that is not near

// inLine lets a retry join the line that draws on bucket, and looks once.
func inLine(t *testing.T, h *health, bucket any, deadline time.Time) *waiter {
	h.line.places++
	w, _ := h.join(bucket, &Turn{Ask: func() (bool, bool) { return false, true }})
	require.NotNil(t, w)
	h.look(w, deadline, false)
	return w
}

// last makes the trouble last, so that a probe needs a token.
func (h *health) last() {
	h.locked(func(now time.Time) { h.line.trouble = now.Add(-h.hold) })
}

func linesUp(t *testing.T, h *health, buckets ...any) (all []*waiter) {
	for _, bucket := range buckets {
		all = append(all, inLine(t, h, bucket, time.Now().Add(soon)))
	}
	return all
}

// A request that ends during its backoff takes no token, not even for a moment.
func TestCanceledRetryAsksForNoToken(t *testing.T) {
	var w Watch
	w.Admit(host, hold)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req := new(http.Request).WithContext(ctx)
	_, _, granted := w.Wait(req, host, nil, new(timer.Timer), &Turn{Limit: hold, Ask: func() (bool, bool) {
		t.Error("asked")
		return true, true
	}})
	assert.False(t, granted)
}

// A request that heeds no Retry-After is not held by another's.
func TestLineWithoutHeedIgnoresClosures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		fail(&w)
		w.Admit(host, hold)
		w.Close(host, time.Minute, nil, SameCredentials)
		w.keys.Find(host).endRun()
		time.AfterFunc(firstPause/2, func() { w.End(host, Pass{}, Up, true, hold) })
		start := time.Now()
		_, _, granted := w.Wait(new(http.Request), host, nil, new(timer.Timer), &Turn{Limit: hold, Ask: func() (bool, bool) { return true, true }})
		assert.True(t, granted)
		assert.Equal(t, firstPause/2, time.Since(start))
	})
}

// A retry whose own failure says nothing about the host, as a 429 does, is not alone: others may earn
// a token for it.
func TestRetryWithoutARunOfFailuresIsNotAlone(t *testing.T) {
	var w Watch
	w.Admit(host, hold)
	mark := w.End(host, Pass{}, Nothing, true, hold)
	waits, _ := w.keys.Find(host).join(nil, &Turn{Mark: mark, Ask: func() (bool, bool) { return false, true }})
	assert.NotNil(t, waits)
}

// A retry with a token is alone as well while another is on its way to the line, and is the next probe.
func TestRetryWithATokenThatIsAloneBesideTheLineIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		h := fail(&w)
		w.Admit(host, hold)
		w.Leave(host)
		time.Sleep(time.Second)
		w.Admit(host, hold)
		waits, pass := h.join(nil, &Turn{Mark: h.mark})
		assert.Nil(t, waits)
		assert.True(t, pass.UnderWay())
	})
}

// A retry that a probe has released without a token has none if its host is closed meanwhile.
func TestFreeProbeThatIsClosedMeanwhileHasNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		req := &http.Request{Header: http.Header{}}
		h := fail(&w)
		w.Admit(host, hold)
		asks := 0
		go func() {
			_, _, granted := w.Wait(req, host, "bucket", new(timer.Timer), &Turn{Limit: hold, Heed: true, Ask: func() (bool, bool) {
				asks++
				return false, true
			}})
			assert.False(t, granted)
		}()
		synctest.Wait()
		h.locked(func(now time.Time) {
			h.release(h.next(), now, asProbe)
			h.close(now, hold, req.Header, WholeHost)
		})
		time.Sleep(2 * hold)
		synctest.Wait()
		assert.Equal(t, 1, asks, "at the end")
		w.Leave(host)
		assert.Zero(t, w.Inspect(host).Open)
	})
}

// A probe may release a retry while the retry asks. If the Budget panics, the next is probed.
func TestProbeOfARetryWhoseBudgetPanicsIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		h := fail(&w)
		w.Admit(host, hold)
		h.last()
		time.Sleep(firstPause) // a probe is due
		assert.PanicsWithValue(t, "asked", func() {
			w.Wait(new(http.Request), host, nil, new(timer.Timer), &Turn{Limit: hold, Ask: func() (bool, bool) {
				h.locked(func(now time.Time) { h.release(h.next(), now, asProbe) })
				assert.Equal(t, 1, h.underWay)
				panic("asked")
			}})
		})
		assert.Zero(t, h.underWay)
	})
}

// A retry that a probe has released counts as under way until its attempt ends.
func TestFreeProbeStaysUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		h := fail(&w)
		w.Admit(host, hold)
		go func() {
			synctest.Wait()
			h.locked(func(now time.Time) { h.release(h.next(), now, asProbe) })
		}()
		p, _, granted := w.Wait(new(http.Request), host, nil, new(timer.Timer), &Turn{Limit: hold, Ask: func() (bool, bool) { return false, true }})
		assert.True(t, granted)
		assert.True(t, p.UnderWay())
		assert.Equal(t, 1, h.underWay)
	})
}

// A probe may release a retry while the retry asks for the last time.
func TestProbeOfARetryThatIsRefusedAtItsEndStaysUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		h := fail(&w)
		w.Admit(host, hold)
		p, _, granted := w.Wait(new(http.Request), host, nil, new(timer.Timer), &Turn{Ask: func() (bool, bool) {
			h.locked(func(now time.Time) { h.release(h.next(), now, asProbe) })
			return false, true
		}})
		assert.True(t, granted)
		assert.True(t, p.UnderWay())
		assert.Equal(t, 1, h.underWay)
	})
}

// A retry that has got its token uses its turn. The next one waits for its own.
func TestGrantedRetryUsesItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		h := fail(&w)
		w.Admit(host, hold)
		go func() {
			_, _, granted := w.Wait(new(http.Request), host, nil, new(timer.Timer), &Turn{Limit: hold, Ask: func() (bool, bool) { return true, true }})
			assert.True(t, granted)
		}()
		synctest.Wait()
		next := linesUp(t, h, "a")[0]
		h.behind = time.Now().Add(soon)
		for range successesPerRelease {
			w.End(host, Pass{}, Up, true, hold)
		}
		synctest.Wait()
		assert.Same(t, next, h.next())
		assert.Equal(t, unheld, next.asks)
	})
}

// A retry may be released while it gets its token, or while its context ends.
func TestRetryThatHasLeftTheLineIsNotRemovedAgain(t *testing.T) {
	for name, leave := range map[string]func(h *health, w *waiter){
		"canceled": func(h *health, w *waiter) { h.look(w, time.Now().Add(soon), true) },
		"granted":  func(h *health, w *waiter) { h.answer(w, bySuccess, true, true) },
		"gives up": func(h *health, w *waiter) { h.answer(w, atTheEnd, false, true) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w Watch
				h := fail(&w)
				all := linesUp(t, h, "a", "a")
				h.locked(func(now time.Time) { h.release(all[0], now, asProbe) })
				pass := all[0].pass
				leave(h, all[0])
				assert.Equal(t, pass, all[0].pass)
				assert.Same(t, all[1], h.next())
				assert.Equal(t, 1, h.queued())
			})
		})
	}
}

// The next retry is woken for its probe when the one before leaves, although nothing else happens.
func TestNextInLineIsWokenForItsProbe(t *testing.T) {
	for name, leave := range map[string]func(h *health, w *waiter){
		"canceled":           func(h *health, w *waiter) { h.look(w, time.Now().Add(soon), true) },
		"granted at the end": func(h *health, w *waiter) { h.answer(w, atTheEnd, true, true) },
		"refused at the end": func(h *health, w *waiter) { h.answer(w, atTheEnd, false, true) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w Watch
				h := fail(&w)
				all := linesUp(t, h, "a", "a")
				assert.Greater(t, time.Until(all[1].armed), longestPause)
				leave(h, all[0])
				assert.Less(t, time.Until(all[1].armed), longestPause)
			})
		})
	}
}

// A retry that asks for the last time takes no probe's turn from the next.
func TestRetryAtItsEndLeavesTheProbeToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		h := fail(&w)
		deadline := time.Now().Add(firstPause)
		first := inLine(t, h, "a", deadline)
		next := inLine(t, h, "a", deadline.Add(soon))
		time.Sleep(firstPause)
		_, asks, _ := h.look(first, deadline, false)
		assert.Equal(t, atTheEnd, asks)
		h.answer(first, atTheEnd, false, true)
		_, asks, _ = h.look(next, deadline.Add(soon), false)
		assert.Equal(t, asProbe, asks)
	})
}

// A canceled retry may have been told to ask while each four successes let one ask.
func TestCreditOfACanceledRetryIsTheNextOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		h := fail(&w)
		all := linesUp(t, h, "a", "a")
		h.behind = time.Now().Add(soon)
		for range successesPerRelease {
			w.End(host, Pass{}, Up, true, hold)
		}
		assert.Equal(t, bySuccess, all[0].asks)
		h.look(all[0], time.Now().Add(soon), true)
		assert.Equal(t, bySuccess, all[1].asks)
	})
}

// A retry that the budget will never grant leaves the line at once, and its turn is another bucket's.
func TestRetryThatIsNeverGrantedLeavesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		h := fail(&w)
		w.Admit(host, hold)
		h.last()
		over := make(chan time.Time, 1)
		go func() {
			_, _, granted := w.Wait(new(http.Request), host, "a", new(timer.Timer), &Turn{Limit: soon, Ask: func() (bool, bool) { return false, false }})
			assert.False(t, granted)
			over <- time.Now()
		}()
		synctest.Wait()
		next := linesUp(t, h, "b")[0]
		now := time.Now()
		assert.LessOrEqual(t, (<-over).Sub(now), longestPause)
		assert.Same(t, next, h.next())
		assert.Equal(t, asProbe, next.asks)
	})
}
