package retryhttp

import (
	"net/http"
	"runtime"
	"sync/atomic"
	"time"
)

// Every success is a deposit. So deposits are counted without a lock, and no two
// processors write to the same memory. The arithmetic is left to Withdraw, or to one
// deposit in many.
const (
	// foldEvery is after how many deposits one of them does the arithmetic, so
	// that the rate follows the last Window also where nothing withdraws; and of
	// how many that find no room one makes it. A host whose successes are few has
	// nothing to lose but the reserve that every new bucket has.
	foldEvery = 64
	// busyTime is how soon foldEvery deposits come if processors may get into each
	// other's way. Other buckets do without stripes, which take room, and without
	// lanes, which a garbage collection may take away.
	busyTime = time.Second
	// cacheLine is what processors take from each other at once.
	cacheLine = 64
)

// Deposit credits a success to req's bucket.
func (b *TokenBucket) Deposit(req *http.Request) {
	key := b.key(req)
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

// foldNow does the arithmetic of deposits, unless somebody else does. If there were many
// in a short time, the bucket gets a counter for each processor.
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

// depositee returns the bucket for a deposit, or nil if there is neither one nor
// room for it.
func (b *TokenBucket) depositee(key string) *bucket {
	if k, ok := b.find(key); ok {
		return k
	}
	if b.count.Load() >= maxBuckets && b.passed.Add(1)%foldEvery != 0 {
		return nil
	}
	return b.bucket(key)
}

// lane is used by one processor at a time, as the content of a sync.Pool is. Deposit
// finds the bucket of the last request there, and what to count in, so that it writes
// nothing that another processor reads. Should garbage collections take a lane that is
// not used for a while, the next deposit makes another one.
type lane struct {
	number   int
	recent   *bucket
	deposits *atomic.Uint64  // of recent
	phase    uint64          // of these deposits: the lanes of a bucket fold in turn
	_        [cacheLine]byte // or the next lane would lie on the same line
}

// enter makes k, which may be nil, the bucket of the last request.
func (l *lane) enter(k *bucket) {
	l.recent = k
	if k != nil {
		l.deposits, l.phase = k.counter(l.number)
	}
}

// stripe is one counter of several that are summed, alone on its cache line.
type stripe struct {
	n atomic.Uint64
	_ [cacheLine - 8]byte
}

// counter returns what a lane adds its deposits to, and the counter's phase. Counters
// that are used evenly are folded one after the other, so that the deposits that are
// not yet folded are as few as with one counter.
func (k *bucket) counter(lane int) (deposits *atomic.Uint64, phase uint64) {
	s := k.stripes.Load()
	if s == nil {
		return &k.deposits, 0
	}
	i := lane % len(*s)
	return &(*s)[i].n, uint64(i * foldEvery / len(*s))
}

// stripe gives every processor a counter of its own, with k.mu held.
func (k *bucket) stripe() {
	if k.stripes.Load() == nil {
		stripes := make([]stripe, runtime.GOMAXPROCS(0))
		k.stripes.Store(&stripes)
	}
}

// total returns how many deposits were ever made.
func (k *bucket) total() uint64 {
	total := k.deposits.Load()
	if s := k.stripes.Load(); s != nil {
		for i := range *s {
			total += (*s)[i].n.Load()
		}
	}
	return total
}
