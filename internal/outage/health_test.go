package outage

import (
	"net/http"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp/internal/keyed"
	"github.com/retryhttp/retryhttp/internal/timer"
)

const hold = 5 * time.Second

// fail makes the host fail eight times, so that it is down.
func fail(w *Watch) *health {
	for range downAfter {
		w.End(host, Pass{}, Down, true, hold)
		time.Sleep(downFor / (downAfter - 1))
	}
	w.End(host, Pass{}, Down, true, hold)
	return w.keys.Find(host)
}

// A host that hung answers again while attempts from before still time out.
func TestFailureOfARunThatASuccessHasEndedDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		w.End(host, Pass{}, Down, true, hold)
		first, second := w.Begin(host, Pass{}), w.Begin(host, Pass{})
		w.End(host, first, Up, false, hold)
		w.End(host, second, Down, false, hold)
		assert.True(t, w.Calm())

		w.End(host, Pass{}, Down, true, hold)
		assert.EqualValues(t, 1, w.Inspect(host).Failures, "it began after the success")
		w.End(host, w.Begin(host, Pass{}), Down, false, hold)
		assert.EqualValues(t, 2, w.Inspect(host).Failures, "and so did its retry")
	})
}

// A pause is no success. But what is under way from before it says little, and holds back no probe.
func TestFailureOfARunThatAPauseHasEndedCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		w.End(host, Pass{}, Down, true, hold)
		first, second := w.Begin(host, Pass{}), w.Begin(host, Pass{})
		time.Sleep(idleAfter)
		w.End(host, first, Down, false, hold)
		assert.Equal(t, Snapshot{Failures: 1, Keys: 1, Sound: true}, w.Inspect(host))
		w.End(host, second, Down, false, hold)
		assert.Equal(t, Snapshot{Failures: 2, Keys: 1, Sound: true}, w.Inspect(host))
	})
}

// A health that is in use is not forgotten, however long ago its host has failed.
func TestForgetsNoHealthThatIsInUse(t *testing.T) {
	req := &http.Request{Header: http.Header{"Authorization": {"x"}}}
	for _, tt := range []struct {
		name string
		use  func(t *testing.T, w *Watch) (end func())
		kept bool
	}{
		{"nothing", func(*testing.T, *Watch) func() { return func() {} }, false},
		{"a retry that is held", func(t *testing.T, w *Watch) func() {
			h := w.keys.Find(host)
			held := &waiter{wake: make(chan struct{}, 1)}
			h.mu.Lock()
			defer h.mu.Unlock()
			held.place = h.held.PushBack(held)
			return func() { h.remove(held) }
		}, true},
		{"a request after a closure", func(t *testing.T, w *Watch) func() {
			w.Close(host, 2*hold, nil, WholeHost)
			go w.WaitWhileClosed(req, host, new(timer.Timer), time.Minute)
			time.Sleep(2 * hold)
			synctest.Wait() // it waits for the random time
			return func() { time.Sleep(hold) }
		}, true},
		{"a place in the line", func(t *testing.T, w *Watch) func() {
			w.Admit(host, hold)
			time.Sleep(idleAfter)
			return func() { w.Leave(host) }
		}, true},
		{"a refusal", func(t *testing.T, w *Watch) func() {
			w.Admit(host, hold)
			w.Leave(host)
			return func() { time.Sleep(idleAfter) }
		}, true},
		{"a closure", func(t *testing.T, w *Watch) func() {
			w.Close(host, time.Minute, nil, WholeHost)
			return func() { time.Sleep(time.Minute) }
		}, true},
		{"a crowd that is expected", func(t *testing.T, w *Watch) func() {
			fail(w)
			w.Close(host, time.Minute, nil, FirstAttempts)
			w.End(host, Pass{}, Up, true, hold)
			time.Sleep(time.Minute)
			return func() { time.Sleep(hold) }
		}, true},
		{"a failure", func(t *testing.T, w *Watch) func() {
			w.End(host, Pass{}, Down, true, hold)
			return func() { time.Sleep(idleAfter) }
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w Watch
				w.Close(host, 1, nil, WholeHost) // it has a record
				time.Sleep(idleAfter)
				end := tt.use(t, &w)
				h := w.keys.Find(host)
				assert.Equal(t, tt.kept, !h.forget(time.Now()))
				end()
				assert.True(t, h.forget(time.Now()))
				assert.True(t, w.Calm())
			})
		})
	}
}

