package outage

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp/internal/timer"
)

// A busy host holds the first attempts that heed it, whatever their credentials, and no retries.
func TestBusyHostHoldsFirstAttemptsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		w.Close(host, time.Second, http.Header{"Authorization": {"x"}}, FirstAttempts)
		req := &http.Request{Header: http.Header{"Authorization": {"y"}}}
		start := time.Now()
		_, held, _ := w.Wait(req, host, nil, new(timer.Timer), &Turn{Mark: 0, Limit: hold, Heed: true})
		assert.False(t, held)
		assert.Zero(t, time.Since(start))
		assert.Equal(t, Status{Closed: time.Second}, w.Status(host, req.Header))

		go func() {
			synctest.Wait()
			assert.Equal(t, 1, w.Status(host, req.Header).Held)
		}()
		assert.True(t, w.WaitWhileClosed(req, host, new(timer.Timer), hold))
		assert.GreaterOrEqual(t, time.Since(start), time.Second)
		assert.LessOrEqual(t, time.Since(start), 3*time.Second/2)
	})
}

// The queue of a busy host goes on: its probes are not postponed, and its successes release.
func TestBusyHostReleasesRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		h := fail(&w)
		held := joined(t, h, 2)
		w.Close(host, time.Minute, nil, FirstAttempts)
		time.Sleep(firstPause)
		h.locked(h.checkProbe)
		assert.True(t, held[0].left)
		for range successesPerRelease {
			w.End(host, Pass{}, Up, true, hold)
		}
		assert.True(t, held[1].left)
	})
}

// Of the closures that concern a request the longest counts.
func TestLongestClosureCounts(t *testing.T) {
	own, other := http.Header{"Authorization": {"x"}}, http.Header{}
	for _, tt := range []struct {
		name                string
		host, busy, limited time.Duration
		retry, first        time.Duration // for own
	}{
		{"the host's", 3, 2, 1, 3, 3},
		{"a 503's", 1, 3, 2, 2, 3},
		{"the credentials'", 1, 2, 3, 3, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w Watch
				w.Close(host, tt.host, other, WholeHost)
				w.Close(host, tt.busy, other, FirstAttempts)
				w.Close(host, tt.limited, own, SameCredentials)
				h := w.keys.Find(host)
				left, asked := h.closure(own, false)
				assert.Equal(t, tt.retry, left)
				assert.Equal(t, tt.retry, asked)
				left, _ = h.closure(own, true)
				assert.Equal(t, tt.first, left)
				left, _ = h.closure(other, true)
				assert.Equal(t, max(tt.host, tt.busy), left)
			})
		})
	}
}

// A host that is down tells all its clients one moment. They queue then, although the host is well.
func TestClientsToldOneMomentQueue(t *testing.T) {
	for _, tt := range []struct {
		name string
		down bool
		asks time.Duration
		due  time.Duration // since the success that ends the outage
		held bool
	}{
		{"then", true, time.Second, time.Second, true},
		{"before the crowd is over", true, time.Second, time.Second + hold - 1, true},
		{"afterwards", true, time.Second, time.Second + hold, false},
		{"before a short crowd is over", true, firstPause, (1+behindFactor)*firstPause - 1, true},
		{"after a short crowd", true, firstPause, (1 + behindFactor) * firstPause, false},
		{"of a host that was not down", false, time.Second, time.Second, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w Watch
				w.End(host, Pass{}, Down, true, hold)
				if tt.down {
					fail(&w)
				}
				w.Close(host, tt.asks, nil, FirstAttempts)
				w.End(host, Pass{}, Up, true, hold)
				time.Sleep(tt.due)
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				h := w.keys.Find(host)
				h.locked(func(now time.Time) { h.newest = now }) // no probe is due
				h.closure(nil, false)                            // somebody has looked whether the host is closed
				_, held, _ := w.Wait(new(http.Request).WithContext(ctx), host, nil, new(timer.Timer), &Turn{Mark: 0, Limit: hold, Heed: true})
				assert.Equal(t, tt.held, held)
			})
		})
	}
}

// A host that is never asked again never learns that its closure is over.
func TestClosureIsNoTroubleOfOtherHosts(t *testing.T) {
	var w Watch
	w.Close(host, time.Minute, nil, SameCredentials)
	assert.True(t, w.Calm())
}

// Any number of clients that are limited leave room for what concerns all.
func TestHostCanBeClosedBesideManyCredentials(t *testing.T) {
	for _, of := range []Scope{WholeHost, FirstAttempts} {
		synctest.Test(t, func(t *testing.T) {
			var w Watch
			for i := range 2 * mostLimited {
				w.Close(host, time.Minute, bearer(i), SameCredentials)
			}
			w.Close(host, time.Second, nil, of)
			assert.Equal(t, Status{Closed: time.Second}, w.Status(host, nil))
		})
	}
}

func bearer(i int) http.Header { return http.Header{"Authorization": {"Bearer " + strconv.Itoa(i)}} }

// All other tenants wait as their own responses ask. Looking for closures that are over takes time, and a host
// may send any number of 429s, so a Watch looks ten times a second.
func TestWatchKeepsABoundedNumberOfClosures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		keeps := func(i int, d time.Duration) bool {
			w.Close(host, d, bearer(i), SameCredentials)
			return w.Status(host, bearer(i)).Closed == d
		}
		const ms = time.Millisecond
		for i := range 1024 {
			assert.True(t, keeps(i, 10*ms))
		}
		assert.False(t, keeps(2000, time.Second), "it looks, and none is over")
		time.Sleep(9 * ms)
		assert.True(t, keeps(0, 200*ms), "which has a closure, and extends it")
		time.Sleep(5 * ms)
		assert.False(t, keeps(2001, time.Second), "it has looked 14 ms ago")
		assert.Equal(t, 1024, len(w.keys.Find(host).closures.byKey))
		time.Sleep(86 * ms)
		assert.True(t, keeps(2002, 10*ms))
		assert.Equal(t, 2, len(w.keys.Find(host).closures.byKey), "those that are over make room")
		assert.Equal(t, 109*ms, w.Status(host, bearer(0)).Closed)
		time.Sleep(109 * ms)
		assert.Zero(t, w.Status(host, bearer(0)).Closed)
		assert.Empty(t, w.keys.Find(host).closures.byKey, "nothing is closed")
	})
}

func TestWatchMakesRoomForClosuresAfterTheClockWentBack(t *testing.T) {
	var w Watch
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		for i := range mostLimited + 1 {
			w.Close(host, time.Second, bearer(i), SameCredentials)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w.Close(host, time.Second, bearer(-1), SameCredentials)
		assert.Equal(t, time.Second, w.Status(host, bearer(-1)).Closed)
	})
}
