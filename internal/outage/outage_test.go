package outage

import (
	"maps"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp/internal/timer"
	"github.com/stretchr/testify/assert"
)

const host = "host"

// The first success after a trouble has work. The others need not wait for the lock.
func TestSuccessTakesNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		var timer timer.Timer
		req := &http.Request{Header: http.Header{"Authorization": {"Bearer x"}}}
		send := func(v Verdict) {
			assert.False(t, w.WaitWhileClosed(req, host, &timer, time.Second))
			w.End(host, w.Begin(host, Pass{}), v, true, time.Second)
		}
		w.Close(host, time.Second, nil, WholeHost)
		w.Close(host, time.Second, req.Header, SameCredentials)
		time.Sleep(time.Minute)
		send(Down) // after the closures
		assert.False(t, w.Calm())
		send(Up)
		h := w.keys.Find(host)
		h.mu.Lock()
		defer h.mu.Unlock()
		assert.True(t, w.Calm())
	})
}

// A Watch must not keep what identifies a tenant, and another Watch has other hashes.
func TestWatchKeepsNoCredentials(t *testing.T) {
	header := http.Header{"Authorization": {"Bearer secret"}}
	var hashes []uint64
	for range 2 {
		var w Watch
		w.Close(host, time.Minute, header, SameCredentials)
		h := w.keys.Find(host)
		hashes = slices.AppendSeq(hashes, maps.Keys(h.closures.byKey))
	}
	assert.Len(t, hashes, 2)
	assert.NotEqual(t, hashes[0], hashes[1])
}

// The closure of a request that no longer waits is forgotten when it is over.
func TestClosureWithoutWaitersIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		req := &http.Request{Header: http.Header{"Authorization": {"x"}}}
		w.Close(host, time.Second, req.Header, SameCredentials)
		assert.True(t, w.WaitWhileClosed(req, host, new(timer.Timer), time.Minute))
		assert.Equal(t, 0, w.Status(host, req.Header).Held)
		time.Sleep(time.Second)
		assert.False(t, w.WaitWhileClosed(req, host, new(timer.Timer), time.Minute))
		assert.Empty(t, w.keys.Find(host).closures.byKey)
	})
}
