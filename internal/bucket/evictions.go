package bucket

import (
	"slices"
	"time"

	"github.com/retryhttp/retryhttp/internal/keyed"
)

// mostListed is how many buckets are listed at once.
const mostListed = keyed.Most / 8

// evictions lists the buckets of a full Table that new buckets replace next. The Table's mu guards it.
//
// The list is rebuilt when all of its buckets have been evicted, or used since they were listed. So a bucket that
// has become as good as new is soon found, and a search costs each use or new bucket a small share of
// a sort, however many keys there are.
type evictions []*bucket

// lockNext returns which of the Table's buckets to evict next, with the bucket's lock held. The
// bucket is still the first in the list.
func (e *evictions) lockNext(buckets *keyed.Map[bucket], now time.Time) *bucket {
	for {
		if len(*e) == 0 {
			e.list(buckets, now)
		}
		b := (*e)[0]
		b.mu.Lock()
		b.fold(now)
		if b.used.Equal(b.listed) || b.asNew(now) {
			return b
		}
		b.mu.Unlock()
		*e = slices.Delete(*e, 0, 1)
	}
}

// list lists buckets that are as good as new first, and then the others, each from the longest unused. A host in
// use may be as good as new, too, but its bucket knows the rate.
func (e *evictions) list(buckets *keyed.Map[bucket], now time.Time) {
	var asNew, others []*bucket
	for _, b := range buckets.All() {
		b.mu.Lock()
		b.fold(now)
		b.listed = b.used
		if b.asNew(now) {
			asNew = append(asNew, b)
		} else {
			others = append(others, b)
		}
		b.mu.Unlock()
	}
	older := func(x, y *bucket) int { return x.listed.Compare(y.listed) }
	slices.SortFunc(asNew, older)
	slices.SortFunc(others, older)
	all := append(asNew, others...)
	*e = slices.Clone(all[:min(mostListed, len(all))])
}
