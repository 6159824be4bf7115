package retryhttp

import (
	"net/http"
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
	// for a bucket. Other buckets have no stripes, because stripes take memory. A TokenBucket
	// uses no lanes before a bucket is busy, because a garbage collection may remove lanes.
	busyTime = time.Second
	// cacheLine is the number of bytes that processors take from each other at once.
	cacheLine = 64
)

// Deposit credits a success to req's bucket.
func (b *TokenBucket) Deposit(req *http.Request) {
	key := keyOf(req, b.Key)
	if !b.busy.Load() {
		if k := b.depositee(key); k != nil && k.deposits.Add(1)%foldEvery == 0 {
			b.foldNow(k)
		}
		return
	}
	l, _ := b.lanes.Get().(*lane)
	if l == nil {
		l = &lane{number: int(b.numbers.Add(1))}
	}
	b.depositIn(l, key)
	b.lanes.Put(l)
}

func (b *TokenBucket) depositIn(l *lane, key string) {
	if l.recent == nil || l.recent.key != key || l.recent.evicted.Load() {
		l.enter(b.depositee(key))
	}
	if k := l.recent; k != nil && (l.deposits.Add(1)+l.phase)%foldEvery == 0 {
		b.foldNow(k)
		l.enter(k)
	}
}

// foldNow does the arithmetic of deposits, unless another goroutine holds k's lock. If there
// were many deposits in a short time, the bucket gets a counter for each processor.
func (b *TokenBucket) foldNow(k *bucket) {
	if !k.mu.TryLock() {
		return
	}
	defer k.mu.Unlock()
	now := time.Now()
	if now.Sub(k.foldedAt) < busyTime && k.total()-k.folded >= foldEvery/2 {
		k.stripe()
		b.busy.Store(true)
	}
	k.fold(now)
}

// depositee returns the bucket for a deposit, or nil if there is neither a bucket nor room for
// a new bucket.
func (b *TokenBucket) depositee(key string) *bucket {
	if k, ok := b.find(key); ok {
		return k
	}
	if b.count.Load() >= maxBuckets && b.passed.Add(1)%foldEvery != 0 {
		return nil
	}
	return b.bucket(key)
}

// lane is used by one processor at a time, because lanes are kept in a sync.Pool. A lane holds
// the bucket of the last request and the counter for its deposits. Deposit therefore writes
// nothing that another processor reads. If a garbage collection removes an unused lane, the
// next deposit makes a new lane.
type lane struct {
	number   int
	recent   *bucket
	deposits *atomic.Uint64  // recent's counter for this lane
	phase    uint64          // offset of the counter, so that the lanes of a bucket fold in turn
	_        [cacheLine]byte // keeps the next lane off the same cache line
}

// enter records k, which may be nil, as the bucket of the last request.
func (l *lane) enter(k *bucket) {
	l.recent = k
	if k != nil {
		l.deposits, l.phase = k.counter(l.number)
	}
}

// stripe is one of several counters that are summed. Each stripe has its own cache line.
type stripe struct {
	n atomic.Uint64
	_ [cacheLine - 8]byte
}

// counter returns the counter to which a lane adds its deposits, and the counter's phase.
// Because of the phases, evenly used counters are folded one after another. The deposits that
// are not folded yet are then as few as with a single counter.
func (k *bucket) counter(lane int) (deposits *atomic.Uint64, phase uint64) {
	s := k.stripes.Load()
	if s == nil {
		return &k.deposits, 0
	}
	i := lane % len(*s)
	return &(*s)[i].n, uint64(i * foldEvery / len(*s))
}

// stripe gives every processor its own counter. The caller holds k.mu.
func (k *bucket) stripe() {
	if k.stripes.Load() == nil {
		stripes := make([]stripe, runtime.GOMAXPROCS(0))
		k.stripes.Store(&stripes)
	}
}

// total returns the number of deposits ever made.
func (k *bucket) total() uint64 {
	total := k.deposits.Load()
	if s := k.stripes.Load(); s != nil {
		for i := range *s {
			total += (*s)[i].n.Load()
		}
	}
	return total
}
