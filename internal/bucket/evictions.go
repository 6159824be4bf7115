package bucket

import (
	"slices"
	"sync"
	"time"
)

// relistAfter is the least number of buckets taken from the list before it is rebuilt to find a
// bucket as good as new.
const relistAfter = maxBuckets / 8

// evictions lists the buckets of a full Table in the order in which new buckets replace them. The
// Table's mu guards all fields.
//
// The list is rebuilt when all of its buckets have been evicted, or used since the last sort. It
// is also rebuilt now and then to find a bucket that has become as good as new. A bucket is
// passed over at most once for each of its uses. Therefore the search costs every use a constant
// share of the sort, however many keys there are.
type evictions struct {
	next  []*bucket
	taken int // number of buckets taken from next since it was listed
}

// lockNext returns which of the Table's buckets to evict next, with the bucket's lock held. The
// bucket is still the first in the list.
func (e *evictions) lockNext(buckets *sync.Map, now time.Time) *bucket {
	for {
		if len(e.next) == 0 {
			e.list(buckets, now)
		}
		b := e.next[0]
		b.mu.Lock()
		b.fold(now)
		unused, asNew := b.used.Equal(b.listed), b.asNew(now)
		relist := !asNew && b.inUse(now) && e.taken >= relistAfter
		if (unused || asNew) && !relist {
			return b
		}
		b.mu.Unlock()
		if relist {
			e.list(buckets, now)
		} else {
			e.take()
		}
	}
}

// take takes the first bucket from the list.
func (e *evictions) take() {
	e.next[0] = nil // or the list would keep the bucket alive
	e.next = e.next[1:]
	e.taken++
}

// list lists buckets that are as good as new first, and then the others from the longest unused.
func (e *evictions) list(buckets *sync.Map, now time.Time) {
	type entry struct {
		b    *bucket
		used time.Time // zero if the bucket is as good as new
	}
	entries := make([]entry, 0, maxBuckets)
	buckets.Range(func(_, v any) bool {
		b := v.(*bucket)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.fold(now)
		b.listed = b.used
		e := entry{b: b}
		if !b.asNew(now) {
			e.used = b.used
		}
		entries = append(entries, e)
		return true
	})
	slices.SortFunc(entries, func(x, y entry) int { return x.used.Compare(y.used) })
	e.next, e.taken = make([]*bucket, len(entries)), 0
	for i, entry := range entries {
		e.next[i] = entry.b
	}
}
