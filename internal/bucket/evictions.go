package bucket

import (
	"slices"
	"time"

	"github.com/retryhttp/retryhttp/internal/keyed"
)

// mostListed is how many buckets are listed at once.
const mostListed = keyed.Most / 8

// lockNext returns which bucket of a full Table to evict next, with the bucket's lock held. The bucket is
// still the first in the list. The caller holds t.mu.
//
// The list is rebuilt when all of its buckets have been evicted, or used since they were listed. So a bucket that
// has become as good as new is soon found, and a search costs each use or new bucket a small share of
// a sort, however many keys there are.
func (t *Table) lockNext(now time.Time) *bucket {
	for {
		if len(t.evictions) == 0 {
			t.listEvictions(now)
		}
		b := t.evictions[0]
		b.mu.Lock()
		b.fold(now)
		if b.used.Equal(b.listed) || b.asNew(now) {
			return b
		}
		b.mu.Unlock()
		t.evictions = slices.Delete(t.evictions, 0, 1)
	}
}

// listEvictions lists buckets that are as good as new first, and then the others, each from the longest unused. A host
// in use may be as good as new, too, but its bucket knows the rate.
func (t *Table) listEvictions(now time.Time) {
	var asNew, others []*bucket
	for _, b := range t.buckets.All() {
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
	t.evictions = slices.Clone(all[:min(mostListed, len(all))])
}
