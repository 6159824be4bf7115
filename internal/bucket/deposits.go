package bucket

import (
	"math/rand/v2"
	"time"
)

// foldEvery is the number of deposits after which one of them does the arithmetic. The rate then
// follows the last Window even if nothing withdraws. One in foldEvery deposits that find neither a
// bucket nor room for a new bucket makes room. A host with few successes has nothing to lose except
// the reserve that every new bucket has.
const foldEvery = 64

// sampledFrom is the number of deposits per second from which a full bucket samples them. Two processors that
// count in one place wait for each other at each success, for 20 to 80 ns.
const sampledFrom = 10_000

// Deposit credits a success to key's bucket. A full Table drops most deposits for keys that have
// no bucket.
//
// Every success is a deposit. So a deposit only counts, without a lock. Withdraw does the arithmetic,
// or one deposit in foldEvery does. While deposits are sampled, that one counts for all: the bucket stays full,
// and its rate is right to some 2 %. Most clients send to one host, so the bucket of a recent deposit is
// tried before the look-up.
func (t *Table) Deposit(key string, settings func() Settings) {
	b := t.recent.Load()
	if b == nil || b.key != key || b.evicted.Load() {
		b = t.buckets.Find(key)
	}
	if b == nil {
		if t.buckets.Full() && t.turnedAway.Add(1)%foldEvery != 0 {
			return
		}
		b = t.findOrAdd(key, settings)
	}
	n := uint64(1)
	if b.sampled.Load() {
		if rand.Uint32()%foldEvery > 0 {
			return
		}
		n = foldEvery
	}
	if b.deposits.Add(n)%foldEvery < n {
		t.foldDeposits(b)
	}
}

// foldDeposits does the arithmetic, unless another goroutine does. It writes what all deposits read only
// if that changes.
func (t *Table) foldDeposits(b *bucket) {
	if t.recent.Load() != b {
		t.recent.Store(b)
	}
	if !b.mu.TryLock() {
		return
	}
	defer b.mu.Unlock()
	b.fold(time.Now())
	sampled := b.perSecond >= sampledFrom && round(b.tokens) >= round(b.capacity())
	if b.sampled.Load() != sampled {
		b.sampled.Store(sampled)
	}
}
