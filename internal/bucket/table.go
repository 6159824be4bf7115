// Package bucket keeps token buckets by key. Deposits fill a bucket, and withdrawals empty it.
package bucket

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/keyed"
)

// Table has a bucket for each of at most [keyed.Most] keys. The zero value is ready to use. Its methods
// are safe for concurrent use. They call settings only if they make a bucket, which a deposit rarely does.
type Table struct {
	buckets    keyed.Map[bucket]
	recent     atomic.Pointer[bucket] // the bucket that a deposit last did the arithmetic of
	turnedAway atomic.Uint32          // number of deposits without a bucket or room for one

	mu        sync.Mutex
	evictions evictions
}

// Count records the failure of an attempt that no retry follows.
func (t *Table) Count(key string, settings func() Settings, failure Failure) {
	if failure.Down {
		t.update(key, settings, func(b *bucket, now time.Time) { b.failed(failure, now) })
	}
}

// Withdraw takes what the retry after failure costs from key's bucket, or reports false. With again,
// the failure was recorded before.
func (t *Table) Withdraw(key string, settings func() Settings, failure Failure, again bool) (cost float64, granted bool) {
	t.update(key, settings, func(b *bucket, now time.Time) {
		if !again {
			b.failed(failure, now)
		}
		cost, granted = b.withdraw(now, failure)
	})
	return cost, granted
}

// Refund gives key's bucket back the cost of a withdrawal, if it has room.
func (t *Table) Refund(key string, settings func() Settings, cost float64) {
	t.update(key, settings, func(b *bucket, _ time.Time) { b.refund(cost) })
}

// Status returns how much could be withdrawn from key's bucket now, and whether a deposit earns only
// the Ratio. It adds no bucket.
func (t *Table) Status(key string, settings func() Settings) (tokens float64, poor bool) {
	b := t.buckets.Find(key)
	if b == nil {
		b = t.successor(key, settings, false)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.fold(now)
	return b.balance(now), b.share.poor
}

// update runs f on key's bucket, with the bucket's lock held. A bucket that was evicted
// meanwhile no longer counts: its successor would grant a token taken from it a second time.
func (t *Table) update(key string, settings func() Settings, f func(*bucket, time.Time)) {
	for {
		b := t.findOrAdd(key, settings)
		b.mu.Lock()
		if !b.evicted.Load() {
			now := time.Now()
			b.fold(now)
			b.used, b.drawn, b.spent = now, now, b.folded
			f(b, now)
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
	}
}

// findOrAdd returns key's bucket, and adds a new one if there is none. A full Table first evicts
// another bucket.
func (t *Table) findOrAdd(key string, settings func() Settings) *bucket {
	return t.buckets.FindOrAdd(key, func() *bucket { return t.successor(key, settings, true) }, nil)
}

// successor returns a new bucket for key. In a full Table, the bucket has a predecessor, which it replaces if it is
// going to be added.
func (t *Table) successor(key string, settings func() Settings, added bool) *bucket {
	now := time.Now()
	key = strings.Clone(key) // a host is a part of a URL, which may be long
	b := newBucket(key, settings(), now)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.buckets.Full() {
		old := t.evictions.lockNext(&t.buckets, now)
		defer old.mu.Unlock()
		b.inherit(old, now)
		if added {
			t.evict(old)
		}
	}
	return b
}

// evict removes b, which is the next bucket to evict. The caller holds t.mu and b.mu.
func (t *Table) evict(b *bucket) {
	b.evicted.Store(true)
	t.evictions.take()
	t.buckets.Delete(b.key)
}
