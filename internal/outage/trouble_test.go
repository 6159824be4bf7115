package outage

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// refuse has the budget refuse n retries at one moment, and returns how many of them may wait.
func refuse(w *Watch, n int) (admitted int) {
	for range n {
		if w.Admit(host, hold) {
			admitted++
		}
	}
	for range admitted {
		w.Leave(host)
	}
	return admitted
}

// failAll is refuse for n attempts that fail.
func failAll(w *Watch, n int) (admitted int) {
	for range n {
		w.End(host, Pass{}, Down, true, hold)
	}
	return refuse(w, n)
}

// Batches to a dead service come a minute apart. Only the first may wait.
func TestTroubleEndsWithASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		assert.Equal(t, 3, failAll(&w, 3))
		for range 100 {
			time.Sleep(time.Minute)
			assert.Equal(t, 1, failAll(&w, 3))
		}
		w.End(host, Pass{}, Up, true, hold)
		assert.Equal(t, 1, failAll(&w, 3), "the host is not well for long")
		time.Sleep(hold)
		assert.Equal(t, 3, failAll(&w, 3), "another trouble")
		time.Sleep(hold)
		assert.Equal(t, 1, failAll(&w, 3), "the success was before this trouble")
		time.Sleep(idleAfter)
		assert.Equal(t, 1, failAll(&w, 3), "another batch")
	})
}

// A 429 says nothing about the host, so no success ends a trouble of these.
func TestTroubleOfRejectionsEndsWithAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		w.End(host, Pass{}, Down, true, hold)
		w.End(host, Pass{}, Up, true, hold) // a run before the trouble
		assert.Equal(t, 3, refuse(&w, 3))
		time.Sleep(hold - 1)
		assert.Equal(t, 3, refuse(&w, 3))
		time.Sleep(hold - 1)
		assert.Equal(t, 1, refuse(&w, 3), "it lasts")
		time.Sleep(hold)
		assert.Equal(t, 3, refuse(&w, 3), "another trouble")
		assert.Equal(t, 3, failAll(&w, 3), "failures join it")
		time.Sleep(hold)
		assert.Equal(t, 1, refuse(&w, 3), "a pause ends it no longer")
	})
}

// So does a trouble whose success came while retries waited.
func TestTroubleEndsWhileRetriesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		h := fail(&w)
		refuse(&w, 1)
		joined(t, h, 2)
		w.End(host, Pass{}, Up, true, hold)
		time.Sleep(hold)
		assert.Equal(t, 3, refuse(&w, 3))
	})
}

// A job that runs each hour has a line again.
func TestTroubleIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		assert.Equal(t, 3, failAll(&w, 3))
		time.Sleep(forgottenAfter - 1)
		assert.Equal(t, 1, failAll(&w, 3))
		time.Sleep(forgottenAfter)
		assert.Equal(t, 3, failAll(&w, 3))
	})
}

// A place is given up under the key with which it was taken.
func TestPlaceIsKeptUnderItsKey(t *testing.T) {
	var w Watch
	for _, key := range []string{"a", "a", "b"} {
		assert.True(t, w.Admit(key, hold))
	}
	w.Leave("a")
	assert.EqualValues(t, 1, w.Inspect("a").Open)
	assert.EqualValues(t, 1, w.Inspect("b").Open)
	w.Leave("b")
	assert.EqualValues(t, 1, w.Inspect("a").Open)
	assert.Zero(t, w.Inspect("b").Open)
}

// In the first window of a trouble a probe needs no token, however few wait. Later, many must wait.
func TestProbeNeedsNoToken(t *testing.T) {
	for _, tt := range []struct {
		name  string
		after time.Duration // since the first refusal
		wait  int
		free  bool
	}{
		{"one at first", hold - 1, 1, true},
		{"one in lasting trouble", hold, 1, false},
		{"seven in lasting trouble", hold, freeProbesFrom - 1, false},
		{"eight in lasting trouble", hold, freeProbesFrom, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w Watch
				until := time.Now().Add(tt.after)
				refuse(&w, 1)
				time.Sleep(tt.after - time.Second)
				h := fail(&w)
				all := linesUp(t, h, make([]any, tt.wait)...)
				time.Sleep(time.Until(until))
				h.locked(h.checkProbe)
				assert.Equal(t, tt.free, all[0].left)
				if tt.free {
					assert.Equal(t, asProbe, all[0].pass.exit)
				} else {
					at, asks, _ := h.look(all[0], until.Add(soon), false)
					assert.Equal(t, asProbe, asks)
					assert.Equal(t, firstPause, time.Until(at), "the next probe has its pause")
				}
			})
		})
	}
}

// This holds for a trouble of rejections alone as well.
func TestProbeOfALimitedClientNeedsNoToken(t *testing.T) {
	for _, after := range []time.Duration{hold - 1, hold} {
		synctest.Test(t, func(t *testing.T) {
			var w Watch
			refuse(&w, 1)
			time.Sleep(after)
			one := inLine(t, w.keys.Find(host), nil, time.Now().Add(soon))
			assert.Equal(t, after < hold, one.left)
		})
	}
}

// A probe of a line in which few wait has longer pauses while it needs no token.
func TestPausesOfAShortLine(t *testing.T) {
	const long = firstPause * 5 / 2
	for _, tt := range []struct {
		name       string
		line, held int
		trouble    time.Duration // how long it has lasted
		pause      time.Duration
	}{
		{"one", 1, 0, 0, long},
		{"seven", freeProbesFrom - 1, 0, 0, long},
		{"eight", freeProbesFrom, 0, 0, firstPause},
		{"one behind one that has a token", 1, 1, 0, firstPause},
		{"one in trouble that will have lasted", 1, 0, hold - firstPause, firstPause},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w Watch
				refuse(&w, 1)
				h := fail(&w)
				h.line.trouble = time.Now().Add(-tt.trouble)
				joined(t, h, tt.held)
				linesUp(t, h, make([]any, tt.line)...)
				due, ok := h.probeDue(time.Now())
				assert.True(t, ok)
				assert.Equal(t, tt.pause, time.Until(due))
			})
		})
	}
}

// A retry that is alone in line waits for a probe if the outage may be short.
func TestFirstRetryOfATroubleWaitsThoughItIsAlone(t *testing.T) {
	for name, c := range map[string]struct {
		failures int
		lasts    time.Duration
		refused  int // before
		waits    bool
	}{
		"the first":       {aloneAfter, hold - 1, 0, true},
		"a long outage":   {aloneAfter, hold, 0, false},
		"few failures":    {aloneAfter - 1, 0, 0, false},
		"one came before": {aloneAfter, hold - 1, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w Watch
				w.End(host, Pass{}, Down, true, hold)
				refuse(&w, c.refused)
				time.Sleep(c.lasts)
				var mark uint32
				for range c.failures - 1 {
					mark = w.End(host, Pass{}, Down, true, hold)
				}
				w.Admit(host, hold)
				waiter, _ := w.keys.Find(host).join(nil, &Turn{Mark: mark, Ask: func() (bool, bool) { return false, true }})
				assert.Equal(t, c.waits, waiter != nil)
			})
		})
	}
}