// Somebody may have found a health before it was forgotten. What would be recorded there nobody would
// read, and nobody would release a retry that waits there.
func TestForgottenHealthIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		h := fail(&w)
		time.Sleep(idleAfter)
		assert.True(t, h.forget(time.Now()))
		held, _ := h.join(nil, new(Turn))
		assert.Nil(t, held)

		for i := range keyed.Most - 1 {
			w.keys.FindOrAdd(strconv.Itoa(i), func() *health { return newHealth(&w.trouble) }, nil)
		}
		go func() {
			for range 1000 {
				runtime.Gosched() // update has found h
			}
			w.keys.FindOrAdd("new", func() *health { return newHealth(&w.trouble) }, func(found *health, now time.Time) bool {
				return found == h || found.forget(now)
			})
		}()
		w.update(host, func(used *health, _ time.Time) { assert.NotSame(t, h, used) })
	})
}

// Retries queue behind the retries of an earlier outage. A second, shorter outage does not shorten that time.
func TestSecondOutageLeavesTheRetriesBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		h := fail(&w)
		behind := func() time.Duration { return time.Until(h.behind).Round(time.Millisecond) }
		h.join(nil, new(Turn))
		time.Sleep(time.Second - downFor)
		w.End(host, Pass{}, Up, true, hold)
		assert.InDelta(t, behindFactor*time.Second, behind(), float64(200*time.Millisecond))
		before := h.behind
		fail(&w)
		w.End(host, Pass{}, Up, true, hold)
		assert.Equal(t, before, h.behind)
	})
}

// An attempt that began in an earlier run says nothing about this one. Its end postpones no probe.
func TestAbandonedAttemptOfAnEarlierRunPostponesNoProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		w.End(host, Pass{}, Down, true, hold)
		early := w.Begin(host, Pass{})
		assert.True(t, early.UnderWay())
		w.End(host, Pass{}, Up, true, hold)
		h := fail(&w)
		held, _ := h.join(nil, new(Turn))
		assert.NotNil(t, held)
		newest := h.newest
		time.Sleep(firstPause / 2)
		early.Abandon()
		assert.Equal(t, newest, h.newest)
	})
}

// A retry may be released in a run, and be sent when a success has ended the run. It begins then.
func TestRetryThatIsSentAfterASuccessIsNoOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		w.End(host, Pass{}, Down, true, hold)
		p := w.Begin(host, Pass{})
		assert.True(t, p.UnderWay())
		w.End(host, Pass{}, Up, true, hold)
		p = w.Begin(host, p)
		assert.False(t, p.UnderWay(), "nothing has failed since")
		w.End(host, p, Down, false, hold)
		assert.EqualValues(t, 1, w.Inspect(host).Failures, "its failure is news")
	})
}

// Without failures there is no run that a success could end. An attempt that has begun goes on.
func TestSuccessWithoutFailuresEndsNoRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		h := fail(&w)
		w.End(host, Pass{}, Up, true, hold)
		p := h.enter(time.Now())
		w.End(host, Pass{}, Up, true, hold)
		w.End(host, p, Down, false, hold)
		assert.EqualValues(t, 1, w.Inspect(host).Failures)
		assert.Zero(t, w.Inspect(host).Open, "its end is counted")
	})
}

// A success of a host that nobody watches changes nothing while another host is down.
func TestSuccessOfAnUnknownHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		fail(&w)
		assert.Zero(t, w.End("other", Pass{}, Up, true, hold))
		assert.Zero(t, w.End("other", Pass{}, Nothing, true, hold))
		assert.Equal(t, 1, w.Inspect(host).Keys)
	})
}

// Inspect counts all that a request may hold.
func TestInspectCountsWhatIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		req := &http.Request{Header: http.Header{}}
		h := fail(&w)
		w.Begin(host, Pass{}) // under way
		assert.EqualValues(t, 1, w.Inspect(host).Open)
		h.join(nil, new(Turn))
		assert.EqualValues(t, 2, w.Inspect(host).Open)
		w.Admit(host, hold)
		assert.EqualValues(t, 3, w.Inspect(host).Open)
		w.Close(host, time.Second, nil, WholeHost)
		go w.WaitWhileClosed(req, host, new(timer.Timer), time.Minute)
		synctest.Wait()
		assert.EqualValues(t, 4, w.Inspect(host).Open)
		time.Sleep(time.Minute)
	})
}
