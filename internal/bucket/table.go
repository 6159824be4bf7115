// Package bucket keeps token buckets by key. Deposits fill a bucket, and withdrawals empty it.
package bucket

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/keyed"
)

// Table has a bucket for each of at most [keyed.Most] keys. The zero value is ready to use. Its methods
// are safe for concurrent use. They call settings only if they make a bucket, which a deposit rarely does.
type Table struct {
	mu         sync.Mutex // held while a bucket is added or evicted
	buckets    keyed.Map[bucket]
	recent     atomic.Pointer[bucket] // the bucket that a deposit last did the arithmetic of
	evictions  []*bucket              // which new buckets replace next; guarded by mu
	turnedAway atomic.Uint32          // number of deposits without a bucket or room for one
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
		t.mu.Lock()
		b = t.successor(key, settings, false)
		t.mu.Unlock()
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
			b.endRest(now)
			b.used, b.drawn, b.spent = now, now, b.folded
			b.sampled.Store(false) // what it earns back is counted
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
	if b := t.buckets.Find(key); b != nil {
		return b
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if b := t.buckets.Find(key); b != nil {
		return b
	}
	b := t.successor(key, settings, true)
	return t.buckets.FindOrAdd(b.key, func() *bucket { return b }, nil)
}

// successor returns a new bucket for key, which is not added yet. If the Table is full, the new bucket inherits
// from the next one to evict, and evicts it if evicts is set. The caller holds t.mu.
func (t *Table) successor(key string, settings func() Settings, evicts bool) *bucket {
	now := time.Now()
	b := newBucket(strings.Clone(key), settings(), now) // a key may be a part of a long URL
	if t.buckets.Full() {
		old := t.lockNext(now)
		defer old.mu.Unlock()
		b.inherit(old, now)
		if evicts {
			t.evict(old)
		}
	}
	return b
}

// evict removes b, which is the next bucket to evict. The caller holds t.mu and b.mu.
func (t *Table) evict(b *bucket) {
	b.evicted.Store(true)
	t.evictions = slices.Delete(t.evictions, 0, 1)
	t.buckets.Delete(b.key)
}
