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

// list lists buckets that are as good as new first, and then the others, each from the longest unused. A host in
// use may be as good as new, too, but its bucket knows the rate.
func (e *evictions) list(buckets *sync.Map, now time.Time) {
	var asNew, others []*bucket
	buckets.Range(func(_, v any) bool {
		b := v.(*bucket)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.fold(now)
		b.listed = b.used
		if b.asNew(now) {
			asNew = append(asNew, b)
		} else {
			others = append(others, b)
		}
		return true
	})
	for _, list := range [][]*bucket{asNew, others} {
		slices.SortFunc(list, func(x, y *bucket) int { return x.listed.Compare(y.listed) })
	}
	e.next, e.taken = append(asNew, others...), 0
}
