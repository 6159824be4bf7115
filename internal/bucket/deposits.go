package bucket

import "time"

// foldEvery is the number of deposits after which one of them does the arithmetic. The rate then
// follows the last Window even if nothing withdraws. One in foldEvery deposits that find neither a
// bucket nor room for a new bucket makes room. A host with few successes has nothing to lose except
// the reserve that every new bucket has.
const foldEvery = 64

// Deposit credits a success to key's bucket. A full Table drops most deposits for keys that have
// no bucket.
//
// Every success is a deposit. So a deposit only counts, without a lock. Withdraw does the arithmetic,
// or one deposit in foldEvery does. A counter for each processor was tried: no request noticed it.
// Most clients send to one host, so the bucket of a recent deposit is tried before the look-up.
func (t *Table) Deposit(key string, settings func() Settings) {
	b := t.recent.Load()
	if b == nil || b.key != key || b.evicted.Load() {
		b = t.depositee(key, settings)
	}
	if b != nil && b.deposits.Add(1)%foldEvery == 0 {
		t.recent.Store(b)
		if b.mu.TryLock() { // or another goroutine does the arithmetic
			b.fold(time.Now())
			b.mu.Unlock()
		}
	}
}

// depositee returns the bucket for a deposit, or nil if there is neither a bucket nor room for
// a new bucket.
func (t *Table) depositee(key string, settings func() Settings) *bucket {
	if b := t.buckets.Find(key); b != nil {
		return b
	}
	if t.buckets.Full() && t.turnedAway.Add(1)%foldEvery != 0 {
		return nil
	}
	return t.findOrAdd(key, settings)
}
