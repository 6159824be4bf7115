package bucket

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Every success is a deposit. Therefore deposits are counted without a lock, and no two
// processors write to the same memory. Withdraw does the arithmetic, or one deposit in many
// does.
const (
	// foldEvery is the number of deposits after which one of them does the arithmetic. The
	// rate then follows the last Window even if nothing withdraws. One in foldEvery deposits
	// that find neither a bucket nor room for a new bucket makes room. A host with few successes
	// has nothing to lose except the reserve that every new bucket has.
	foldEvery = 64
	// busyTime is the time within which foldEvery deposits arrive if processors may contend
	// for a bucket. Other buckets have no stripes, because stripes take memory. A Table uses no
	// lanes before a bucket is busy, because a garbage collection may remove lanes.
	busyTime = time.Second
	// cacheLine is the number of bytes that processors take from each other at once.
	cacheLine = 64
)

// Deposit credits a success to key's bucket. A full Table drops most deposits for keys that have
// no bucket.
func (t *Table) Deposit(key string, settings func() Settings) {
	if !t.busy.Load() {
		if b := t.depositee(key, settings); b != nil && b.deposits.Add(1)%foldEvery == 0 {
			t.tryFold(b)
		}
		return
	}
	l, _ := t.lanes.Get().(*lane)
	if l == nil {
		l = &lane{number: int(t.lanesMade.Add(1))}
	}
	if l.knows(key) || l.enter(t.depositee(key, settings)) {
		t.depositIn(l)
	}
	t.lanes.Put(l)
}

// depositee returns the bucket for a deposit, or nil if there is neither a bucket nor room for
// a new bucket.
func (t *Table) depositee(key string, settings func() Settings) *bucket {
	if b, ok := t.buckets.Load(key); ok { // not find, which is not inlined
		return b.(*bucket)
	}
	if t.count.Load() >= maxBuckets && t.turnedAway.Add(1)%foldEvery != 0 {
		return nil
	}
	return t.findOrAdd(key, settings)
}

// depositIn credits a success to the bucket that l has entered.
func (t *Table) depositIn(l *lane) {
	if (l.deposits.Add(1)+l.phase)%foldEvery == 0 {
		t.foldIn(l)
	}
}

// foldIn is apart from depositIn so that the compiler inlines depositIn.
func (t *Table) foldIn(l *lane) {
	t.tryFold(l.recent)
	l.enter(l.recent) // its counter may have changed
}

// tryFold does the arithmetic of deposits, unless another goroutine holds b's lock. If there were
// many deposits in a short time, the bucket gets a counter for each processor.
func (t *Table) tryFold(b *bucket) {
	if !b.mu.TryLock() {
		return
	}
	defer b.mu.Unlock()
	now := time.Now()
	if now.Sub(b.foldedAt) < busyTime && b.total()-b.folded >= foldEvery/2 {
		b.addStripes()
		t.busy.Store(true)
	}
	b.fold(now)
}

// lane is used by one processor at a time, because lanes are kept in a sync.Pool. A lane holds
// the bucket of the last deposit and the counter for its deposits. Deposit therefore writes
// nothing that another processor reads. If a garbage collection removes an unused lane, the
// next deposit makes a new lane.
type lane struct {
	number   int
	recent   *bucket
	deposits *atomic.Uint64  // recent's counter for this lane
	phase    uint64          // offset of the counter, so that the lanes of a bucket fold in turn
	_        [cacheLine]byte // keeps the next lane off the same cache line
}

// knows reports whether the last deposit was in key's bucket, and the bucket still counts.
func (l *lane) knows(key string) bool {
	return l.recent != nil && l.recent.key == key && !l.recent.evicted.Load()
}

// enter records b as the bucket of the last deposit. It reports false if b is nil.
func (l *lane) enter(b *bucket) bool {
	l.recent = b
	if b == nil {
		return false
	}
	l.deposits, l.phase = b.counter(l.number)
	return true
}

// stripe is one of several counters that are summed. Each stripe has its own cache line.
type stripe struct {
	n atomic.Uint64
	_ [cacheLine - 8]byte
}

// counter returns the counter to which a lane adds its deposits, and the counter's phase.
// Because of the phases, evenly used counters are folded one after another. The deposits that
// are not folded yet are then as few as with a single counter.
func (b *bucket) counter(lane int) (deposits *atomic.Uint64, phase uint64) {
	s := b.stripes.Load()
	if s == nil {
		return &b.deposits, 0
	}
	i := lane % len(*s)
	return &(*s)[i].n, uint64(i * foldEvery / len(*s))
}

// addStripes gives every processor its own counter. The caller holds b.mu.
func (b *bucket) addStripes() {
	if b.stripes.Load() == nil {
		stripes := make([]stripe, runtime.GOMAXPROCS(0))
		b.stripes.Store(&stripes)
	}
}

// total returns the number of deposits ever made.
func (b *bucket) total() uint64 {
	total := b.deposits.Load()
	if s := b.stripes.Load(); s != nil {
		for i := range *s {
			total += (*s)[i].n.Load()
		}
	}
	return total
}
